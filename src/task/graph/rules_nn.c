/* rules_nn.c - rules of convolutions, pools, attention, norms, recurrent layers, resampling and distances. */
#include "task/graph/rules.h"

#include <string.h>

/* ---- Convolutions and pools -------------------------------------------------------------------------------------- */

static int64_t windows(int64_t in, int64_t k, int64_t stride, int64_t pad, int64_t dil)
{
	const int64_t room = in + 2 * pad - dil * (k - 1) - 1;
	return room < 0 ? 0 : room / stride + 1;
}

/* variant: TRANSPOSED; GENERAL has an argument for that. */
enum { FORWARD, TRANSPOSED, GENERAL };

struct conv {
	int nd, transposed;
	int64_t k[3], stride[3], pad[3], dil[3], more[3], groups;
	const char *by_name; /* padding "same" or "valid" */
};

static int read_conv(struct call *c, struct conv *v, const struct shape *w)
{
	v->nd = w->rank - 2;
	v->transposed = c->row->variant == TRANSPOSED || (c->row->variant == GENERAL && int_of(c, "transposed", 0));
	v->groups = int_of(c, "groups", 1);
	v->by_name = json_string_value(given(c, "padding"));
	if (v->nd < 1 || v->nd > 3)
		return wrong(c, "its filter has %d dimensions", w->rank);
	for (int d = 0; d < v->nd; d++) {
		v->k[d] = w->size[2 + d];
		v->pad[d] = 0;
		if (v->k[d] < 1 || v->k[d] > INT32_MAX)
			return wrong(c, "its filter has %lld elements along dimension %d", (long long)v->k[d], 2 + d);
	}
	if (v->by_name && strcmp(v->by_name, "same") && strcmp(v->by_name, "valid"))
		return wrong(c, "its argument padding is \"%.20s\"", v->by_name);
	if (v->groups < 1 || w->size[0] % v->groups)
		return wrong(c, "it has %lld groups of %lld filters", (long long)v->groups, (long long)w->size[0]);
	return each(c, "stride", v->nd, 1, 1, v->stride) && each(c, "dilation", v->nd, 1, 1, v->dil) &&
		each(c, "output_padding", v->nd, 0, 0, v->more) && (v->by_name || each(c, "padding", v->nd, 0, 0, v->pad));
}

int conv_rule(struct call *c)
{
	struct shape x, w, want;
	struct conv v;
	if (!tensor(c, "input", &x) || !tensor(c, "weight", &w) || !read_conv(c, &v, &w) ||
		!ranks(c, "input", &x, v.nd + 1, v.nd + 2))
		return 0;
	const int unbatched = x.rank == v.nd + 1;
	if (unbatched)
		insert(&x, 0, 1);
	const int64_t of = v.transposed ? w.size[0] : w.size[1] * v.groups,
				  to = v.transposed ? w.size[1] * v.groups : w.size[0];
	if (x.size[1] != of)
		return wrong(c, "its operand has %lld channels, its filter takes %lld", (long long)x.size[1], (long long)of);
	want = x;
	want.size[1] = to;
	for (int d = 0; d < v.nd; d++) {
		const int64_t in = x.size[2 + d];
		int64_t *out = &want.size[2 + d];
		if (v.more[d] >= v.stride[d] && v.more[d] >= v.dil[d] && v.transposed)
			return wrong(c, "its argument output_padding is %lld", (long long)v.more[d]);
		if (v.by_name && !strcmp(v.by_name, "same"))
			*out = v.stride[d] == 1 ? in : -1;
		else if (v.transposed)
			*out = (in - 1) * v.stride[d] - 2 * v.pad[d] + v.dil[d] * (v.k[d] - 1) + v.more[d] + 1;
		else
			*out = windows(in, v.k[d], v.stride[d], v.pad[d], v.dil[d]);
		if (*out < 0 || (*out == 0 && in))
			return wrong(c, "its filter does not fit its operand along dimension %d", 2 + d);
	}
	if (unbatched)
		drop(&want, 0);
	return vector_of(c, "bias", to) && gives(c, 0, &want);
}

