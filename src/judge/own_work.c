/* own_work.c - does a task ask for anything besides what a plan's library nodes compute?
 *
 * A plan may write the library's result into scratch and copy it to the output by a kernel.  Without that launch every
 * output is wrong, and still the library did the task.  Values do not show that a kernel only copies, since it can
 * multiply by a 1 that it is given.  The task's graph shows it: if the library nodes account for all of its operators,
 * the launches only move data.
 *
 * Operators are sorted into what a library node can do, movement (views, copies, padding, concatenation: never work of
 * their own) and the rest.  What the library nodes account for:
 *
 *     products, convolutions     if library nodes do 99% of the arithmetic of all, or nodes no larger than this
 *                                operator do half of its arithmetic
 *     additions, scaling, relu   if biases and C, alpha and beta, epilogues write three quarters as many elements
 *     additions, scaling, sums   if nodes of another size than any product of the task do half of it: a product with
 *                                ones is a sum, a depthwise convolution scales
 *
 * An output element is the solution's own work if an operator before it is not accounted for.  A plan has work of its
 * own if at least half of all output elements are own work.
 *
 * Products in a narrower type than the task's that do at least twice its arithmetic are own work: kernels split the
 * operands into parts for them.  A single such product would be too inexact, and two are not faster than one in the
 * task's type.  They account for nothing then; what is left is what nodes in the task's type account for, so that a
 * product in it is no less the library's for narrow ones beside it, whose results nobody needs.  Exception: tasks with
 * convolutions, which PyTorch computes in TF32, so that a single one in half precision is exact enough.
 *
 * If the verdict is `algebraic`, the task's products were avoided by algebra; they do not count as work of the
 * launches.
 *
 * Rejected: marking the library's results and looking for the marks in the outputs (the 1 above; an honest relu or
 * max-pool moves values too). */
#include "judge/internal.h"
#include "judge/own_work.h"
#include "judge/pytorch.h"
#include "judge/profile/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int ww_library_node(const struct ww_image *m, uint32_t node)
{
	uint32_t kind = ww_image_nodes(m)[node].kind;
	return kind == WW_NODE_GEMM || kind == WW_NODE_CONV;
}

int ww_half_operands(const struct ww_facts *f)
{
	int half = 0;
	for (int i = 0; i < f->n_inputs; i++)
		half |= f->inputs[i].dtype == WW_F16 || f->inputs[i].dtype == WW_BF16;
	for (int i = 0; i < f->n_params; i++)
		half |= f->params[i].dtype == WW_F16 || f->params[i].dtype == WW_BF16;
	return half;
}

enum kind { MOVE, PRODUCT, ADD, SCALE, RELU, SUM, OWN, KINDS };

/* ATen operators without their overload and without the "_" of the form in place. */
static const struct {
	enum kind kind;
	const char *names;
} sorted[] = {
	{ MOVE,
		" clone copy _to_copy to contiguous detach alias lift_fresh_copy _unsafe_view reshape reshape_as flatten ravel "
		"type_as pixel_shuffle pixel_unshuffle channel_shuffle hstack vstack _reshape_copy permute_copy "
		"cat concat stack repeat tile expand_copy flip roll pad constant_pad_nd fill zero zeros_like ones_like "
		"full_like "
		"empty_like dropout getitem " },
	{ PRODUCT,
		" mm bmm mv dot matmul linear addmm addmv addbmm baddbmm einsum tensordot bilinear conv1d conv2d conv3d "
		"conv_transpose1d conv_transpose2d conv_transpose3d convolution " },
	{ ADD, " add sub rsub " },
	{ SCALE, " mul div neg " },
	{ RELU, " relu " },
	{ SUM,
		" sum mean cumsum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d " },
};

static const double SAME = 0.01; /* two products are of one size if their flops differ by no more than this share */

struct task_node {
	const char *name;
	const json_t *args, *kwargs;
	enum kind kind;
	int biased; /* a PRODUCT that adds a tensor */
	double elements, flops;
	int own; /* library nodes do not account for it, or for an operator before it */
};

struct work {
	struct task_node *nodes;
	size_t n;
	double need[KINDS], can[KINDS]; /* of the task; of the library nodes.  Elements; PRODUCT: flops */
	double narrow;                  /* flops of the library nodes in a narrower type */
	size_t library_nodes;
	const struct ww_image *image;
	int split; /* operands are split into parts of a narrower type */
	int convolves, saved;
};

