/* plan_api.c - the functions of ww/plan.h: they record the calls of plan.c.
 *
 * This runs in the builder's job, in one address space with untrusted code, which can overwrite all of it.  So no
 * guarantee rests on the checks here: the image is validated in the judge (image_validate.c), and the tests of
 * arguments made here serve a clear message only.  The first error sticks; it is reported at once, because what follows
 * it may well crash (a plan that goes on with the stand-in tensor that a wrong index returns).
 */
#include "judge/build/build_wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list {
	char *p;
	size_t n, cap, size;
};
struct text {
	struct text *next;
	char s[1024];
}; /* what ww_fmt() returned */

struct ww_plan {
	const struct ww_facts *facts;
	struct list buffers, nodes, args, tmaps, macros, strings;
	struct text *texts;
	int n_scratch;
	struct ww_image_launch *launch; /* the last one, while it is the last node */
	char error[1024];
	int failed, limit, pdl_all;
	void (*on_error)(void *ctx, const char *text);
	void *ctx;
};

static const struct ww_tensor no_tensor = { .name = "",
	.buf = -1,
	.dtype = WW_F32,
	.itemsize = 4,
	.size = { 1, 1, 1, 1, 1, 1, 1, 1 },
	.numel = 1,
	.bytes = 4,
	.contiguous = 1 };
static const struct ww_scalar no_scalar;