/* variant: spatial dimensions. */
int pool_rule(struct call *c)
{
	const int nd = c->row->variant, up = (int)int_of(c, "ceil_mode", 0);
	struct shape s;
	int64_t k[3], stride[3], pad[3], dil[3];
	if (!tensor(c, "self", &s) || !ranks(c, "self", &s, nd + 1, nd + 2) ||
		!each(c, "kernel_size", nd, REQUIRED, 1, k) || !each(c, "stride", nd, 0, 1, stride) ||
		!each(c, "padding", nd, 0, 0, pad) || !each(c, "dilation", nd, 1, 1, dil))
		return 0;
	if (given(c, "divisor_override") && !int_of(c, "divisor_override", 1))
		return wrong(c, "its argument divisor_override is 0");
	for (int d = 0; d < nd; d++) {
		int64_t *size = &s.size[s.rank - nd + d], in = *size, out;
		const int64_t step = stride[d] ? stride[d] : k[d], room = in + 2 * pad[d] - dil[d] * (k[d] - 1) - 1;
		if (2 * pad[d] > dil[d] * (k[d] - 1) + 1)
			return wrong(c, "its padding of %lld is more than half its window", (long long)pad[d]);
		out = windows(in, k[d], step, pad[d], dil[d]);
		if (up && room + step - 1 >= 0) {
			out = (room + step - 1) / step + 1;
			out -= (out - 1) * step >= in + pad[d]; /* the last window begins inside */
		}
		if (out < 1)
			return wrong(c, "its window does not fit its operand");
		*size = out;
	}
	return all_give(c, &s);
}

int adaptive_rule(struct call *c)
{
	const int nd = c->row->variant;
	struct shape s;
	int64_t to[3];
	if (!tensor(c, "self", &s) || !ranks(c, "self", &s, nd + 1, nd + 2) || !each(c, "output_size", nd, REQUIRED, 0, to))
		return 0;
	for (int d = 0; d < nd; d++) {
		if (!s.size[s.rank - nd + d])
			return wrong(c, "its operand has no elements along a dimension that it pools");
		s.size[s.rank - nd + d] = to[d];
	}
	return all_give(c, &s);
}

/* ---- Attention and norms ----------------------------------------------------------------------------------------- */

int attention_rule(struct call *c)
{
	struct shape q, k, v, scores, mask;
	if (!tensor(c, "query", &q) || !tensor(c, "key", &k) || !tensor(c, "value", &v) ||
		!ranks(c, "query", &q, 2, WW_GRAPH_MAX_RANK) || !ranks(c, "key", &k, 2, WW_GRAPH_MAX_RANK) ||
		!ranks(c, "value", &v, 2, WW_GRAPH_MAX_RANK))
		return 0;
	const int64_t rows = q.size[q.rank - 2], keys = k.size[k.rank - 2], columns = v.size[v.rank - 1];
	if (!inner_of(c, q.size[q.rank - 1], k.size[k.rank - 1]) || !inner_of(c, keys, v.size[v.rank - 2]))
		return 0;
	if (int_of(c, "enable_gqa", 0)) {
		for (int i = 0; i < 2; i++) {
			struct shape *s = i ? &v : &k;
			if (s->rank < 3 || q.rank < 3 || s->size[s->rank - 3] < 1 || q.size[q.rank - 3] % s->size[s->rank - 3])
				return wrong(c, "its heads do not fit together");
			s->size[s->rank - 3] = q.size[q.rank - 3];
		}
	}
	q.rank -= 2;
	k.rank -= 2;
	v.rank -= 2;
	if (!broadcast(c, &q, &k) || !broadcast(c, &q, &v))
		return 0;
	insert(&q, q.rank, rows);
	scores = q;
	insert(&scores, scores.rank, keys);
	insert(&q, q.rank, columns);
	if (given(c, "attn_mask") && (!tensor(c, "attn_mask", &mask) || !expands(c, "attn_mask", &mask, &scores)))
		return 0;
	return gives(c, 0, &q);
}

