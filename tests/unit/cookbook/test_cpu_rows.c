/* test_cpu_rows.c - maps, transposes, gathers, row operators, reductions and scans at ragged sizes against scalar
 * double references. */
#include "cpu_test.h"

struct io {
	const float *x;
	float *y;
	long long cols;
	const float *z;
};

WW_FN ww_vf io_load(const void *ctx, long long r, long long i, int n)
{
	const struct io *c = ctx;

	return ww_vf_load(c->x + r * c->cols + i, n);
}

WW_FN void io_store(const void *ctx, long long r, long long i, ww_vf v, int n)
{
	const struct io *c = ctx;

	ww_vf_stream(c->y + r * c->cols + i, v, n);
}

WW_FN void io_done(const void *ctx, long long r, float a, float b)
{
	const struct io *c = ctx;

	c->y[2 * r] = a;
	c->y[2 * r + 1] = b;
}

WW_FN void io_group(const void *ctx, long long r, long long ch, long long i, ww_vf v, int n)
{
	const struct io *c = ctx;

	ww_vf_store(c->y + r * c->cols + ch * (c->cols / 3) + i, v + (float)ch, n);
}

WW_FN void io_map(const void *ctx, long long i, int n)
{
	const struct io *c = ctx;

	ww_vf_stream(c->y + i, ww_vf_load(c->x + i, n) * 2.0f + 1.0f, n);
}

WW_FN void io_nd(const void *ctx, const long long *at, long long i, int n) /* y[a][b][i] = x[a][0][i] + z[b] */
{
	const struct io *c = ctx;

	ww_vf_store(c->y + (at[1] * 3 + at[2]) * c->cols + i, ww_vf_load(c->x + at[1] * c->cols + i, n) + c->z[at[2]], n);
}

#define IO(g) const struct io c = { WW_ARG(const float *, g), WW_ARG(float *, (g) + 1), WW_ROWS_COLS(arg), NULL }
WW_KERNEL(softmax)
{
	IO(3);
	ww_cpu_softmax(b, arg, io_load, io_store, &c);
}
WW_KERNEL(log_softmax)
{
	IO(3);
	ww_cpu_log_softmax(b, arg, io_load, io_store, &c);
}
WW_KERNEL(layernorm)
{
	IO(3);
	ww_cpu_layernorm(b, arg, 1e-5f, io_load, io_store, &c);
}
WW_KERNEL(rmsnorm)
{
	IO(3);
	ww_cpu_rmsnorm(b, arg, 1e-5f, io_load, io_store, &c);
}
WW_KERNEL(groupnorm)
{
	IO(3);
	ww_cpu_groupnorm(b, arg, 3, 1e-5f, io_load, io_group, &c);
}
WW_KERNEL(scan)
{
	IO(3);
	ww_cpu_scan_row(b, arg, WW_OP_SUM, io_load, io_store, &c);
}
WW_KERNEL(prod)
{
	IO(3);
	ww_cpu_scan_row(b, arg, WW_OP_PROD, io_load, io_store, &c);
}
WW_KERNEL(maxima)
{
	IO(3);
	ww_cpu_scan_row(b, arg, WW_OP_MAX, io_load, io_store, &c);
}
WW_KERNEL(minima)
{
	IO(3);
	ww_cpu_scan_row(b, arg, WW_OP_MIN, io_load, io_store, &c);
}
WW_KERNEL(rowsum)
{
	IO(3);
	ww_cpu_row_reduce(b, arg, WW_OP_SUM, 0, io_load, io_done, &c);
}
WW_KERNEL(rowmax)
{
	IO(3);
	ww_cpu_row_reduce(b, arg, WW_OP_MAX, 1, io_load, io_done, &c);
}
WW_KERNEL(rowmin)
{
	IO(3);
	ww_cpu_row_reduce(b, arg, WW_OP_MIN, 1, io_load, io_done, &c);
}
WW_KERNEL(moments)
{
	IO(3);
	ww_cpu_row_moments(b, arg, io_load, io_done, &c);
}
WW_KERNEL(loss)
{
	IO(3);
	ww_cpu_cross_entropy(b, arg, WW_ARG(const int64_t *, 5), io_load, io_done, &c);
}
WW_KERNEL(map)
{
	const struct io c = { WW_ARG(const float *, 2), WW_ARG(float *, 3), 0, NULL };
	ww_cpu_map(b, arg, io_map, &c);
}
WW_KERNEL(nd)
{
	const struct io c = { WW_ARG(const float *, WW_ND_ARGS), WW_ARG(float *, WW_ND_ARGS + 1), WW_ARG(long long, 3),
		WW_ARG(const float *, WW_ND_ARGS + 2) };

	ww_cpu_nd(b, arg, io_nd, &c);
}
WW_KERNEL(turn) { ww_cpu_transpose(b, arg, ww_identity, NULL); }
WW_KERNEL(pick) { ww_cpu_gather_rows(b, arg, ww_identity, NULL); }
#define MID(g) const struct io c = { WW_ARG(const float *, g), WW_ARG(float *, (g) + 1), WW_ARG(long long, 2), NULL }
WW_KERNEL(midsum)
{
	MID(WW_REDUCE_MID_ARGS);
	ww_cpu_reduce_mid(b, arg, WW_OP_SUM, io_load, io_store, &c);
}
WW_KERNEL(midmax)
{
	MID(WW_REDUCE_MID_ARGS);
	ww_cpu_reduce_mid(b, arg, WW_OP_MAX, io_load, io_store, &c);
}
#define MIDSCAN(name, op) \
	WW_KERNEL(name) \
	{ \
		const struct io_mid c = { { WW_ARG(const float *, WW_SCAN_MID_ARGS), \
									  WW_ARG(float *, WW_SCAN_MID_ARGS + 1), WW_ARG(long long, 2), NULL }, \
			WW_ARG(long long, 1) }; \
		ww_cpu_scan_mid(b, arg, op, io_mid_load, io_mid_store, &c); \
	}
