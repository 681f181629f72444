/* image_print.c - a plan as text: what `judge --show-plan` prints, and what a policy sees of the plan it wrote.
 *
 * One line a node.  The image must have been validated; kernel names are printable by then, names of tensors come from
 * the task and are cleaned here.
 */
#include "judge/image_internal.h"

#include "base/dtype.h"
#include "base/target.h"

#include <string.h>

static const char *const math_names[] = { "fp32", "tf32", "fp16", "bf16" };
static const char *const epilogue_names[] = { "", ", bias", ", relu", ", bias, relu" };

/* "x", "fc.weight", "output0", "scratch2", with "+1024" where an offset is given. */
static void print_place(
	const struct ww_image *m, const struct ww_facts *f, int buf, long long offset, struct ww_str *out)
{
	const struct ww_image_buffer *b = &ww_image_buffers(m)[buf];
	const struct ww_tensor *t = b->role == WW_BUF_INPUT ? &f->inputs[b->index]
		: b->role == WW_BUF_PARAM                       ? &f->params[b->index]
		: b->role == WW_BUF_OUTPUT                      ? &f->outputs[b->index]
														: NULL;
	if (t && t->name && t->name[0])
		ww_str_add_bounded(out, t->name, strlen(t->name), 128);
	else
		ww_str_addf(out, "%s%u", t ? "buffer" : "scratch", b->index);
	if (offset)
		ww_str_addf(out, "+%lld", offset);
}

static void print_buffers(const struct ww_image *m, const struct ww_facts *f, struct ww_str *out)
{
	static const char *const roles[] = { "?", "input", "param", "output", "scratch" };
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		const struct ww_image_buffer *b = &ww_image_buffers(m)[i];
		ww_str_addf(out, "buffer %-3u %-7s ", i, roles[b->role]);
		print_place(m, f, (int)i, 0, out);
		ww_str_addf(out, "  %llu bytes\n", (unsigned long long)b->bytes);
	}
}

static void print_tmap(const struct ww_image *m, const struct ww_facts *f, const struct ww_tmap *t, struct ww_str *out)
{
	ww_str_adds(out, "tmap(");
	print_place(m, f, t->buf, t->offset_bytes, out);
	ww_str_addf(out, " %s", ww_dtype_short(t->dtype));
	for (int i = 0; i < t->rank; i++)
		ww_str_addf(out, "%s%lld", i ? "x" : " ", t->size[i]);
	for (int i = 1; i < t->rank; i++)
		ww_str_addf(out, "%s%lld", i > 1 ? "," : " strides ", t->stride_bytes[i]);
	for (int i = 0; i < t->rank; i++)
		ww_str_addf(out, "%s%d", i ? "x" : " box ", t->box[i]);
	for (int i = 0; i < t->rank; i++)
		if (t->elem_stride[i] > 1)
			ww_str_addf(out, " every %d of dimension %d", t->elem_stride[i], i);
	if (t->swizzle)
		ww_str_addf(out, " swizzle %d", 16 << t->swizzle);
	ww_str_adds(out, t->fill ? " fill nan)" : ")");
}

static void print_arg(
	const struct ww_image *m, const struct ww_facts *f, const struct ww_image_arg *a, struct ww_str *out)
{
	switch (a->kind) {
	case WW_ARG_BUF: print_place(m, f, a->buf, a->i, out); break;
	case WW_ARG_I32: ww_str_addf(out, "i32 %lld", (long long)a->i); break;
	case WW_ARG_I64: ww_str_addf(out, "i64 %lld", (long long)a->i); break;
	case WW_ARG_F32: ww_str_addf(out, "f32 %.9g", (double)a->f32); break;
	case WW_ARG_F64: ww_str_addf(out, "f64 %.17g", a->f64); break;
	case WW_ARG_TMAP: print_tmap(m, f, &ww_image_tmaps(m)[a->buf].t, out); break;
	}
}

static void print_launch(
	const struct ww_image *m, const struct ww_facts *f, const struct ww_image_launch *l, struct ww_str *out)
{
	ww_str_addf(out, "launch  %s  grid %lld,%lld,%lld", ww_image_string(m, l->kernel), (long long)l->grid[0],
		(long long)l->grid[1], (long long)l->grid[2]);
	if (m->target == WW_TARGET_CUDA)
		ww_str_addf(out, "  block %d,%d,%d", l->block[0], l->block[1], l->block[2]);
	if (l->cluster[0])
		ww_str_addf(out, "  cluster %d,%d,%d", l->cluster[0], l->cluster[1], l->cluster[2]);
	if (l->shared_bytes)
		ww_str_addf(out, "  shared %lld", (long long)l->shared_bytes);
	ww_str_addf(
		out, "%s%s  (", l->flags & WW_NODE_COOPERATIVE ? "  cooperative" : "", l->flags & WW_NODE_PDL ? "  pdl" : "");
	for (uint32_t i = 0; i < l->n_args; i++) {
		ww_str_adds(out, i ? ", " : "");
		print_arg(m, f, &ww_image_args(m)[l->first_arg + i], out);
	}
	ww_str_adds(out, ")\n");
}

static void print_mat(
	const struct ww_image *m, const struct ww_facts *f, const char *name, const struct ww_mat *x, struct ww_str *out)
{
	ww_str_addf(out, "  %s=", name);
	print_place(m, f, x->buf, x->offset_bytes, out);
	ww_str_addf(out, ":%s%s ld %lld", ww_dtype_short(x->dtype), x->trans ? "^T" : "", x->ld);
	if (x->batch_stride)
		ww_str_addf(out, " batch %lld", x->batch_stride);
}