/* Layer norm and RMS norm: the last dimensions are normalized_shape's, and the weight's. */
int layer_norm_rule(struct call *c)
{
	struct shape x, own, w, want;
	if (!tensor(c, "input", &x))
		return 0;
	own.rank = ints(c, "normalized_shape", own.size, WW_GRAPH_MAX_RANK);
	if (own.rank < 1 || own.rank > x.rank)
		return c->err->rc == WW_OK && wrong(c, "it normalises %d dimensions of %d", own.rank, x.rank);
	want = (struct shape){ .rank = own.rank };
	memcpy(want.size, x.size + x.rank - own.rank, (size_t)own.rank * sizeof(*own.size));
	if (!same(c, "normalized_shape", &own, &want))
		return 0;
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "bias" : "weight";
		if (given(c, name) && (!tensor(c, name, &w) || !same(c, name, &w, &own)))
			return 0;
	}
	return gives(c, 0, &x);
}

int group_norm_rule(struct call *c)
{
	struct shape x, per_group;
	if (!tensor(c, "input", &x) || !ranks(c, "input", &x, 2, WW_GRAPH_MAX_RANK))
		return 0;
	const int64_t g = given(c, "group") ? int_of(c, "group", 1) : int_of(c, "num_groups", 1), ch = x.size[1];
	if (g < 1 || ch % g)
		return wrong(c, "it has %lld groups of %lld channels", (long long)g, (long long)ch);
	if (given(c, "C")) {
		struct shape flat = { 3, { int_of(c, "N", 0), int_of(c, "C", 0), int_of(c, "HxW", 0) } };
		struct shape own = { 3, { x.size[0], ch, 1 } };
		for (int d = 2; d < x.rank; d++)
			own.size[2] *= x.size[d];
		if (!same(c, "N, C, HxW", &flat, &own))
			return 0;
	}
	per_group = (struct shape){ 2, { x.size[0], g } };
	for (int i = 1; i < n_results(c); i++)
		if (!gives(c, i, &per_group))
			return 0;
	return vector_of(c, "weight", ch) && vector_of(c, "bias", ch) && gives(c, 0, &x);
}

/* Batch norm, and instance norm, of which the variant is 1: each vector has a number for each channel. */
int channel_norm_rule(struct call *c)
{
	static const char *const vectors[] = { "weight", "bias", "running_mean", "running_var" };
	struct shape x;
	if (!tensor(c, "input", &x) || !ranks(c, "input", &x, 1 + 2 * c->row->variant, WW_GRAPH_MAX_RANK))
		return 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(vectors) && x.rank > 1; i++)
		if (!vector_of(c, vectors[i], x.size[1]))
			return 0;
	return gives(c, 0, &x);
}

/* ---- Recurrent cells and layers; variant: gates ------------------------------------------------------------------ */

enum { LSTM_GATES = 4 };

static int weights_of(struct call *c, const struct shape *w, int64_t rows, int64_t columns)
{
	const struct shape want = { 2, { rows, columns } };
	return same(c, "a weight", w, &want);
}

int cell_rule(struct call *c)
{
	const int gates = c->row->variant;
	struct shape x, h, w, u, s;
	if (!tensor(c, "input", &x) || !tensor(c, "w_ih", &w) || !tensor(c, "w_hh", &u) || !ranks(c, "input", &x, 1, 2) ||
		!ranks(c, "w_hh", &u, 2, 2))
		return 0;
	if (gates == LSTM_GATES ? items(c, "hx") != 2 || !item(c, "hx", 0, &h) : !tensor(c, "hx", &h))
		return c->err->rc == WW_OK && wrong(c, "its state is not two tensors");
	if (!ranks(c, "hx", &h, x.rank, x.rank) || (x.rank == 2 && !inner_of(c, x.size[0], h.size[0])))
		return 0;
	const int64_t hidden = h.size[h.rank - 1];
	if (gates == LSTM_GATES && (!item(c, "hx", 1, &s) || !same(c, "hx", &s, &h)))
		return 0;
	return weights_of(c, &w, gates * hidden, x.size[x.rank - 1]) && weights_of(c, &u, gates * hidden, hidden) &&
		vector_of(c, "b_ih", gates * hidden) && vector_of(c, "b_hh", gates * hidden) && all_give(c, &h);
}

/* The parameters of one direction of one layer, whose input has `in` features and whose state has `hidden`; with a
 * projection `out` fewer. */