struct io_mid {
	struct io io;
	long long mid;
};
WW_FN ww_vf io_mid_load(const void *ctx, long long o, long long m, long long i, int n)
{
	const struct io_mid *c = ctx;

	return io_load(&c->io, o * c->mid + m, i, n);
}
WW_FN void io_mid_store(const void *ctx, long long o, long long m, long long i, ww_vf v, int n)
{
	const struct io_mid *c = ctx;

	io_store(&c->io, o * c->mid + m, i, v, n);
}
MIDSCAN(midscan, WW_OP_SUM)
MIDSCAN(midscanmax, WW_OP_MAX)
WW_KERNEL(channel)
{
	MID(WW_CHANNEL_ARGS);
	ww_cpu_channel_moments(b, arg, io_load, io_done, &c);
}
WW_KERNEL(part)
{
	const struct io c = { WW_ARG(const float *, WW_REDUCE_PART_ARGS), NULL, 0, NULL };
	ww_cpu_reduce_part(b, arg, WW_OP_SUM, io_load, &c);
}
WW_KERNEL(final)
{
	const struct io c = { NULL, WW_ARG(float *, WW_REDUCE_FINAL_ARGS), 0, NULL };
	ww_cpu_reduce_final(b, arg, WW_OP_SUM, io_done, &c);
}