static void print_gemm(const struct ww_image *m, const struct ww_facts *f, const struct ww_gemm *g, struct ww_str *out)
{
	ww_str_addf(out, "gemm    %lld x %lld x %lld", g->m, g->n, g->k);
	if (g->batch > 1)
		ww_str_addf(out, ", %lld times", g->batch);
	ww_str_addf(out, "  %s%s  alpha %g beta %g", math_names[g->math], epilogue_names[g->epilogue], g->alpha, g->beta);
	print_mat(m, f, "A", &g->a, out);
	print_mat(m, f, "B", &g->b, out);
	if (g->beta != 0)
		print_mat(m, f, "C", &g->c, out);
	print_mat(m, f, "D", &g->d, out);
	if (g->epilogue == WW_EPI_BIAS || g->epilogue == WW_EPI_BIAS_RELU) {
		ww_str_adds(out, "  bias=");
		print_place(m, f, g->bias_buf, g->bias_offset_bytes, out);
	}
	ww_str_addf(out, "  workspace %lld\n", g->workspace_bytes);
}

static void print_axes(const char *what, const long long *v, int n, struct ww_str *out)
{
	for (int i = 0; i < n; i++)
		ww_str_addf(out, "%s%lld", i ? "x" : what, v[i]);
}

static void print_conv(const struct ww_image *m, const struct ww_facts *f, const struct ww_conv *v, struct ww_str *out)
{
	ww_str_addf(out, "conv    %dd%s  %s %s%s  n %lld c %lld k %lld groups %d", v->nd,
		v->transposed ? " transposed" : "", ww_dtype_short(v->dtype), math_names[v->math], epilogue_names[v->epilogue],
		v->n, v->c, v->k, v->groups);
	print_axes("  in ", v->in, v->nd, out);
	print_axes(" kernel ", v->kernel, v->nd, out);
	print_axes(" out ", v->out, v->nd, out);
	for (int i = 0; i < v->nd; i++)
		ww_str_addf(out, "%s%d/%d/%d", i ? " " : "  stride/pad/dilation ", v->stride[i], v->pad[i], v->dilation[i]);
	ww_str_addf(out, "  %s  x=", v->layout == WW_LAYOUT_NHWC ? "nhwc" : "nchw");
	print_place(m, f, v->x_buf, v->x_offset_bytes, out);
	ww_str_adds(out, "  w=");
	print_place(m, f, v->w_buf, v->w_offset_bytes, out);
	ww_str_adds(out, "  y=");
	print_place(m, f, v->y_buf, v->y_offset_bytes, out);
	if (v->epilogue == WW_EPI_BIAS || v->epilogue == WW_EPI_BIAS_RELU) {
		ww_str_adds(out, "  bias=");
		print_place(m, f, v->bias_buf, v->bias_offset_bytes, out);
	}
	if (v->choice)
		ww_str_addf(out, "  choice %d", v->choice);
	ww_str_addf(out, "  workspace %lld\n", v->workspace_bytes);
}

static void print_pytorch(
	const struct ww_image *m, const struct ww_facts *f, const struct ww_image_pytorch *t, struct ww_str *out)
{
	ww_str_adds(out, "pytorch ");
	ww_str_add_bounded(out, ww_image_string(m, t->nodes), strlen(ww_image_string(m, t->nodes)), 400);
	ww_str_adds(out, "  (");
	for (uint32_t i = 0; i < t->n_args; i++) {
		ww_str_adds(out, i ? ", " : "");
		print_place(m, f, ww_image_args(m)[t->first_arg + i].buf, 0, out);
	}
	ww_str_adds(out, ")\n");
}

static void print_node(
	const struct ww_image *m, const struct ww_facts *f, const struct ww_image_node *n, struct ww_str *out)
{
	switch (n->kind) {
	case WW_NODE_LAUNCH: print_launch(m, f, &n->launch, out); break;
	case WW_NODE_MEMSET:
		ww_str_adds(out, "memset  ");
		print_place(m, f, n->set.buf, n->set.offset_bytes, out);
		ww_str_addf(out, "  %lld bytes to %d\n", (long long)n->set.bytes, n->set.byte);
		break;
	case WW_NODE_COPY:
		ww_str_adds(out, "copy    ");
		print_place(m, f, n->copy.src, n->copy.src_offset_bytes, out);
		ww_str_adds(out, " to ");
		print_place(m, f, n->copy.dst, n->copy.dst_offset_bytes, out);
		ww_str_addf(out, "  %lld bytes\n", (long long)n->copy.bytes);
		break;
	case WW_NODE_GEMM: print_gemm(m, f, &n->gemm, out); break;
	case WW_NODE_CONV: print_conv(m, f, &n->conv, out); break;
	case WW_NODE_PYTORCH: print_pytorch(m, f, &n->pytorch, out); break;
	}
}

void ww_image_print(const struct ww_image *m, const struct ww_facts *facts, struct ww_str *out)
{
	ww_str_addf(out, "plan of %u nodes for %s\n", m->n_nodes, ww_target_name((enum ww_target)m->target));
	for (uint32_t i = 0; i < m->n_macros; i++) {
		const struct ww_image_macro *x = &ww_image_macros(m)[i];
		ww_str_addf(out, "define %s %lld\n", ww_image_string(m, x->name), (long long)x->value);
	}
	print_buffers(m, facts, out);
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		ww_str_addf(out, "%4u  ", i);
		print_node(m, facts, &ww_image_nodes(m)[i], out);
	}
}
