/* functor.c - what all kernels of anchors share: buffer pointers, functors, and the call of a template. */
#include "policy/planner/print/print.h"

#include <string.h>

/* The text with each @ replaced by the name of the kernel whose code runs. */
static const char *with_name(struct pl *pl, const struct kern *k, const char *text)
{
	const char *name = k->shared ? k->shared->name : k->name;
	struct ww_str s = pl_text(pl);

	for (; *text; text++)
		if (*text == '@')
			ww_str_adds(&s, name);
		else
			ww_str_addc(&s, *text);
	return s.p;
}

const char *pl_named(struct pl *pl, const struct kern *k, const char *fmt, ...)
{
	const char *r;
	va_list ap;

	va_start(ap, fmt);
	r = pl_vfmt(pl, with_name(pl, k, fmt), ap);
	va_end(ap);
	return r;
}

const char *pl_indent(struct pl *pl, const char *text, int tabs)
{
	struct ww_str s = pl_text(pl);

	for (const char *c = text; *c;) {
		const char *end = strchr(c, '\n');
		size_t n = end ? (size_t)(end - c) : strlen(c);

		for (int i = 0; i < tabs; i++)
			ww_str_addc(&s, '\t');
		ww_str_add(&s, c, n);
		ww_str_addc(&s, '\n');
		c += n + (end != NULL);
	}
	return s.p;
}

void pl_decode(
	struct pl *pl, struct ww_str *s, const char *tabs, const struct ix_atom *const *axis, int n, const char *lin)
{
	const struct ix *under = ix_const(pl, 1);
	const char *text[PL_MAX_RANK];

	for (int i = n - 1; i >= 0; i--) {
		const char *q = ix_is(under, 1) ? lin : pl_fmt(pl, "%s / %s", lin, ix_text(pl, under));

		text[i] = i == 0 ? q : pl_fmt(pl, "%s %% %s", q, ix_text(pl, axis[i]->b));
		under = ix_mul(pl, under, axis[i]->b);
	}
	for (int i = 0; i < n; i++)
		ww_str_addf(s, "%sconst ix_t %s = %s;\n", tabs, axis[i]->name, text[i]);
}

const char *pl_dtype_name(int dt)
{
	static const char *const names[] = { "", "WW_F32", "WW_F64", "WW_F16", "WW_BF16", "WW_I8", "WW_I16", "WW_I32",
		"WW_I64", "WW_U8", "WW_BOOL" };

	return names[dt];
}

const char *pl_math_name(int dt, const char *f32) { return dt == WW_F32 ? f32 : dt == WW_F16 ? "FP16" : "BF16"; }

const char *pl_plan_buf(struct pl *pl, const struct buf *b)
{
	return b->kind == B_SCRATCH ? b->name : pl_fmt(pl, "%s->buf", b->name);
}

const char *pl_bytes(struct pl *pl, const struct operand *o)
{
	return ix_text(pl, ix_mulc(pl, o->offset, pl_itemsize(o->buf->dt)));
}

const char *pl_plan_args(struct pl *pl, struct kern *k, const char *tabs)
{
	const char *s = "";

	for (int i = 0; i < k->n_arg; i++)
		s = pl_fmt(pl, "%s%sww_arg_buf(p, %s, %s);\n", s, tabs, pl_plan_buf(pl, k->arg[i]),
			k->arg_at[i] ? ix_text(pl, ix_mulc(pl, k->arg_at[i], pl_itemsize(k->arg[i]->dt))) : "0");
	return s;
}

const char *pl_axes(struct pl *pl, const struct kern *k, int from, int to, const char *lin)
{
	const struct val *out = k->anchor->out;
	const struct ix *under = ix_const(pl, 1);
	const char *s = "";

	for (int d = to - 1; d >= from; d--) {
		const struct ix_atom *a = ix_as_var(k->anchor_idx[d]);

		if (a)
			s = pl_fmt(pl, "%s\tconst ix_t %s = %s / %s %% %s;\n", s, a->name, lin, ix_text(pl, under),
				ix_text(pl, out->size[d]));
		under = ix_mul(pl, under, out->size[d]);
	}
	return s;
}