static int layer_params(struct call *c, int at, int each_has, int64_t in, int64_t hidden, int64_t out)
{
	const int64_t rows = c->row->variant * hidden;
	struct shape s;
	const struct shape bias = { 1, { rows } };
	for (int i = 0; i < each_has; i++) {
		if (!item(c, "params", at + i, &s))
			return 0;
		if (i < 2                       ? !weights_of(c, &s, rows, i ? out : in)
				: i < 4 && each_has > 3 ? !same(c, "a bias", &s, &bias)
										: !weights_of(c, &s, out, hidden))
			return 0;
	}
	return 1;
}

int layers_rule(struct call *c)
{
	const int lstm = c->row->variant == LSTM_GATES, dirs = int_of(c, "bidirectional", 0) ? 2 : 1,
			  first = (int)int_of(c, "batch_first", 0);
	const int64_t n = int_of(c, "num_layers", 1);
	struct shape x, h, cells, want, w;
	if (!tensor(c, "input", &x) || !ranks(c, "input", &x, 2, 3))
		return 0;
	if (lstm ? items(c, "hx") != 2 || !item(c, "hx", 0, &h) || !item(c, "hx", 1, &cells) : !tensor(c, "hx", &h))
		return c->err->rc == WW_OK && wrong(c, "its state is not two tensors");
	if (!ranks(c, "hx", &h, x.rank, x.rank) || (lstm && !ranks(c, "hx", &cells, x.rank, x.rank)))
		return 0;
	const int each_has = 2 + 2 * (int_of(c, "has_biases", 1) != 0);
	const int64_t hidden = lstm ? cells.size[cells.rank - 1] : h.size[h.rank - 1], out = h.size[h.rank - 1],
				  batch = x.rank == 3 ? x.size[!first] : 1;
	const int per = each_has + (lstm && hidden != out);
	if (n < 1 || n > 4096 || items(c, "params") != n * dirs * per)
		return wrong(c, "it has %d parameters for %lld layers", items(c, "params"), (long long)n);
	want = h;
	want.size[0] = n * dirs;
	if (x.rank == 3)
		want.size[1] = batch;
	if (!same(c, "hx", &h, &want))
		return 0;
	want.size[want.rank - 1] = hidden;
	if (lstm && !same(c, "hx", &cells, &want))
		return 0;
	for (int i = 0; i < n * dirs; i++)
		if (!item(c, "params", i * per, &w) ||
			!layer_params(c, i * per, per, i < dirs ? x.size[x.rank - 1] : dirs * out, hidden, out))
			return 0;
	x.size[x.rank - 1] = dirs * out;
	return gives(c, 0, &x) && gives(c, 1, &h) && (!lstm || gives(c, 2, &cells));
}

/* ---- Resampling and shuffles ------------------------------------------------------------------------------------- */

/* variant: spatial dimensions. */
int upsample_rule(struct call *c)
{
	const int nd = c->row->variant;
	const char *name = given(c, "input") ? "input" : "self";
	struct shape s, out;
	int64_t to[3];
	const json_t *by = given(c, "scale_factors");
	if (!tensor(c, name, &s) || !ranks(c, name, &s, nd + 2, nd + 2) || !result(c, 0, &out) ||
		!ranks(c, "its result", &out, nd + 2, nd + 2))
		return 0;
	if (json_is_array(given(c, "output_size")) && json_array_size(given(c, "output_size"))) {
		if (!each(c, "output_size", nd, REQUIRED, 1, to))
			return 0;
	} else {
		if ((int)json_array_size(by) != nd)
			return wrong(c, "it has neither sizes nor factors");
		for (int d = 0; d < nd; d++) { /* rounded down, in doubles */
			const double f = (double)s.size[2 + d] * json_number_value(json_array_get(by, (size_t)d));
			if (!(f - (double)out.size[2 + d] > -1e-3 && f - (double)out.size[2 + d] < 1.001))
				return wrong(
					c, "factor %d does not give %lld of %lld", d, (long long)out.size[2 + d], (long long)s.size[2 + d]);
			to[d] = out.size[2 + d];
		}
	}
	for (int d = 0; d < nd; d++) {
		if (s.size[2 + d] < 1 || to[d] < 1)
			return wrong(c, "it makes %lld elements of %lld", (long long)to[d], (long long)s.size[2 + d]);
		s.size[2 + d] = to[d];
	}
	return gives(c, 0, &s);
}

