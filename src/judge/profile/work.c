/* work.c - bytes and flops of plan nodes, the roofline, occupancy: arithmetic without any measuring (work.h).
 *
 * Three numbers decide what a node could still gain: what it moves, what it computes, what the device reaches.  The
 * first is known from the plan (the buffers that a launch names), the second from the graph and from library nodes, the
 * third was measured on this device by a copy and by PyTorch's matrix products; data sheets are not asked. */
#include "judge/profile/work.h"
#include "base/dtype.h"
#include "base/target.h"

#include <math.h>
#include <string.h>

/* At these shares of what the device reaches, a resource is what limits. */
static const double BOUND_SHARE = 0.6;
/* Beyond this share of a peak another unit must have done the work. */
static const double PEAK_MARGIN = 1.05;
enum { MAX_NAMED = WW_MAX_ARGS, BLOCKS_PER_SM = 32, REGISTER_UNIT = 256, SHARED_RESERVED_BYTES = 1024 };

/* ---- Bytes and flops --------------------------------------------------------------------------------------------- */

struct named {
	int buf[MAX_NAMED];
	double bytes[MAX_NAMED];
	int n;
};

static void name_buffer(struct named *s, int buf, double bytes)
{
	int i = 0;
	while (i < s->n && s->buf[i] != buf)
		i++;
	if (i == s->n && s->n < MAX_NAMED) {
		s->buf[s->n] = buf;
		s->bytes[s->n++] = 0;
	}
	if (i < s->n && bytes > s->bytes[i])
		s->bytes[i] = bytes;
}

static double launch_bytes(const struct ww_image *m, const struct ww_image_launch *l)
{
	const struct ww_image_arg *a = ww_image_args(m) + l->first_arg;
	struct named s = { .n = 0 };
	double sum = 0;
	for (uint32_t i = 0; i < l->n_args; i++) {
		if (a[i].kind == WW_ARG_BUF) {
			name_buffer(&s, a[i].buf, (double)ww_image_buffers(m)[a[i].buf].bytes - (double)a[i].i);
		} else if (a[i].kind == WW_ARG_TMAP) {
			const struct ww_tmap *t = &ww_image_tmaps(m)[a[i].buf].t;
			double elements = 1, whole = (double)ww_image_buffers(m)[t->buf].bytes;
			for (int d = 0; d < t->rank; d++)
				elements *= (double)t->size[d];
			name_buffer(&s, t->buf, fmin(whole, elements * ww_dtype_bytes(t->dtype)));
		}
	}
	for (int i = 0; i < s.n; i++)
		sum += s.bytes[i];
	return sum;
}

static double matrix_bytes(const struct ww_mat *x, long long rows, long long cols, long long batch)
{
	return (double)rows * (double)cols * ww_dtype_bytes(x->dtype) * (x->batch_stride ? (double)batch : 1);
}

static struct ww_work gemm_work(const struct ww_gemm *g)
{
	long long batch = g->batch > 0 ? g->batch : 1;
	struct ww_work w = { .flops = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)batch };
	w.bytes = matrix_bytes(&g->a, g->m, g->k, batch) + matrix_bytes(&g->b, g->k, g->n, batch) +
		matrix_bytes(&g->d, g->m, g->n, batch);
	if (g->beta != 0)
		w.bytes += matrix_bytes(&g->c, g->m, g->n, batch);
	if (ww_has_bias(g->epilogue))
		w.bytes += (double)g->n * ww_dtype_bytes(g->d.dtype);
	return w;
}

static struct ww_work conv_work(const struct ww_conv *c)
{
	double in = 1, out = 1, volume = 1, item = ww_dtype_bytes(c->dtype), groups = c->groups > 0 ? c->groups : 1;
	for (int i = 0; i < c->nd; i++) {
		in *= (double)c->in[i];
		out *= (double)c->out[i];
		volume *= (double)c->kernel[i];
	}
	double x = (double)c->n * (double)c->c * in, y = (double)c->n * (double)c->k * out;
	double w = (double)c->c * (double)c->k / groups * volume;
	struct ww_work r = { .bytes = (x + y + w + (ww_has_bias(c->epilogue) ? (double)c->k : 0)) * item };
	/* Each output element sums c/groups * volume products; transposed, each input element feeds k/groups * volume. */
	r.flops = 2 * volume / groups * (c->transposed ? x * (double)c->k : y * (double)c->c);
	return r;
}