const char *pl_axis(struct pl *pl, const struct kern *k, int d, const char *name)
{
	const struct ix_atom *a = ix_as_var(k->anchor_idx[d]);

	return a ? pl_fmt(pl, "\tconst ix_t %s = %s;\n", a->name, name) : "";
}

const char *pl_var_or(const struct ix *x, const char *name) { return ix_as_var(x) ? ix_as_var(x)->name : name; }

/* The pointer type of argument i, as "const float *". */
static const char *pointer(struct pl *pl, const struct kern *k, int i)
{
	int out = 0;

	for (int o = 0; o < k->n_out; o++)
		out |= k->out[o]->root == k->arg[i] || k->out[o]->root->of == k->arg[i];
	return pl_fmt(pl, "%s%s *", out ? "" : "const ", pl_ctype(k->arg[i]->dt, pl->target));
}

static const char *fields(struct pl *pl, const struct kern *k)
{
	const char *s = "";

	for (int i = 0; i < k->n_arg; i++)
		s = pl_fmt(pl, "%s\t%s%s;\n", s, pointer(pl, k, i), k->arg[i]->name);
	return s;
}

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

void pl_cpu_pointers(struct pl *pl, struct kern *k, struct ww_str *s, const char *from)
{
	for (int i = 0; i < k->n_arg; i++) {
		const char *type = pointer(pl, k, i), *name = k->arg[i]->name;

		if (!strcmp(from, "arg"))
			ww_str_addf(s, "\t%sconst restrict %s = WW_ARG(%s, %d);\n", type, name, type, i);
		else
			ww_str_addf(s, "\t%sconst %s = %s->%s;\n", type, name, from, name);
	}
}

void pl_cpu_context(struct pl *pl, struct kern *k, struct ww_str *s)
{
	ww_str_addf(s, "/* %s */\nstruct %s {\n%s};\n\n", k->title, k->name, k->n_arg ? fields(pl, k) : "\tint unused;\n");
}

void pl_cpu_functor(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *head, const char *decl, const char *body)
{
	ww_str_addf(s, "WW_FN %s\n{\n\tconst struct %s *c = ctx;\n", with_name(pl, k, head), k->name);
	pl_cpu_pointers(pl, k, s, "c");
	ww_str_addf(s, "%s\n%s}\n\n", decl, pl_indent(pl, body, 1));
}

const char *pl_cpu_suffix(int dt) { return dt == WW_F16 ? "_f16" : dt == WW_BF16 ? "_bf16" : ""; }