int grid_sampler_rule(struct call *c)
{
	struct shape x, grid;
	const int64_t mode = int_of(c, "interpolation_mode", 0), padding = int_of(c, "padding_mode", 0);
	if (!tensor(c, "input", &x) || !tensor(c, "grid", &grid) || !ranks(c, "input", &x, 4, 5) ||
		!ranks(c, "grid", &grid, x.rank, x.rank))
		return 0;
	if (x.size[0] != grid.size[0] || grid.size[grid.rank - 1] != x.rank - 2 || mode < 0 || mode > 2 || padding < 0 ||
		padding > 2)
		return wrong(c, "its grid or modes do not fit");
	for (int d = 2; d < x.rank; d++) {
		if (!x.size[d])
			return wrong(c, "its operand has no elements");
		x.size[d] = grid.size[d - 1];
	}
	return gives(c, 0, &x);
}

int affine_grid_rule(struct call *c)
{
	struct shape theta, want, to;
	to.rank = ints(c, "size", to.size, WW_GRAPH_MAX_RANK);
	if (to.rank < 0 || !tensor(c, "theta", &theta) || !ranks(c, "theta", &theta, 3, 3))
		return 0;
	if ((to.rank != 4 && to.rank != 5) || theta.size[1] != to.rank - 2 || theta.size[2] != to.rank - 1)
		return wrong(c, "its sizes do not fit");
	want = (struct shape){ 3, { theta.size[0], to.size[2], to.size[3] } };
	if (to.rank == 5)
		insert(&want, 3, to.size[4]);
	insert(&want, want.rank, to.rank - 2);
	return theta.size[0] == to.size[0] ? gives(c, 0, &want) : wrong(c, "its batches differ");
}

/* Blocks of a fold, or 0. */
static int64_t blocks(struct call *c, const int64_t image[2], int64_t *taps)
{
	int64_t k[2], dil[2], pad[2], step[2], n = 1;
	*taps = 1;
	if (!each(c, "kernel_size", 2, REQUIRED, 1, k) || !each(c, "dilation", 2, 1, 1, dil) ||
		!each(c, "padding", 2, 0, 0, pad) || !each(c, "stride", 2, 1, 1, step))
		return -1;
	for (int d = 0; d < 2; d++) {
		const int64_t w = windows(image[d], k[d], step[d], pad[d], dil[d]);
		if (w < 1 || w > INT32_MAX)
			return wrong(c, "its window does not fit its image"), -1;
		n *= w;
		*taps *= k[d];
	}
	return n;
}

int im2col_rule(struct call *c)
{
	struct shape x;
	int64_t taps, n, channels;
	if (!tensor(c, "self", &x) || !ranks(c, "self", &x, 3, 4) || (n = blocks(c, x.size + x.rank - 2, &taps)) < 0)
		return 0;
	x.rank--;
	x.size[x.rank - 1] = n;
	channels = x.size[x.rank - 2];
	if (__builtin_mul_overflow(channels, taps, &x.size[x.rank - 2]))
		return wrong(c, "its window is too large");
	return gives(c, 0, &x);
}

int col2im_rule(struct call *c)
{
	struct shape x;
	int64_t image[2], taps, n;
	if (!tensor(c, "self", &x) || !ranks(c, "self", &x, 2, 3) || !each(c, "output_size", 2, REQUIRED, 1, image) ||
		(n = blocks(c, image, &taps)) < 0)
		return 0;
	if (x.size[x.rank - 1] != n || x.size[x.rank - 2] % taps)
		return wrong(c, "it has %lld blocks, not %lld", (long long)x.size[x.rank - 1], (long long)n);
	x.size[x.rank - 2] /= taps;
	x.size[x.rank - 1] = image[0];
	insert(&x, x.rank, image[1]);
	return gives(c, 0, &x);
}

/* pixel_shuffle; variant: back. */
int shuffle_rule(struct call *c)
{
	const int back = c->row->variant;
	const int64_t r = int_of(c, back ? "downscale_factor" : "upscale_factor", 0);
	struct shape x;
	if (!tensor(c, "self", &x) || !ranks(c, "self", &x, 3, WW_GRAPH_MAX_RANK))
		return 0;
	int64_t *ch = &x.size[x.rank - 3], *h = ch + 1, *w = ch + 2;
	if (r < 1 || r > 1 << 20 || (back ? *h % r || *w % r : *ch % (r * r)))
		return wrong(c, "its factor %lld does not fit", (long long)r);
	*ch = back ? *ch * r * r : *ch / (r * r);
	*h = back ? *h / r : *h * r;
	*w = back ? *w / r : *w * r;
	return gives(c, 0, &x);
}