/* Elements written to places: x the tensor that is written to, z what is written, at the places (one of a slice's). */
struct io_scatter {
	struct io io;
	const int64_t *at;
	long long len, list;
};
WW_FN ww_vf scatter_self(const void *ctx, long long o, long long m, long long i, int n)
{
	const struct io_scatter *c = ctx;

	return ww_vf_load(c->io.x + (o * c->len + m) * c->io.cols + i, n);
}
WW_FN ww_vi scatter_place(const void *ctx, long long o, long long j, long long i, int n)
{
	const struct io_scatter *c = ctx;

	return ww_vi_load_i64((const long long *)c->at + (o * c->list + j) * c->io.cols + i, n);
}
WW_FN int32_t scatter_slice(const void *ctx, long long o, long long j)
{
	const struct io_scatter *c = ctx;

	return (int32_t)c->at[o * c->list + j];
}
WW_FN ww_vf scatter_src(const void *ctx, long long o, long long j, long long i, int n)
{
	const struct io_scatter *c = ctx;

	return ww_vf_load(c->io.z + (o * c->list + j) * c->io.cols + i, n);
}
WW_FN void scatter_store(const void *ctx, long long o, long long m, long long i, ww_vf v, int n)
{
	const struct io_scatter *c = ctx;

	ww_vf_store(c->io.y + (o * c->len + m) * c->io.cols + i, v, n);
}
WW_FN ww_vf scatter_row_self(const void *ctx, long long r, long long i, int n)
{
	const struct io_scatter *c = ctx;

	return ww_vf_load(c->io.x + r * c->len + i, n);
}
WW_FN ww_vi scatter_row_place(const void *ctx, long long r, long long j, int n)
{
	const struct io_scatter *c = ctx;

	return ww_vi_load_i64((const long long *)c->at + r * c->list + j, n);
}
WW_FN ww_vf scatter_row_src(const void *ctx, long long r, long long j, int n)
{
	const struct io_scatter *c = ctx;

	return ww_vf_load(c->io.z + r * c->list + j, n);
}
WW_FN void scatter_row_store(const void *ctx, long long r, long long i, ww_vf v, int n)
{
	const struct io_scatter *c = ctx;

	ww_vf_store(c->io.y + r * c->len + i, v, n);
}
#define SCATTER(name, how) \
	WW_KERNEL(rows_##name) \
	{ \
		SCATTER_IO; \
		ww_cpu_scatter_rows(b, arg, how, c.len, c.list, scatter_row_self, scatter_row_place, scatter_row_src, \
			scatter_row_store, &c); \
	} \
	WW_KERNEL(mid_##name) \
	{ \
		SCATTER_IO; \
		ww_cpu_scatter_mid(b, arg, how, c.len, c.list, scatter_self, scatter_place, scatter_src, scatter_store, &c); \
	} \
	WW_KERNEL(slices_##name) \
	{ \
		SCATTER_IO; \
		ww_cpu_scatter_slices(b, arg, how, c.len, c.list, scatter_self, scatter_slice, scatter_src, scatter_store, &c); \
	}
#define SCATTER_ARG(type, i) WW_ARG(type, WW_SCATTER_ARGS + i)
#define SCATTER_IO \
	const struct io_scatter c = { { SCATTER_ARG(const float *, 0), SCATTER_ARG(float *, 1), WW_ARG(long long, 1), \
									  SCATTER_ARG(const float *, 2) }, \
		SCATTER_ARG(const int64_t *, 3), SCATTER_ARG(long long, 4), SCATTER_ARG(long long, 5) }
SCATTER(sum, WW_SCATTER_SUM)
SCATTER(prod, WW_SCATTER_PROD)
SCATTER(max, WW_SCATTER_MAX)
SCATTER(min, WW_SCATTER_MIN)
SCATTER(set, WW_SCATTER_SET)

const struct kernel_entry kernel_table[] = { { "softmax", softmax }, { "log_softmax", log_softmax },
	{ "layernorm", layernorm }, { "rmsnorm", rmsnorm }, { "groupnorm", groupnorm }, { "scan", scan }, { "prod", prod },
	{ "maxima", maxima }, { "minima", minima }, { "rowsum", rowsum }, { "rowmax", rowmax }, { "rowmin", rowmin },
	{ "moments", moments }, { "loss", loss }, { "map", map }, { "nd", nd }, { "turn", turn }, { "pick", pick },
	{ "midsum", midsum }, { "midmax", midmax }, { "midscan", midscan }, { "midscanmax", midscanmax },
	{ "channel", channel }, { "part", part }, { "final", final }, { "rows_sum", rows_sum }, { "mid_sum", mid_sum },
	{ "slices_sum", slices_sum }, { "rows_prod", rows_prod }, { "mid_prod", mid_prod }, { "slices_prod", slices_prod },
	{ "rows_max", rows_max }, { "mid_max", mid_max }, { "slices_max", slices_max }, { "rows_min", rows_min },
	{ "mid_min", mid_min }, { "slices_min", slices_min }, { "rows_set", rows_set }, { "mid_set", mid_set },
	{ "slices_set", slices_set }, { NULL, NULL } };

static int buffer(struct ww_plan *p, void *data)
{
	p->buf[p->bufs] = data;
	return p->bufs++;
}

/* Run a rows kernel; y has `out` floats. */
static float *run_rows(const char *name, float *x, long long rows, long long cols, int keep, long long out, void *extra)
{
	struct ww_plan *p = host_new(2);
	float *y = test_floats(out, 0);

	ww_recipe_cpu_rows(p, name, &(struct ww_cpu_rows){ .rows = rows, .cols = cols, .keep = keep, .per = 3 });
	ww_arg_buf(p, buffer(p, x), 0);
	ww_arg_buf(p, buffer(p, y), 0);
	if (extra)
		ww_arg_buf(p, buffer(p, extra), 0);
	test_run(p);
	host_free(p);
	return y;
}

static const long long widths[] = { 1, 2, 3, 7, 15, 16, 17, 31, 48, 63, 64, 65, 127, 129, 300, 1000, 4099 };
#define WIDTHS ((int)(sizeof(widths) / sizeof(widths[0])))

enum row_kind { SOFTMAX, LOG_SOFTMAX, LAYERNORM, RMSNORM, SCAN, PROD, MAXIMA, MINIMA };

static void row_reference(enum row_kind kind, const float *x, double *r, long long cols)
{
	double max = -INFINITY, sum = 0, sq = 0,
		   run = kind == PROD ? 1
		: kind == MAXIMA      ? -INFINITY
		: kind == MINIMA      ? INFINITY
							  : 0;

	for (long long i = 0; i < cols; i++) {
		max = fmax(max, (double)x[i]);
		sum += (double)x[i];
		sq += (double)x[i] * (double)x[i];
	}
	if (kind == SOFTMAX || kind == LOG_SOFTMAX) {
		sum = 0;
		for (long long i = 0; i < cols; i++)
			sum += exp((double)x[i] - max);
	} else if (kind == LAYERNORM) {
		sum /= (double)cols;
		sq = 0;
		for (long long i = 0; i < cols; i++)
			sq += ((double)x[i] - sum) * ((double)x[i] - sum);
	}
	for (long long i = 0; i < cols; i++) {
		run = kind == PROD   ? run * (double)x[i]
			: kind == MAXIMA ? fmax(run, (double)x[i])
			: kind == MINIMA ? fmin(run, (double)x[i])
							 : run + (double)x[i];
		r[i] = kind == SOFTMAX    ? exp((double)x[i] - max) / sum
			: kind == LOG_SOFTMAX ? (double)x[i] - max - log(sum)
			: kind == LAYERNORM   ? ((double)x[i] - sum) / sqrt(sq / (double)cols + 1e-5)
			: kind == RMSNORM     ? (double)x[i] / sqrt(sq / (double)cols + 1e-5)
								  : run;
	}
}

static void check_rows(const char *name, enum row_kind kind, int keep, float scale, float shift, double tol)
{
	for (int w = 0; w < WIDTHS; w++) {
		const long long cols = widths[w], rows = 11;
		float *x = test_floats(rows * cols, 1), *y;
		double *r = malloc((size_t)(rows * cols) * sizeof(*r));

		for (long long i = 0; i < rows * cols; i++)
			x[i] = x[i] * scale + shift;
		y = run_rows(name, x, rows, cols, keep, rows * cols, NULL);
		for (long long i = 0; i < rows; i++)
			row_reference(kind, x + i * cols, r + i * cols, cols);
		test_close(y, r, rows * cols, tol, name);
		free(x);
		free(y);
		free(r);
	}
}

static void test_rows(void **state)
{
	(void)state;
	check_rows("softmax", SOFTMAX, 2, 5.0f, 0.0f, 5e-6);
	check_rows("softmax", SOFTMAX, 2, 90.0f, 100.0f, 5e-5);
	check_rows("log_softmax", LOG_SOFTMAX, 1, 5.0f, 3.0f, 2e-6);
	check_rows("layernorm", LAYERNORM, 1, 2.0f, 3.0f, 3e-5);
	check_rows("rmsnorm", RMSNORM, 1, 2.0f, 3.0f, 2e-6);
	check_rows("scan", SCAN, 0, 1.0f, 3.0f, 2e-6);
	check_rows("prod", PROD, 0, 0.01f, 1.0f, 2e-4);
	check_rows("maxima", MAXIMA, 0, 3.0f, -50.0f, 0);
	check_rows("minima", MINIMA, 0, 3.0f, 50.0f, 0);
}

/* What is left of the largest of few numbers, 300 and then 289, is less than half a unit of it. */
static void test_log_softmax_of_one_large(void **state)
{
	enum { COLS = 37 };
	float x[COLS], *y;

	(void)state;
	for (int i = 0; i < COLS; i++)
		x[i] = i == 5 ? 300 : 289;
	y = run_rows("log_softmax", x, 1, COLS, 1, COLS, NULL);
	assert_true(fabs((double)y[5] / -log1p((COLS - 1) * exp(-11)) - 1) <= 1e-3);
	assert_true(fabsf(y[6] + 11) <= 1e-3f);
	free(y);
}

/* A NaN in a row of running maxima stays, from its place on. */
static void test_running_nan(void **state)
{
	static const char *const name[] = { "maxima", "minima" };

	(void)state;
	for (int k = 0; k < 2; k++) {
		float *x = test_floats(3 * 70, 1), *y;

		x[70 + 21] = NAN;
		y = run_rows(name[k], x, 3, 70, 0, 3 * 70, NULL);
		for (int i = 0; i < 3 * 70; i++)
			assert_int_equal(isnan(y[i]) != 0, i >= 70 + 21 && i < 2 * 70);
		free(x);
		free(y);
	}
}

/* Lane i of vectors across: what the lanes of vector i make, NaN as in the other reductions. */
static void test_across(void **state)
{
	ww_vf v[WW_VL];
	float *x = test_floats(WW_VL * WW_VL, 1);

	(void)state;
	x[3 * WW_VL + 1] = NAN;
	memcpy(v, x, sizeof(v));
	for (int op = WW_OP_SUM; op <= WW_OP_PROD; op++) {
		const ww_vf t = ww_vf_across((enum ww_op)op, v);

		for (int i = 0; i < WW_VL; i++) {
			const float want = (float)ww_op_lanes((enum ww_op)op, v[i]);

			assert_true(i == 3 ? isnan(t[i]) : fabsf(t[i] - want) <= 1e-5f * (1 + fabsf(want)));
		}
	}
	free(x);
}

static void test_row_reductions(void **state)
{
	(void)state;
	for (int w = 0; w < WIDTHS; w++) {
		const long long cols = widths[w], rows = 10;
		float *x = test_floats(rows * cols, 1);
		float *sum = run_rows("rowsum", x, rows, cols, 0, 2 * rows, NULL),
			  *mom = run_rows("moments", x, rows, cols, 0, 2 * rows, NULL);
		float *max = run_rows("rowmax", x, rows, cols, 0, 2 * rows, NULL),
			  *min = run_rows("rowmin", x, rows, cols, 0, 2 * rows, NULL);

		for (long long r = 0; r < rows; r++) {
			double s = 0, m2 = 0;
			long long hi = 0, lo = 0;

			for (long long i = 0; i < cols; i++) {
				s += (double)x[r * cols + i];
				hi = x[r * cols + i] > x[r * cols + hi] ? i : hi;
				lo = x[r * cols + i] < x[r * cols + lo] ? i : lo;
			}
			for (long long i = 0; i < cols; i++)
				m2 += pow((double)x[r * cols + i] - s / (double)cols, 2);
			assert_true(fabs((double)sum[2 * r] - s) <= 1e-6 * sqrt((double)cols) + 1e-6 * fabs(s));
			assert_true(max[2 * r] == x[r * cols + hi] && (long long)max[2 * r + 1] == hi);
			assert_true(min[2 * r] == x[r * cols + lo] && (long long)min[2 * r + 1] == lo);
			assert_true(fabs((double)mom[2 * r] - s / (double)cols) <= 1e-6);
			assert_true(fabs((double)mom[2 * r + 1] - m2) <= 1e-5 * m2 + 1e-6);
		}
		free(x);
		free(sum);
		free(mom);
		free(max);
		free(min);
	}
}

static void test_nan_and_infinity(void **state)
{
	float *x = test_floats(3 * 100, 1), *y;

	(void)state;
	x[150] = NAN;
	x[220] = -INFINITY;
	y = run_rows("rowmax", x, 3, 100, 0, 6, NULL);
	assert_true(!isnan(y[0]) && isnan(y[2]) && y[3] == 50.0f && !isnan(y[4]));
	free(y);
	y = run_rows("softmax", x, 3, 100, 2, 300, NULL);
	assert_true(!isnan(y[0]) && isnan(y[100]) && y[220] == 0.0f && !isnan(y[299]));
	free(y);
	free(x);
}

static float scattered(const char *how, float a, float v)
{
	return !strcmp(how, "sum") ? a + v
		: !strcmp(how, "prod") ? a * v
		: !strcmp(how, "max")  ? (isnan(a) || a > v ? a : v)
		: !strcmp(how, "min")  ? (isnan(a) || a < v ? a : v)
							   : v;
}

/* form: "rows" (inner 1), "mid" or "slices", whose places are one for all of inner. */
static void check_scatter(
	const char *form, const char *how, long long outer, long long len, long long inner, long long list)
{
	const int slices = !strcmp(form, "slices"), rows = !strcmp(form, "rows");
	const long long n_at = outer * list * (slices ? 1 : inner);
	float *x = test_floats(outer * len * inner, 1), *z = test_floats(outer * list * inner, 1),
		  *y = test_floats(outer * len * inner, 0), *want = test_floats(outer * len * inner, 0);
	int64_t *at = malloc((size_t)(n_at + 1) * sizeof(*at));
	struct ww_plan *p = host_new(2);
	const struct ww_cpu_scatter r = {
		.outer = outer, .len = len, .inner = inner, .list = list, .per = rows ? 3 : 0, .cols = inner > 40 ? 32 : 0
	};
	char name[32];

	for (long long i = 0; i < n_at; i++) /* from the end, too, and some of them outside */
		at[i] = i % 11 == 3 ? len + i : i % 13 == 5 ? -len - 1 : i * 7919 % (2 * len) - len;
	z[outer * list * inner / 2] = NAN;
	memcpy(want, x, (size_t)(outer * len * inner) * sizeof(*x));
	for (long long o = 0; o < outer; o++)
		for (long long j = 0; j < list; j++)
			for (long long i = 0; i < inner; i++) {
				long long m = at[slices ? o * list + j : (o * list + j) * inner + i];

				m += m < 0 ? len : 0;
				if (m >= 0 && m < len)
					want[(o * len + m) * inner + i] = scattered(
						how, want[(o * len + m) * inner + i], z[(o * list + j) * inner + i]);
			}
	snprintf(name, sizeof(name), "%s_%s", form, how);
	if (rows)
		ww_recipe_cpu_scatter_rows(p, name, &r);
	else
		ww_recipe_cpu_scatter(p, name, &r);
	ww_arg_buf(p, buffer(p, x), 0);
	ww_arg_buf(p, buffer(p, y), 0);
	ww_arg_buf(p, buffer(p, z), 0);
	ww_arg_buf(p, buffer(p, at), 0);
	ww_arg_i64(p, len);
	ww_arg_i64(p, list);
	test_run(p);
	host_free(p);
	for (long long i = 0; i < outer * len * inner; i++)
		if (y[i] != want[i] && !(isnan(y[i]) && isnan(want[i])))
			fail_msg("%s of %lld x %lld x %lld, %lld: element %lld is %g, not %g", name, outer, len, inner, list, i,
				(double)y[i], (double)want[i]);
	free(x);
	free(y);
	free(z);
	free(at);
	free(want);
}

/* Elements come in their order, so that every result is the scalar loop's to the bit. */
static void test_scatter(void **state)
{
	static const char *const how[] = { "sum", "prod", "max", "min", "set" };
	static const long long sizes[][3] = { { 1, 1, 1 }, { 8, 1, 8 }, { 16, 3, 40 }, { 33, 16, 7 }, { 5, 65, 100 },
		{ 100, 200, 31 }, { 4099, 20, 300 } };

	(void)state;
	for (size_t h = 0; h < sizeof(how) / sizeof(how[0]); h++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			check_scatter("rows", how[h], 11, sizes[i][0], 1, sizes[i][2]);
			check_scatter("mid", how[h], 2, sizes[i][0], sizes[i][1], sizes[i][2]);
			check_scatter("slices", how[h], 2, sizes[i][0], sizes[i][1], sizes[i][2]);
		}
}

static void test_cross_entropy(void **state)
{
	(void)state;
	for (int w = 0; w < WIDTHS; w++) {
		const long long cols = widths[w], rows = 9;
		float *x = test_floats(rows * cols, 1), *y;
		int64_t *t = malloc((size_t)rows * sizeof(*t));
		double *r = malloc((size_t)(2 * rows) * sizeof(*r));

		for (long long i = 0; i < rows * cols; i++)
			x[i] = x[i] * 20.0f + 3.0f;
		for (long long i = 0; i < rows; i++) {
			double max = -INFINITY, s = 0;

			t[i] = i == 4 ? -100 : (i * 7919) % cols;
			for (long long j = 0; j < cols; j++)
				max = fmax(max, (double)x[i * cols + j]);
			for (long long j = 0; j < cols; j++)
				s += exp((double)x[i * cols + j] - max);
			r[2 * i + 1] = max + log(s);
			r[2 * i] = t[i] < 0 ? 0 : r[2 * i + 1] - (double)x[i * cols + t[i]];
		}
		y = run_rows("loss", x, rows, cols, 0, 2 * rows, t);
		test_close(y, r, 2 * rows, 1e-6, "cross_entropy");
		free(x);
		free(y);
		free(t);
		free(r);
	}
}

static void test_groupnorm(void **state)
{
	const long long rows = 5, cols = 3 * 37;
	float *x = test_floats(rows * cols, 1), *y = run_rows("groupnorm", x, rows, cols, 1, rows * cols, NULL);
	double r[5 * 3 * 37];

	(void)state;
	for (long long i = 0; i < rows; i++)
		row_reference(LAYERNORM, x + i * cols, r + i * cols, cols);
	for (long long i = 0; i < rows * cols; i++)
		r[i] += (double)(i % cols / 37);
	test_close(y, r, rows * cols, 1e-5, "groupnorm");
	free(x);
	free(y);
}

static void test_maps(void **state)
{
	(void)state;
	for (int w = 0; w < WIDTHS; w++) {
		const long long n = widths[w];
		struct ww_plan *p = host_new(2);
		float *x = test_floats(2 * n, 1), *z = test_floats(3, 1), *y = test_floats(2 * n, 0),
			  *t = test_floats(6 * n, 0);

		ww_recipe_cpu_map(p, "map", &(struct ww_cpu_map){ .total = 2 * n, .tile = 256 });
		ww_arg_buf(p, buffer(p, x), 0);
		ww_arg_buf(p, buffer(p, y), 0);
		ww_recipe_cpu_nd(p, "nd", &(struct ww_cpu_nd){ .size = { 1, 2, 3, n } });
		ww_arg_buf(p, buffer(p, x), 0);
		ww_arg_buf(p, buffer(p, t), 0);
		ww_arg_buf(p, buffer(p, z), 0);
		test_run(p);
		for (long long i = 0; i < 2 * n; i++)
			assert_true(fabsf(y[i] - (2.0f * x[i] + 1.0f)) <= 3e-7f);
		for (long long i = 0; i < 6 * n; i++)
			assert_true(t[i] == x[i / (3 * n) * n + i % n] + z[i / n % 3]);
		host_free(p);
		free(x);
		free(y);
		free(z);
		free(t);
	}
}

static void test_transpose_and_gather(void **state)
{
	(void)state;
	for (int w = 0; w < WIDTHS - 1; w++) {
		const long long rows = widths[w], cols = widths[(w * 5 + 3) % (WIDTHS - 1)];
		struct ww_plan *p = host_new(2);
		float *x = test_floats(2 * rows * cols, 1), *y = test_floats(2 * rows * cols, 0), *z = test_floats(6 * cols, 0);
		int64_t index[6] = { 0, rows - 1, rows / 2, 2 * rows - 1, -1, 2 * rows };

		ww_recipe_cpu_transpose(p, "turn",
			&(struct ww_cpu_transpose){ .batch = 2,
				.rows = rows,
				.cols = cols,
				.x_buf = buffer(p, x),
				.y_buf = buffer(p, y),
				.x_stride = cols,
				.x_batch_stride = rows * cols,
				.y_stride = rows,
				.y_batch_stride = rows * cols });
		ww_recipe_cpu_gather(p, "pick",
			&(struct ww_cpu_gather){ .rows = 6,
				.cols = cols,
				.table_rows = 2 * rows,
				.index_buf = buffer(p, index),
				.table_buf = buffer(p, x),
				.y_buf = buffer(p, z) });
		test_run(p);
		for (long long i = 0; i < 2 * rows * cols; i++)
			assert_true(y[i / (rows * cols) * rows * cols + i % cols * rows + i / cols % rows] == x[i]);
		for (long long i = 0; i < 4 * cols; i++)
			assert_true(z[i] == x[index[i / cols] * cols + i % cols]);
		assert_true(isnan(z[4 * cols]) && isnan(z[6 * cols - 1]));
		host_free(p);
		free(x);
		free(y);
		free(z);
	}
}

static void check_mid(const char *name, long long outer, long long mid, long long inner, long long cols)
{
	const int scan_it = strstr(name, "scan") != NULL, max_it = strstr(name, "max") != NULL;
	const long long total = outer * mid * inner, out = scan_it ? total : outer * inner;
	struct ww_plan *p = host_new(2);
	float *x = test_floats(total, 1), *y = test_floats(out, 0);
	double *r = malloc((size_t)out * sizeof(*r));

	ww_recipe_cpu_mid(p, name, &(struct ww_cpu_mid){ .outer = outer, .mid = mid, .inner = inner, .cols = cols });
	ww_arg_buf(p, buffer(p, x), 0);
	ww_arg_buf(p, buffer(p, y), 0);
	test_run(p);
	for (long long o = 0; o < outer; o++)
		for (long long i = 0; i < inner; i++) {
			double s = max_it ? -INFINITY : 0;

			for (long long m = 0; m < mid; m++) {
				const double v = (double)x[(o * mid + m) * inner + i];

				s = max_it ? fmax(s, v) : s + v;
				r[scan_it ? (o * mid + m) * inner + i : o * inner + i] = s;
			}
		}
	test_close(y, r, out, 2e-6, name);
	host_free(p);
	free(x);
	free(y);
	free(r);
}

static void test_mid(void **state)
{
	static const char *const name[] = { "midsum", "midmax", "midscan", "midscanmax" };

	(void)state;
	for (int k = 0; k < 4; k++) {
		check_mid(name[k], 1, 1, 1, 64);
		check_mid(name[k], 3, 7, 5, 64);
		check_mid(name[k], 2, 300, 65, 64);
		check_mid(name[k], 1, 129, 200, 64);
		check_mid(name[k], 2, 70, 1300, 1024);
		check_mid(name[k], 1, 9, 641, 0);
	}
}

static void test_full_and_channel(void **state)
{
	const long long n = 100003;
	const struct ww_cpu_reduce red = { .total = n, .tile = 1000 };
	struct ww_plan *p = host_new(2);
	float *x = test_floats(n, 1), y[2] = { NAN, NAN }, m[2 * 7];
	double s = 0;
	int part_buf;

	(void)state;
	part_buf = ww_recipe_cpu_reduce_part(p, "part", &red);
	ww_arg_buf(p, buffer(p, x), 0);
	ww_recipe_cpu_reduce_final(p, "final", &red, part_buf);
	ww_arg_buf(p, buffer(p, y), 0);
	ww_recipe_cpu_channels(p, "channel", &(struct ww_cpu_channels){ .outer = 4, .chans = 7, .inner = 333 });
	ww_arg_buf(p, buffer(p, x), 0);
	ww_arg_buf(p, buffer(p, m), 0);
	test_run(p);
	for (long long i = 0; i < n; i++)
		s += (double)x[i];
	assert_true(fabs((double)y[0] - s) <= 1e-4);
	for (int c = 0; c < 7; c++) {
		double mean = 0, m2 = 0;

		for (int pass = 0; pass < 2; pass++)
			for (int o = 0; o < 4; o++)
				for (int i = 0; i < 333; i++) {
					const double v = (double)x[(o * 7 + c) * 333 + i];

					if (pass)
						m2 += (v - mean) * (v - mean);
					else
						mean += v / (4 * 333);
				}
		assert_true(fabs((double)m[2 * c] - mean) <= 1e-6 && fabs((double)m[2 * c + 1] - m2) <= 1e-5 * m2);
	}
	host_free(p);
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_log_softmax_of_one_large),
		cmocka_unit_test(test_across), cmocka_unit_test(test_running_nan), cmocka_unit_test(test_row_reductions),
		cmocka_unit_test(test_nan_and_infinity), cmocka_unit_test(test_scatter), cmocka_unit_test(test_cross_entropy),
		cmocka_unit_test(test_groupnorm), cmocka_unit_test(test_maps), cmocka_unit_test(test_transpose_and_gather),
		cmocka_unit_test(test_mid), cmocka_unit_test(test_full_and_channel) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