/* The scratch that is handed over. */
static double pytorch_bytes(const struct ww_image *m, const struct ww_image_pytorch *t)
{
	double sum = 0;
	for (uint32_t i = 0; i < t->n_args; i++)
		sum += (double)ww_image_buffers(m)[ww_image_args(m)[t->first_arg + i].buf].bytes;
	return sum;
}

struct ww_work ww_work_of_node(const struct ww_image *m, uint32_t node)
{
	const struct ww_image_node *d = &ww_image_nodes(m)[node];
	switch (d->kind) {
	case WW_NODE_LAUNCH: return (struct ww_work){ launch_bytes(m, &d->launch), NAN };
	case WW_NODE_GEMM: return gemm_work(&d->gemm);
	case WW_NODE_CONV: return conv_work(&d->conv);
	case WW_NODE_PYTORCH: return (struct ww_work){ pytorch_bytes(m, &d->pytorch), NAN };
	case WW_NODE_MEMSET: return (struct ww_work){ (double)d->set.bytes, 0 };
	default: return (struct ww_work){ 2 * (double)d->copy.bytes, 0 };
	}
}

void ww_work_flops(const struct ww_image *m, double graph_flops, double *flops)
{
	uint32_t launches = 0, last = 0;
	double rest = graph_flops;
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		flops[i] = ww_work_of_node(m, i).flops;
		if (ww_image_nodes(m)[i].kind == WW_NODE_LAUNCH) {
			launches++;
			last = i;
		} else if (isfinite(flops[i])) {
			rest -= flops[i];
		}
	}
	if (launches == 1 && rest >= 0)
		flops[last] = rest;
}

/* ---- The roofline ------------------------------------------------------------------------------------------------ */

static double share(double achieved, double peak) { return peak > 0 && isfinite(achieved) ? achieved / peak : NAN; }

/* The peaks that work on this type could run at, lowest first. */
static void choose_peak(struct ww_position *p, const struct ww_roof *roof, int dtype, int math)
{
	const struct ww_ref_peaks *k = &roof->peaks;
	const struct {
		const char *name;
		double flops;
		int fits;
	} rows[] = { { "fp32", k->fp32_flops, math == WW_MATH_FP32 || (math < 0 && dtype != WW_F16 && dtype != WW_BF16) },
		{ "tf32", k->tf32_flops, math == WW_MATH_TF32 || (math < 0 && dtype == WW_F32) },
		{ "bf16", k->bf16_flops, math == WW_MATH_BF16 || (math < 0 && dtype == WW_BF16) },
		{ "fp16", k->fp16_flops, math == WW_MATH_FP16 || (math < 0 && (dtype == WW_F16 || dtype == WW_F32)) } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows) && isfinite(p->flops_per_s); i++) {
		if (!rows[i].fits || rows[i].flops <= 0)
			continue;
		p->peak = rows[i].name;
		p->of_compute = share(p->flops_per_s, rows[i].flops);
		if (p->of_compute <= PEAK_MARGIN)
			return;
	}
}

void ww_position_set(
	struct ww_position *p, const struct ww_roof *roof, const struct ww_work *w, double us, int dtype, int math)
{
	*p = (struct ww_position){ .of_compute = NAN, .bound = "none" };
	int timed = us > 0;
	p->bytes_per_s = timed ? w->bytes / (us * 1e-6) : NAN;
	p->flops_per_s = timed ? w->flops / (us * 1e-6) : NAN;
	p->intensity = w->bytes > 0 ? w->flops / w->bytes : NAN;
	p->of_memory = share(p->bytes_per_s, roof->bytes_per_s);
	choose_peak(p, roof, dtype, math);
	p->of_roofline = fmax(p->of_memory, p->of_compute); /* fmax passes NAN over */
	if (!timed || (w->bytes <= 0 && !(w->flops > 0)))
		return;
	if (!(p->of_roofline >= BOUND_SHARE))
		p->bound = "latency";
	else
		p->bound = p->of_compute > p->of_memory ? "compute" : "memory";
}