int channel_shuffle_rule(struct call *c)
{
	struct shape x;
	const int64_t g = int_of(c, "groups", 0);
	if (!tensor(c, "self", &x) || !ranks(c, "self", &x, 3, WW_GRAPH_MAX_RANK))
		return 0;
	return g >= 1 && x.size[1] % g == 0 ? gives(c, 0, &x) : wrong(c, "its argument groups is %lld", (long long)g);
}

int unfold_rule(struct call *c)
{
	struct shape s;
	const int64_t size = int_of(c, "size", -1), step = int_of(c, "step", 0);
	int d;
	if (!tensor(c, "self", &s) || !ranks(c, "self", &s, 0, WW_GRAPH_MAX_RANK - 1) ||
		!dim_of(c, "dimension", 0, s.rank, &d))
		return 0;
	const int64_t n = s.rank ? s.size[d] : 1;
	if (size < 0 || size > n || step < 1 || step > INT32_MAX)
		return wrong(c, "its windows of %lld by %lld do not fit %lld", (long long)size, (long long)step, (long long)n);
	if (s.rank)
		s.size[d] = (n - size) / step + 1;
	insert(&s, s.rank, size);
	return gives(c, 0, &s);
}

/* ---- Distances --------------------------------------------------------------------------------------------------- */

int cdist_rule(struct call *c)
{
	struct shape a, b;
	const int64_t mode = int_of(c, "compute_mode", 0);
	if (!tensor(c, "x1", &a) || !tensor(c, "x2", &b) || !ranks(c, "x1", &a, 2, WW_GRAPH_MAX_RANK) ||
		!ranks(c, "x2", &b, 2, WW_GRAPH_MAX_RANK) || !inner_of(c, a.size[a.rank - 1], b.size[b.rank - 1]))
		return 0;
	if (mode < 0 || mode > 2)
		return wrong(c, "its argument compute_mode is %lld", (long long)mode);
	const int64_t p = a.size[a.rank - 2], r = b.size[b.rank - 2];
	a.rank -= 2;
	b.rank -= 2;
	if (!broadcast(c, &a, &b))
		return 0;
	insert(&a, a.rank, p);
	insert(&a, a.rank, r);
	return gives(c, 0, &a);
}

int cosine_rule(struct call *c)
{
	struct shape a, b;
	int d;
	if (!tensor(c, "x1", &a) || !tensor(c, "x2", &b) || !broadcast(c, &a, &b) ||
		!dim_of(c, "dim", a.rank > 0, a.rank, &d))
		return 0;
	if (a.rank)
		drop(&a, d);
	return gives(c, 0, &a);
}

static int distances(struct call *c, const char *x, const char *y, struct shape *a)
{
	struct shape b;
	return tensor(c, x, a) && tensor(c, y, &b) && broadcast(c, a, &b) && ranks(c, x, a, 1, WW_GRAPH_MAX_RANK);
}

int distance_rule(struct call *c)
{
	struct shape a;
	if (!distances(c, "x1", "x2", &a))
		return 0;
	if (int_of(c, "keepdim", 0))
		a.size[a.rank - 1] = 1;
	else
		drop(&a, a.rank - 1);
	return gives(c, 0, &a);
}

int triplet_rule(struct call *c)
{
	static const char *const names[] = { "anchor", "positive", "negative" };
	struct shape a, b, one = scalar_shape();
	const int64_t how = int_of(c, "reduction", 1);
	if (!distances(c, "anchor", "positive", &a) || !distances(c, "anchor", "negative", &b) || !broadcast(c, &a, &b))
		return 0;
	if (how < 0 || how > 2)
		return wrong(c, "its argument reduction is %lld", (long long)how);
	for (int k = 0; k < 3; k++) {
		struct shape own;
		if (!tensor(c, names[k], &own) || !ranks(c, names[k], &own, a.rank, a.rank))
			return 0;
	}
	drop(&a, a.rank - 1);
	return gives(c, 0, how ? &one : &a);
}