void pl_cpu_kernel(struct pl *pl, struct kern *k, struct ww_str *s, const char *first, const char *call)
{
	const char *args = "";

	for (int i = 0; i < k->n_arg; i++)
		args = pl_fmt(pl, "%s%sWW_ARG(%s, %s + %d)", args, i ? ", " : "", pointer(pl, k, i), first, i);
	ww_str_adds(s,
		pl_named(pl, k, "WW_KERNEL(@)\n{\n\tconst struct @ c = { %s };\n\n\t%s;\n}\n\n", k->n_arg ? args : "0",
			with_name(pl, k, call)));
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

const char *pl_cuda_params(struct pl *pl, struct kern *k)
{
	const char *s = "";

	for (int i = 0; i < k->n_arg; i++)
		s = pl_fmt(pl, "%s%s%s__restrict__ %s", s, i ? ", " : "", pointer(pl, k, i), k->arg[i]->name);
	return s;
}

/* The names of parameters: "b, row" of "int b, int row". */
static const char *arguments(struct pl *pl, const char *params)
{
	struct ww_str s = pl_text(pl);

	while (*params) {
		size_t n = strcspn(params, ",");
		const char *name = params + n;

		while (name > params && name[-1] != ' ')
			name--;
		ww_str_add(&s, name, (size_t)(params + n - name));
		params += n;
		if (*params)
			ww_str_adds(&s, ", "), params++;
	}
	return s.p;
}

/* The functor's two steps: fetch() loads what store() reads, so that loads start before acc is complete (ww::ahead in
 * vec.cuh). */
static const char *in_two(struct pl *pl, const struct kern *k, const char *params, const char *decl)
{
	const struct loop *l = k->loop;
	const char *refs = pl_indent(pl, l->refs, 2);

	return pl_fmt(pl,
		"\ttemplate <int N> struct ahead {\n%s\t};\n"
		"\ttemplate <int N> __device__ void fetch(%s, ahead<N> &given) const\n\t{\n%s%s%s\t}\n"
		"\ttemplate <int N> __device__ void store(%s, const float (&acc)[N], ahead<N> &given) const\n\t{\n%s%s%s%s\t}\n",
		pl_indent(pl, l->ahead, 2), params, decl, refs, pl_indent(pl, l->fetch, 2), params, decl, refs,
		l->keeps ? "\t\tconst float (&own)[N] = given.own;\n" : "", pl_indent(pl, l->store, 2));
}

/* The step alone, of a template that asks for nothing ahead. */
static const char *in_one(struct pl *pl, const struct kern *k, const char *params, const char *decl)
{
	const char *names = arguments(pl, params);
	int two = k->loop->ahead != NULL;

	return pl_fmt(pl, "\ttemplate <int N> __device__ void store(%s, const float (&acc)[N]) const\n\t{\n%s%s\t}\n",
		params, two ? "" : decl,
		two ? pl_fmt(pl, "\t\tahead<N> given;\n\t\tfetch<N>(%s, given);\n\t\tstore<N>(%s, acc, given);\n", names, names)
			: pl_indent(pl, k->loop->store, 2));
}

void pl_cuda_functor(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *members, const char *params, const char *decl)
{
	ww_str_addf(s, "/* %s */\nstruct %s_f {\n%s%s%s%s};\n\n", k->title, k->name, fields(pl, k), members,
		k->loop->ahead ? in_two(pl, k, params, decl) : "", k->loop->keeps ? "" : in_one(pl, k, params, decl));
}

void pl_cuda_kernel(
	struct pl *pl, struct kern *k, struct ww_str *s, const char *bounds, const char *params, const char *call)
{
	const char *names = "";

	for (int i = 0; i < k->n_arg; i++)
		names = pl_fmt(pl, "%s%s%s", names, i ? ", " : "", k->arg[i]->name);
	ww_str_adds(s,
		with_name(pl, k,
			pl_fmt(pl, "extern \"C\" __global__ void __launch_bounds__(%s) @(%s%s%s)\n{\n%s\tww::%s, @_f{%s});\n}\n\n",
				bounds, params, k->n_arg ? ", " : "", pl_cuda_params(pl, k), pl_cuda_first(pl), call, names)));
}

void pl_cuda_pixel_functor(struct pl *pl, struct kern *k, struct ww_str *s)
{
	pl_cuda_functor(pl, k, s, "", "int image, int pix, int chan",
		pl_fmt(pl, "%s%s", pl_axis(pl, k, 0, "image"), pl_axes(pl, k, 2, k->anchor->out->rank, "pix")));
}

void pl_cuda_after_library(struct pl *pl, struct kern *k, struct ww_str *s, const char *template, const char *node,
	int dt, const struct ix *batch, const struct ix *rows, const struct ix *cols)
{
	const char *size = pl_fmt(pl, "%s, %s, %s", ix_text(pl, batch), ix_text(pl, rows), ix_text(pl, cols));

	pl_cuda_kernel(pl, k, s, "256", pl_fmt(pl, "const %s *library_y, long long library_rows", pl_ctype(dt, pl->target)),
		pl_fmt(pl, "%s<ix_t, @_ROWS, @_COLS, @_VEC, @_RUNS>(library_y, library_rows", template));
	k->launch = pl_named(pl, k,
		"\t{\n\t\tconst int library_y = ww_scratch(p, %d * (%s) * (%s) * (%s));\n\n%s"
		"\t\tww_recipe_%s(p, \"@\", library_y, %s, %d);\n%s\t}\n",
		pl_itemsize(dt), ix_text(pl, batch), ix_text(pl, rows), ix_text(pl, cols), node, template, size, k->loop->width,
		pl_plan_args(pl, k, "\t\t"));
}