void ww_profile_add_amount(struct ww_str *s, double v, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P" };
	size_t i = 0;
	while (fabs(v) >= 1000 && i + 1 < WW_ARRAY_LEN(prefix)) {
		v /= 1000;
		i++;
	}
	ww_str_addf(s, "%.3g %s%s", v, prefix[i], unit);
}

json_t *ww_profile_num(double v) { return isfinite(v) ? json_real(v) : json_null(); }

json_t *ww_profile_device(const struct ww_roof *roof, const struct ww_device *d, const char *name)
{
	json_t *o = json_pack("{s:s, s:s, s:f}", "name", name, "target", ww_target_name(roof->target), "memory_bytes_per_s",
		roof->bytes_per_s);
	const struct {
		const char *name;
		double v;
	} peaks[] = { { "fp32_flops", roof->peaks.fp32_flops }, { "tf32_flops", roof->peaks.tf32_flops },
		{ "fp16_flops", roof->peaks.fp16_flops }, { "bf16_flops", roof->peaks.bf16_flops } };
	for (size_t i = 0; i < WW_ARRAY_LEN(peaks); i++)
		json_object_set_new(o, peaks[i].name, ww_profile_num(peaks[i].v > 0 ? peaks[i].v : NAN));
	json_object_set_new(o, "cache_bytes", json_integer(roof->target == WW_TARGET_CPU ? d->l3_bytes : d->l2_bytes));
	if (roof->target == WW_TARGET_CPU)
		json_object_set_new(o, "threads", json_integer(roof->threads));
	else
		json_object_set_new(o, "sm_count", json_integer(d->sm_count));
	return o;
}

void ww_profile_add_position(json_t *o, const struct ww_work *w, const struct ww_position *p)
{
	const struct {
		const char *name;
		double v;
	} rows[] = { { "bytes", w->bytes }, { "flops", w->flops }, { "bytes_per_s", p->bytes_per_s },
		{ "flops_per_s", p->flops_per_s }, { "intensity", p->intensity }, { "of_memory", p->of_memory },
		{ "of_compute", p->of_compute }, { "of_roofline", p->of_roofline } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		json_object_set_new(o, rows[i].name, ww_profile_num(rows[i].v));
	json_object_set_new(o, "peak", p->peak ? json_string(p->peak) : json_null());
	json_object_set_new(o, "bound", json_string(p->bound));
}

/* ---- Occupancy --------------------------------------------------------------------------------------------------- */

void ww_occupancy_set(struct ww_occupancy *o, const struct ww_device *d, const struct ww_image_launch *l, int registers,
	int static_shared_bytes, int blocks_per_sm)
{
	long long threads = (long long)l->block[0] * l->block[1] * l->block[2], warps = (threads + 31) / 32;
	double blocks = (double)l->grid[0] * (double)l->grid[1] * (double)l->grid[2];

	*o = (struct ww_occupancy){ NAN, NULL, NAN };
	if (blocks_per_sm < 1 || threads < 1 || d->max_threads_per_sm < 1 || d->sm_count < 1)
		return;
	o->share = fmin(1, (double)(blocks_per_sm * warps * 32) / d->max_threads_per_sm);
	o->waves = blocks / ((double)blocks_per_sm * d->sm_count);
	if (registers < 0 || static_shared_bytes < 0 || d->regs_per_sm < 1)
		return;
	long long unit = (long long)(registers > 0 ? registers : 1) * 32;
	long long by_registers = d->regs_per_sm / ((unit + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT) / warps;
	long long by_shared = d->shared_per_sm_bytes / (l->shared_bytes + static_shared_bytes + SHARED_RESERVED_BYTES);
	long long by_threads = d->max_threads_per_sm / (warps * 32);
	long long least = ww_min(ww_min(by_registers, by_shared), ww_min(by_threads, BLOCKS_PER_SM));
	o->limited_by = least == by_threads ? "threads"
		: least == by_registers         ? "registers"
		: least == by_shared            ? "shared memory"
										: "blocks";
}