static enum kind kind_of(const json_t *node)
{
	const char *op = json_string_value(json_object_get(node, "op")), *dot = op ? strchr(op, '.') : NULL;
	char word[80];
	if (json_number_value(json_object_get(node, "flops")) == 0)
		return MOVE;
	if (!dot || strncmp(op, "aten.", 5))
		return OWN;
	size_t n = strcspn(dot + 1, ".");
	n -= n > 1 && dot[n] == '_';
	if (n + 3 > sizeof(word))
		return OWN;
	word[0] = ' ';
	memcpy(word + 1, dot + 1, n);
	memcpy(word + 1 + n, " ", 2);
	for (size_t i = 0; i < WW_ARRAY_LEN(sorted); i++)
		if (strstr(sorted[i].names, word))
			return sorted[i].kind;
	return OWN;
}

static double elements_of(const json_t *form)
{
	double n = 1;
	size_t i;
	json_t *size;
	json_array_foreach(json_object_get(form, "sizes"), i, size)
		n *= (double)json_integer_value(size);
	return n;
}

/* Has a product three tensors: linear(x, w, b), conv(x, w, b, ...), addmm(b, x, w)?  (einsum has a list of them.) */
static int adds_a_tensor(const json_t *args)
{
	return json_object_get(json_array_get(args, 0), "ref") && json_object_get(json_array_get(args, 2), "ref");
}

static void read_node(struct work *w, const json_t *node)
{
	struct task_node *n = &w->nodes[w->n++];
	size_t i;
	json_t *out;
	n->name = json_string_value(json_object_get(node, "name"));
	n->args = json_object_get(node, "args");
	n->kwargs = json_object_get(node, "kwargs");
	n->kind = kind_of(node);
	n->flops = json_number_value(json_object_get(node, "flops"));
	json_array_foreach(json_object_get(node, "out"), i, out)
		n->elements += elements_of(out);
	n->biased = n->kind == PRODUCT && adds_a_tensor(n->args);
	if (ww_pytorch_has(w->image, n->name ? n->name : "")) /* the plan leaves it to PyTorch */
		n->kind = MOVE;
	w->need[n->kind] += n->kind == PRODUCT ? n->flops : n->elements;
	w->convolves |= n->kind == PRODUCT && strstr(json_string_value(json_object_get(node, "op")), ".conv") != NULL;
	w->need[ADD] += n->biased ? n->elements : 0;
}

static double node_elements(const struct ww_image_node *n)
{
	if (n->kind == WW_NODE_GEMM)
		return (double)n->gemm.m * (double)n->gemm.n * (double)n->gemm.batch;
	double e = (double)n->conv.n * (double)n->conv.k;
	for (int i = 0; i < n->conv.nd; i++)
		e *= (double)n->conv.out[i];
	return e;
}

/* Did an earlier library node write C?  Then several nodes compute one product, and beta adds nothing of the task's. */
static int accumulates(const struct ww_image *m, const struct ww_gemm *g)
{
	for (const struct ww_image_node *n = ww_image_nodes(m); &n->gemm != g; n++)
		if (n->kind == WW_NODE_GEMM && n->gemm.d.buf == g->c.buf)
			return 1;
	return 0;
}

static int is_narrow(const struct ww_image_node *n)
{
	return (n->kind == WW_NODE_GEMM ? n->gemm.math : n->conv.math) != WW_MATH_FP32;
}

static void read_library_node(struct work *w, const struct ww_image_node *n, double flops)
{
	const struct ww_gemm *g = n->kind == WW_NODE_GEMM ? &n->gemm : NULL;
	int epilogue = g ? g->epilogue : n->conv.epilogue;
	double e = node_elements(n);
	int bias = epilogue == WW_EPI_BIAS || epilogue == WW_EPI_BIAS_RELU;
	int relu = epilogue == WW_EPI_RELU || epilogue == WW_EPI_BIAS_RELU;
	w->can[PRODUCT] += flops;
	w->can[ADD] += (bias ? e : 0) + (g && g->beta != 0 && !accumulates(w->image, g) ? e : 0);
	w->can[RELU] += relu ? e : 0;
	w->can[SCALE] += g && (g->alpha != 1 || (g->beta != 0 && g->beta != 1)) ? e : 0;
	w->narrow += is_narrow(n) ? flops : 0;
	w->library_nodes++;
}