static void fail(struct ww_plan *p, int limit, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct ww_plan *p, int limit, const char *fmt, ...)
{
	va_list ap;
	if (p->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(p->error, sizeof(p->error), fmt, ap);
	va_end(ap);
	p->failed = 1;
	p->limit = limit;
	p->on_error(p->ctx, p->error);
}

/* Room for n more elements; NULL once the plan has failed or memory is out. */
static void *grow(struct ww_plan *p, struct list *l, size_t n)
{
	if (p->failed)
		return NULL;
	if (l->n + n > l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		while (cap < l->n + n)
			cap *= 2;
		void *q = cap * l->size <= 2 * (size_t)WW_IMAGE_MAX_BYTES ? realloc(l->p, cap * l->size) : NULL;
		if (!q) {
			fail(p, 1, "the plan is larger than %d bytes", WW_IMAGE_MAX_BYTES);
			return NULL;
		}
		l->p = q;
		l->cap = cap;
	}
	void *at = l->p + l->n * l->size;
	memset(at, 0, n * l->size);
	l->n += n;
	return at;
}

static uint32_t add_string(struct ww_plan *p, const char *s)
{
	size_t n = strlen(s) + 1, at = p->strings.n;
	char *q = grow(p, &p->strings, n);
	if (q)
		memcpy(q, s, n);
	return q ? (uint32_t)at : 0;
}

struct ww_plan *ww_plan_new(const struct ww_facts *facts, void (*on_error)(void *ctx, const char *text), void *ctx)
{
	struct ww_plan *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->facts = facts;
	p->on_error = on_error;
	p->ctx = ctx;
	p->buffers.size = sizeof(struct ww_image_buffer);
	p->nodes.size = sizeof(struct ww_image_node);
	p->args.size = sizeof(struct ww_image_arg);
	p->tmaps.size = sizeof(struct ww_image_tmap);
	p->macros.size = sizeof(struct ww_image_macro);
	p->strings.size = 1;
	add_string(p, "");
	const struct {
		const struct ww_tensor *t;
		int n;
		uint32_t role;
	} parts[] = { { facts->inputs, facts->n_inputs, WW_BUF_INPUT }, { facts->params, facts->n_params, WW_BUF_PARAM },
		{ facts->outputs, facts->n_outputs, WW_BUF_OUTPUT } };
	for (size_t k = 0; k < WW_ARRAY_LEN(parts); k++)
		for (int i = 0; i < parts[k].n; i++) {
			struct ww_image_buffer *b = grow(p, &p->buffers, 1);
			if (b)
				*b = (struct ww_image_buffer){ parts[k].role, (uint32_t)i, (uint64_t)parts[k].t[i].bytes };
		}
	return p;
}

void ww_plan_free(struct ww_plan *p)
{
	if (!p)
		return;
	struct list *const lists[] = { &p->buffers, &p->nodes, &p->args, &p->tmaps, &p->macros, &p->strings };
	for (size_t i = 0; i < WW_ARRAY_LEN(lists); i++)
		free(lists[i]->p);
	for (struct text *t = p->texts, *next; t; t = next) {
		next = t->next;
		free(t);
	}
	free(p);
}

const char *ww_plan_error(const struct ww_plan *p) { return p->failed ? p->error : NULL; }

int ww_plan_hit_limit(const struct ww_plan *p) { return p->limit; }

/* ---- The task ---------------------------------------------------------------------------------------------------- */

int ww_input_count(struct ww_plan *p) { return p->facts->n_inputs; }
int ww_output_count(struct ww_plan *p) { return p->facts->n_outputs; }
int ww_scalar_count(struct ww_plan *p) { return p->facts->n_scalars; }
const struct ww_device *ww_device(struct ww_plan *p) { return &p->facts->device; }

const struct ww_tensor *ww_input(struct ww_plan *p, int index)
{
	if (index >= 0 && index < p->facts->n_inputs)
		return &p->facts->inputs[index];
	fail(p, 0, "ww_input(%d): the task has %d tensor inputs", index, p->facts->n_inputs);
	return &no_tensor;
}

const struct ww_tensor *ww_output(struct ww_plan *p, int index)
{
	if (index >= 0 && index < p->facts->n_outputs)
		return &p->facts->outputs[index];
	fail(p, 0, "ww_output(%d): the task has %d outputs", index, p->facts->n_outputs);
	return &no_tensor;
}

const struct ww_tensor *ww_param(struct ww_plan *p, const char *name)
{
	for (int i = 0; name && i < p->facts->n_params; i++)
		if (!strcmp(p->facts->params[i].name, name))
			return &p->facts->params[i];
	fail(p, 0, "ww_param(\"%s\"): the task has no parameter of that name", name ? name : "(null)");
	return &no_tensor;
}

const struct ww_scalar *ww_scalar(struct ww_plan *p, int index)
{
	if (index >= 0 && index < p->facts->n_scalars)
		return &p->facts->scalars[index];
	fail(p, 0, "ww_scalar(%d): the task has %d scalar arguments", index, p->facts->n_scalars);
	return &no_scalar;
}

void ww_fail(struct ww_plan *p, const char *why) { fail(p, 0, "ww_fail: %s", why ? why : "(no reason given)"); }

/* ---- Macros, names, buffers -------------------------------------------------------------------------------------- */

void ww_define(struct ww_plan *p, const char *name, long long value)
{
	if (p->macros.n >= WW_MAX_MACROS)
		fail(p, 1, "more than %d ww_define()s", WW_MAX_MACROS);
	if (!name)
		fail(p, 0, "ww_define() without a name");
	for (size_t i = 0; name && i < p->macros.n; i++) {
		const struct ww_image_macro *m = &((const struct ww_image_macro *)p->macros.p)[i];
		if (m->value == value && !strcmp((const char *)p->strings.p + m->name, name))
			return; /* defined before; another value is refused when the image is validated */
	}
	struct ww_image_macro *m = grow(p, &p->macros, 1);
	if (m)
		*m = (struct ww_image_macro){ .name = add_string(p, name), .value = value };
}

const char *ww_fmt(struct ww_plan *p, const char *format, ...)
{
	va_list ap;
	struct text *t = p->failed ? NULL : malloc(sizeof(*t));
	if (!t)
		return "";
	t->next = p->texts;
	p->texts = t;
	va_start(ap, format);
	int n = vsnprintf(t->s, sizeof(t->s), format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(t->s))
		fail(p, 1, "ww_fmt(): the text is longer than %d bytes", (int)sizeof(t->s) - 1);
	return t->s;
}

int ww_scratch(struct ww_plan *p, long long bytes)
{
	if (p->n_scratch >= WW_MAX_SCRATCH)
		fail(p, 1, "more than %d scratch buffers", WW_MAX_SCRATCH);
	if (bytes <= 0)
		fail(p, 0, "ww_scratch(%lld): a size must be positive", bytes);
	struct ww_image_buffer *b = grow(p, &p->buffers, 1);
	if (!b)
		return -1;
	*b = (struct ww_image_buffer){ WW_BUF_SCRATCH, (uint32_t)p->n_scratch++, (uint64_t)bytes };
	return (int)p->buffers.n - 1;
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

static struct ww_image_node *add_node(struct ww_plan *p, uint32_t kind)
{
	if (p->nodes.n >= WW_MAX_NODES)
		fail(p, 1, "more than %d nodes", WW_MAX_NODES);
	struct ww_image_node *n = grow(p, &p->nodes, 1);
	p->launch = NULL;
	if (n)
		n->kind = kind;
	return n;
}

void ww_launch(struct ww_plan *p, const char *kernel, long long gx, long long gy, long long gz, int bx, int by, int bz)
{
	if (!kernel)
		fail(p, 0, "ww_launch() without a kernel name");
	struct ww_image_node *n = add_node(p, WW_NODE_LAUNCH);
	if (!n)
		return;
	n->launch = (struct ww_image_launch){ .kernel = add_string(p, kernel),
		.grid = { gx, gy, gz },
		.block = { bx, by, bz },
		.first_arg = (uint32_t)p->args.n };
	p->launch = p->failed ? NULL : &n->launch;
}

/* The launch that `what` speaks of. */
static struct ww_image_launch *last_launch(struct ww_plan *p, const char *what)
{
	if (!p->launch && !p->failed)
		fail(p, 0, "%s() does not follow a ww_launch()", what);
	return p->failed ? NULL : p->launch;
}

void ww_shared(struct ww_plan *p, long long bytes)
{
	struct ww_image_launch *l = last_launch(p, "ww_shared");
	if (l)
		l->shared_bytes = bytes;
}

void ww_cluster(struct ww_plan *p, int x, int y, int z)
{
	struct ww_image_launch *l = last_launch(p, "ww_cluster");
	if (l)
		l->cluster[0] = x, l->cluster[1] = y, l->cluster[2] = z;
}

void ww_cooperative(struct ww_plan *p)
{
	struct ww_image_launch *l = last_launch(p, "ww_cooperative");
	if (l)
		l->flags |= WW_NODE_COOPERATIVE;
}

void ww_pdl(struct ww_plan *p)
{
	struct ww_image_launch *l = last_launch(p, "ww_pdl");
	if (l)
		l->flags |= WW_NODE_PDL;
}

void ww_pdl_all(struct ww_plan *p) { p->pdl_all = 1; }

static int may_overlap(const struct ww_image_node *n)
{
	return n->kind == WW_NODE_LAUNCH && !(n->launch.flags & WW_NODE_COOPERATIVE);
}

/* What ww_pdl_all() asked for, once all nodes are known. */
static void overlap_launches(struct ww_plan *p)
{
	struct ww_image_node *n = (struct ww_image_node *)(void *)p->nodes.p;
	if (!p->pdl_all || p->facts->device.target != WW_TARGET_CUDA || p->facts->device.cc < 90)
		return;
	for (size_t i = 1; i < p->nodes.n; i++)
		if (may_overlap(&n[i]) && may_overlap(&n[i - 1]))
			n[i].launch.flags |= WW_NODE_PDL;
}

static struct ww_image_arg *add_arg(struct ww_plan *p, const char *what, uint32_t kind)
{
	struct ww_image_launch *l = last_launch(p, what);
	if (l && l->n_args >= WW_MAX_ARGS)
		fail(p, 1, "more than %d arguments in one launch", WW_MAX_ARGS);
	struct ww_image_arg *a = l ? grow(p, &p->args, 1) : NULL;
	if (!a)
		return NULL;
	l->n_args++;
	a->kind = kind;
	return a;
}

void ww_arg_buf(struct ww_plan *p, int buf, long long offset_bytes)
{
	struct ww_image_arg *a = add_arg(p, "ww_arg_buf", WW_ARG_BUF);
	if (a)
		a->buf = buf, a->i = offset_bytes;
}

void ww_arg_i32(struct ww_plan *p, int v)
{
	struct ww_image_arg *a = add_arg(p, "ww_arg_i32", WW_ARG_I32);
	if (a)
		a->i = v;
}

void ww_arg_i64(struct ww_plan *p, long long v)
{
	struct ww_image_arg *a = add_arg(p, "ww_arg_i64", WW_ARG_I64);
	if (a)
		a->i = v;
}

void ww_arg_f32(struct ww_plan *p, float v)
{
	struct ww_image_arg *a = add_arg(p, "ww_arg_f32", WW_ARG_F32);
	if (a)
		a->f32 = v;
}

void ww_arg_f64(struct ww_plan *p, double v)
{
	struct ww_image_arg *a = add_arg(p, "ww_arg_f64", WW_ARG_F64);
	if (a)
		a->f64 = v;
}

void ww_arg_tmap(struct ww_plan *p, const struct ww_tmap *t)
{
	if (!t)
		fail(p, 0, "ww_arg_tmap() without a tensor map");
	struct ww_image_arg *a = add_arg(p, "ww_arg_tmap", WW_ARG_TMAP);
	struct ww_image_tmap *m = a ? grow(p, &p->tmaps, 1) : NULL;
	if (!m)
		return;
	struct ww_tmap *to = &m->t;
	a->buf = (int)p->tmaps.n - 1;
	to->buf = t->buf, to->offset_bytes = t->offset_bytes, to->dtype = t->dtype, to->rank = t->rank;
	for (int i = 0; i < 5; i++) {
		to->size[i] = t->size[i], to->stride_bytes[i] = t->stride_bytes[i];
		to->box[i] = t->box[i], to->elem_stride[i] = t->elem_stride[i];
	}
	to->swizzle = t->swizzle, to->fill = t->fill;
}

void ww_memset(struct ww_plan *p, int buf, long long offset_bytes, long long bytes, int byte)
{
	struct ww_image_node *n = add_node(p, WW_NODE_MEMSET);
	if (n)
		n->set = (struct ww_image_memset){ buf, byte, offset_bytes, bytes };
}

void ww_copy(
	struct ww_plan *p, int dst, long long dst_offset_bytes, int src, long long src_offset_bytes, long long bytes)
{
	struct ww_image_node *n = add_node(p, WW_NODE_COPY);
	if (n)
		n->copy = (struct ww_image_copy){ dst, src, dst_offset_bytes, src_offset_bytes, bytes };
}

/* Member by member: the holes between members of the plan's own variable are uninitialised, and an image is hashed. */
static void copy_mat(struct ww_mat *to, const struct ww_mat *from)
{
	to->buf = from->buf;
	to->offset_bytes = from->offset_bytes;
	to->dtype = from->dtype;
	to->trans = from->trans;
	to->ld = from->ld;
	to->batch_stride = from->batch_stride;
}

void ww_gemm(struct ww_plan *p, const struct ww_gemm *g)
{
	if (!g)
		fail(p, 0, "ww_gemm() without a description");
	struct ww_image_node *n = add_node(p, WW_NODE_GEMM);
	if (!n)
		return;
	struct ww_gemm *to = &n->gemm;
	to->m = g->m, to->n = g->n, to->k = g->k, to->batch = g->batch;
	copy_mat(&to->a, &g->a);
	copy_mat(&to->b, &g->b);
	copy_mat(&to->c, &g->c);
	copy_mat(&to->d, &g->d);
	to->alpha = g->alpha, to->beta = g->beta;
	to->math = g->math, to->epilogue = g->epilogue;
	to->bias_buf = g->bias_buf, to->bias_offset_bytes = g->bias_offset_bytes;
	to->workspace_bytes = g->workspace_bytes;
}

void ww_conv(struct ww_plan *p, const struct ww_conv *c)
{
	if (!c)
		fail(p, 0, "ww_conv() without a description");
	struct ww_image_node *n = add_node(p, WW_NODE_CONV);
	if (!n)
		return;
	struct ww_conv *to = &n->conv;
	to->nd = c->nd, to->transposed = c->transposed, to->dtype = c->dtype, to->math = c->math;
	to->layout = c->layout, to->groups = c->groups;
	to->n = c->n, to->c = c->c, to->k = c->k;
	for (int i = 0; i < 3; i++) {
		to->in[i] = c->in[i], to->kernel[i] = c->kernel[i], to->out[i] = c->out[i];
		to->stride[i] = c->stride[i], to->pad[i] = c->pad[i], to->dilation[i] = c->dilation[i];
	}
	to->x_buf = c->x_buf, to->w_buf = c->w_buf, to->y_buf = c->y_buf, to->bias_buf = c->bias_buf;
	to->x_offset_bytes = c->x_offset_bytes, to->w_offset_bytes = c->w_offset_bytes;
	to->y_offset_bytes = c->y_offset_bytes, to->bias_offset_bytes = c->bias_offset_bytes;
	to->epilogue = c->epilogue;
	to->workspace_bytes = c->workspace_bytes;
	to->choice = c->choice;
}

static int count_words(const char *s)
{
	int n = *s != 0;
	for (; *s; s++)
		n += *s == ' ';
	return n;
}

static int add_buffers(struct ww_plan *p, const char *names, const int *buf)
{
	int n = count_words(names);
	if (n && !buf)
		fail(p, 0, "ww_pytorch(): \"%.100s\" without buffers", names);
	for (int i = 0; i < n && !p->failed; i++) {
		struct ww_image_arg *a = grow(p, &p->args, 1);
		if (a)
			a->kind = WW_ARG_BUF, a->buf = buf[i];
	}
	return n;
}

void ww_pytorch(struct ww_plan *p, const struct ww_pytorch *t)
{
	if (!t || !t->nodes || !t->reads || !t->writes)
		fail(p, 0, "ww_pytorch() without names");
	struct ww_image_node *n = add_node(p, WW_NODE_PYTORCH);
	if (!n)
		return;
	struct ww_image_pytorch to = { .first_arg = (uint32_t)p->args.n };
	to.nodes = add_string(p, t->nodes), to.reads = add_string(p, t->reads), to.writes = add_string(p, t->writes);
	to.n_args = (uint32_t)(add_buffers(p, t->reads, t->read_buf) + add_buffers(p, t->writes, t->write_buf));
	n->pytorch = to;
}

/* ---- The image --------------------------------------------------------------------------------------------------- */

static size_t reserve(size_t *at, const struct list *l)
{
	size_t here = (*at + 7) & ~(size_t)7;
	*at = here + l->n * l->size;
	return here;
}

struct ww_image *ww_plan_image(struct ww_plan *p, const char **limit)
{
	size_t at = sizeof(struct ww_image);
	struct ww_image h = { .magic = WW_IMAGE_MAGIC, .abi = WW_PLAN_ABI, .target = (uint32_t)p->facts->device.target };
	const struct {
		struct list *l;
		uint32_t *n, *where;
	} parts[] = { { &p->buffers, &h.n_buffers, &h.buffers_at }, { &p->nodes, &h.n_nodes, &h.nodes_at },
		{ &p->args, &h.n_args, &h.args_at }, { &p->tmaps, &h.n_tmaps, &h.tmaps_at },
		{ &p->macros, &h.n_macros, &h.macros_at }, { &p->strings, &h.strings_bytes, &h.strings_at } };
	*limit = NULL;
	overlap_launches(p);
	for (size_t i = 0; i < WW_ARRAY_LEN(parts); i++) {
		*parts[i].n = (uint32_t)parts[i].l->n;
		*parts[i].where = (uint32_t)reserve(&at, parts[i].l);
	}
	if (at > WW_IMAGE_MAX_BYTES) {
		*limit = "the plan is larger than 16 MiB";
		return NULL;
	}
	h.total_bytes = (uint32_t)at;
	char *m = calloc(1, at);
	if (!m) {
		*limit = "out of memory";
		return NULL;
	}
	memcpy(m, &h, sizeof(h));
	for (size_t i = 0; i < WW_ARRAY_LEN(parts); i++)
		if (parts[i].l->n)
			memcpy(m + *parts[i].where, parts[i].l->p, parts[i].l->n * parts[i].l->size);
	return (struct ww_image *)(void *)m;
}

/* ---- What plan.c is linked against ------------------------------------------------------------------------------- */

/* Conversions that TinyCC leaves to its run-time library on x86-64, and the memory functions that it calls for
 * structures. */
static unsigned long long fixunssfdi(float v) { return (unsigned long long)v; }
static unsigned long long fixunsdfdi(double v) { return (unsigned long long)v; }
static unsigned long long fixunsxfdi(long double v) { return (unsigned long long)v; }
static long long fixsfdi(float v) { return (long long)v; }
static long long fixdfdi(double v) { return (long long)v; }
static long long fixxfdi(long double v) { return (long long)v; }
static float floatundisf(unsigned long long v) { return (float)v; }
static double floatundidf(unsigned long long v) { return (double)v; }
static long double floatundixf(unsigned long long v) { return (long double)v; }

#define F(name) { #name, (const void *)(uintptr_t)name }
#define AS(name, f) { name, (const void *)(uintptr_t)f }
const struct ww_plan_symbol ww_plan_symbols[] = { F(ww_input_count), F(ww_output_count), F(ww_scalar_count),
	F(ww_input), F(ww_param), F(ww_output), F(ww_scalar), F(ww_device), F(ww_fail), F(ww_define), F(ww_fmt),
	F(ww_scratch), F(ww_launch), F(ww_shared), F(ww_cluster), F(ww_cooperative), F(ww_pdl), F(ww_pdl_all),
	F(ww_arg_buf), F(ww_arg_i32), F(ww_arg_i64), F(ww_arg_f32), F(ww_arg_f64), F(ww_arg_tmap), F(ww_memset), F(ww_copy),
	F(ww_gemm), F(ww_conv), F(ww_pytorch), F(memcpy), F(memset), F(memmove), F(memcmp), F(strlen), F(strcmp),
	AS("__fixunssfdi", fixunssfdi), AS("__fixunsdfdi", fixunsdfdi), AS("__fixunsxfdi", fixunsxfdi),
	AS("__fixsfdi", fixsfdi), AS("__fixdfdi", fixdfdi), AS("__fixxfdi", fixxfdi), AS("__floatundisf", floatundisf),
	AS("__floatundidf", floatundidf), AS("__floatundixf", floatundixf), { NULL, NULL } };