static int is_product(const struct work *w, double flops)
{
	for (size_t k = 0; k < w->n; k++)
		if (w->nodes[k].kind == PRODUCT && fabs(flops - w->nodes[k].flops) <= SAME * flops)
			return 1;
	return 0;
}

/* Flops of the library nodes with no more flops than an operator has; others: without nodes of the size of a product of
 * the task; else without those that multiply parts of operands. */
static double parts_of(const struct work *w, double flops, int others)
{
	double sum = 0;
	for (uint32_t i = 0; i < w->image->n_nodes; i++) {
		double f = ww_library_node(w->image, i) ? ww_work_of_node(w->image, i).flops : 0;
		int counts = others ? !is_product(w, f) : !(w->split && is_narrow(&ww_image_nodes(w->image)[i]));
		sum += f <= (1 + SAME) * flops && counts ? f : 0;
	}
	return sum;
}

static int accounted(const struct work *w, enum kind k, double flops)
{
	switch (k) {
	case MOVE: return 1;
	case PRODUCT:
		return w->saved || w->can[PRODUCT] - (w->split ? w->narrow : 0) >= (1 - SAME) * w->need[PRODUCT] ||
			2 * parts_of(w, flops, 0) >= flops;
	case RELU: return 4 * w->can[RELU] >= 3 * w->need[RELU];
	case ADD:
	case SCALE:
	case SUM: return (w->can[k] > 0 && 4 * w->can[k] >= 3 * w->need[k]) || parts_of(w, 2 * flops, 1) >= flops;
	case OWN:
	case KINDS: break;
	}
	return 0;
}

/* Does a value of the graph refer to a node that is own work? */
static int refers_to_own(const struct work *w, const json_t *value)
{
	const char *key, *ref = json_string_value(json_object_get(value, "ref"));
	json_t *part;
	size_t i;
	for (size_t k = 0; ref && k < w->n; k++)
		if (w->nodes[k].own && !strcmp(w->nodes[k].name, ref))
			return 1;
	json_array_foreach(value, i, part)
		if (refers_to_own(w, part))
			return 1;
	json_object_foreach((json_t *)(uintptr_t)value, key, part)
		if (refers_to_own(w, part))
			return 1;
	return 0;
}

static int mostly_own(struct work *w, const json_t *outputs)
{
	double own = 0, all = 0;
	size_t i;
	json_t *o;
	for (size_t k = 0; k < w->n; k++) {
		struct task_node *n = &w->nodes[k];
		n->own = !accounted(w, n->kind, n->flops) || (n->biased && !accounted(w, ADD, n->elements)) ||
			refers_to_own(w, n->args) || refers_to_own(w, n->kwargs);
	}
	json_array_foreach(outputs, i, o) {
		all += elements_of(o);
		own += refers_to_own(w, o) ? elements_of(o) : 0;
	}
	return own > 0 && 2 * own >= all;
}

enum ww_own_work ww_judge_own_work(const json_t *graph, int half, int algebraic, const struct ww_image *m)
{
	const json_t *nodes = json_object_get(graph, "nodes");
	struct work w = { .nodes = calloc(json_array_size(nodes) + 1, sizeof(*w.nodes)), .image = m, .saved = algebraic };
	int launches = 0;
	size_t k;
	json_t *node;
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const struct ww_image_node *n = &ww_image_nodes(m)[i];
		launches |= n->kind == WW_NODE_LAUNCH;
		if (ww_library_node(m, i))
			read_library_node(&w, n, ww_work_of_node(m, i).flops);
	}
	json_array_foreach(nodes, k, node)
		if (w.nodes)
			read_node(&w, node);
	w.split = !half && !w.convolves && w.narrow >= 2 * w.need[PRODUCT] && w.need[PRODUCT] > 0;
	enum ww_own_work found = !launches             ? WW_WORK_LIBRARY
		: !w.library_nodes && !ww_pytorch_count(m) ? WW_WORK_OWN
												   : WW_WORK_BOTH;
	if (found == WW_WORK_BOTH && w.nodes && !mostly_own(&w, json_object_get(graph, "outputs")))
		found = WW_WORK_LIBRARY;
	free(w.nodes);
	return found;
}
