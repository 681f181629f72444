/* plan_host.c - <ww/plan.h> for a test: runs the plan.c that its first argument names, and prints what it says as lines
 * of words.  TinyCC compiles it, as in the judge: in milliseconds, where a compiler and a linker take a tenth of a
 * second.  The other arguments are the folders of its headers.  Linked with -rdynamic: its functions are the plan's.
 *
 *     input|param|output NAME DTYPE RANK SIZE... STRIDE...   on stdin: the task's tensors
 *     define NAME VALUE
 *     buffer BYTES                                   scratch, in order
 *     launch KERNEL GX GY GZ THREADS, then for it    arg buf NUMBER OFFSET | arg i32|i64|f32|f64 VALUE,
 *                                                    arg tmap and 27 numbers: struct ww_tmap in its order,
 *                                                    cluster BLOCKS (0: cooperative), shared BYTES
 *     memset BUF OFFSET BYTES VALUE
 *     copy TO OFFSET FROM OFFSET BYTES
 *     gemm, and struct ww_gemm in its order, conv, and struct ww_conv: numbers
 *     pytorch NODES|READS|WRITES|READ_BUF...|WRITE_BUF...
 */
#include <libtcc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ww/plan.h>

enum { MAX = 4096 };
struct ww_plan {
	struct ww_tensor tensor[MAX];
	char kind[MAX], name[MAX][128];
	int n, scratch;
};
static struct ww_device device = { .target = WW_TARGET_CUDA,
	.cc = 90,
	.sm_count = 132,
	.warp_size = 32,
	.max_threads_per_block = 1024,
	.shared_per_block_bytes = 232448 };

static const struct type {
	const char *name;
	int dtype, bytes;
} types[] = { { "float32", WW_F32, 4 }, { "float64", WW_F64, 8 }, { "float16", WW_F16, 2 }, { "bfloat16", WW_BF16, 2 },
	{ "int8", WW_I8, 1 }, { "int16", WW_I16, 2 }, { "int32", WW_I32, 4 }, { "int64", WW_I64, 8 }, { "uint8", WW_U8, 1 },
	{ "bool", WW_BOOL, 1 }, { 0 } };

static int bytes_of(int dtype)
{
	for (const struct type *d = types; d->name; d++)
		if (d->dtype == dtype)
			return d->bytes;
	return 0;
}

static const struct ww_tensor *find(struct ww_plan *p, char kind, int index, const char *name)
{
	for (int i = 0; i < p->n; i++)
		if (p->kind[i] == kind && (name ? !strcmp(p->name[i], name) : !index--))
			return &p->tensor[i];
	fprintf(stderr, "the plan asks for %c %d %s\n", kind, index, name ? name : "");
	exit(1);
}

static int count(struct ww_plan *p, char kind)
{
	int n = 0;

	for (int i = 0; i < p->n; i++)
		n += p->kind[i] == kind;
	return n;
}

const struct ww_tensor *ww_input(struct ww_plan *p, int i) { return find(p, 'i', i, NULL); }
const struct ww_tensor *ww_output(struct ww_plan *p, int i) { return find(p, 'o', i, NULL); }
const struct ww_tensor *ww_param(struct ww_plan *p, const char *name) { return find(p, 'p', 0, name); }
int ww_input_count(struct ww_plan *p) { return count(p, 'i'); }
int ww_output_count(struct ww_plan *p) { return count(p, 'o'); }
int ww_scalar_count(struct ww_plan *p) { return (void)p, 0; }
const struct ww_scalar *ww_scalar(struct ww_plan *p, int i)
{
	static const struct ww_scalar none;
	(void)p, (void)i;
	return &none;
}
const struct ww_device *ww_device(struct ww_plan *p)
{
	(void)p;
	return &device;
}

void ww_fail(struct ww_plan *p, const char *why)
{
	(void)p;
	fprintf(stderr, "ww_fail: %s\n", why);
	exit(1);
}

void ww_define(struct ww_plan *p, const char *name, long long value)
{
	(void)p;
	printf("define %s %lld\n", name, value);
}

const char *ww_fmt(struct ww_plan *p, const char *format, ...)
{
	char *s = malloc(1024);
	va_list ap;
	(void)p;
	va_start(ap, format);
	vsnprintf(s, 1024, format, ap);
	va_end(ap);
	return s;
}

int ww_scratch(struct ww_plan *p, long long bytes)
{
	printf("buffer %lld\n", bytes);
	return p->n + p->scratch++;
}

void ww_launch(struct ww_plan *p, const char *kernel, long long gx, long long gy, long long gz, int bx, int by, int bz)
{
	(void)p;
	printf("launch %s %lld %lld %lld %d\n", kernel, gx, gy, gz, bx * by * bz);
}

void ww_shared(struct ww_plan *p, long long bytes) { printf("shared %lld\n", bytes), (void)p; }
void ww_cluster(struct ww_plan *p, int x, int y, int z) { printf("cluster %d\n", x * y * z), (void)p; }
void ww_cooperative(struct ww_plan *p) { printf("cluster 0\n"), (void)p; }
void ww_pdl(struct ww_plan *p) { (void)p; }
void ww_pdl_all(struct ww_plan *p) { (void)p; }
void ww_arg_buf(struct ww_plan *p, int buf, long long offset) { printf("arg buf %d %lld\n", buf, offset), (void)p; }
void ww_arg_i32(struct ww_plan *p, int v) { printf("arg i32 %d\n", v), (void)p; }
void ww_arg_i64(struct ww_plan *p, long long v) { printf("arg i64 %lldLL\n", v), (void)p; }
void ww_arg_f32(struct ww_plan *p, float v) { printf("arg f32 %af\n", (double)v), (void)p; }
void ww_arg_f64(struct ww_plan *p, double v) { printf("arg f64 %.17g\n", v), (void)p; }
void ww_arg_tmap(struct ww_plan *p, const struct ww_tmap *t)
{
	(void)p;
	printf("arg tmap %d %lld %d %d", t->buf, t->offset_bytes, t->dtype, t->rank);
	for (int i = 0; i < 5; i++)
		printf(" %lld %lld %d %d", t->size[i], i ? t->stride_bytes[i] : (long long)bytes_of(t->dtype), t->box[i],
			t->elem_stride[i] ? t->elem_stride[i] : 1);
	printf(" %d %d %d\n", t->swizzle, t->fill, bytes_of(t->dtype));
}

void ww_gemm(struct ww_plan *p, const struct ww_gemm *g)
{
	const struct ww_mat *m[] = { &g->a, &g->b, &g->c, &g->d };

	(void)p;
	printf("gemm %lld %lld %lld %lld", g->m, g->n, g->k, g->batch);
	for (int i = 0; i < 4; i++)
		printf(" %d %lld %d %d %lld %lld", m[i]->buf, m[i]->offset_bytes, m[i]->dtype, m[i]->trans, m[i]->ld,
			m[i]->batch_stride);
	printf(" %.17g %.17g %d %d %d %lld\n", g->alpha, g->beta, g->math, g->epilogue, g->bias_buf, g->bias_offset_bytes);
}

void ww_memset(struct ww_plan *p, int buf, long long offset, long long bytes, int byte)
{
	(void)p;
	printf("memset %d %lld %lld %d\n", buf, offset, bytes, byte);
}

void ww_copy(struct ww_plan *p, int dst, long long dst_offset, int src, long long src_offset, long long bytes)
{
	(void)p;
	printf("copy %d %lld %d %lld %lld\n", dst, dst_offset, src, src_offset, bytes);
}

static int words(const char *s)
{
	int n = *s != 0;

	while ((s = strchr(s, ' ')))
		s++, n++;
	return n;
}

void ww_pytorch(struct ww_plan *p, const struct ww_pytorch *t)
{
	(void)p;
	printf("pytorch %s|%s|%s|", t->nodes, t->reads, t->writes);
	for (int i = 0; i < words(t->reads); i++)
		printf("%d ", t->read_buf[i]);
	printf("|");
	for (int i = 0; i < words(t->writes); i++)
		printf("%d ", t->write_buf[i]);
	printf("\n");
}

void ww_conv(struct ww_plan *p, const struct ww_conv *c)
{
	(void)p;
	printf("conv %d %d %d %d %lld %lld %lld", c->nd, c->transposed, c->layout, c->groups, c->n, c->c, c->k);
	for (int i = 0; i < 3; i++)
		printf(" %lld %lld %lld %d %d %d", c->in[i], c->kernel[i], c->out[i], c->stride[i], c->pad[i], c->dilation[i]);
	printf(" %d %lld %d %lld %d %lld %d %d %d %d %lld\n", c->x_buf, c->x_offset_bytes, c->w_buf, c->w_offset_bytes,
		c->y_buf, c->y_offset_bytes, c->dtype, c->math, c->epilogue, c->bias_buf, c->bias_offset_bytes);
}

static void say(void *ctx, const char *text) { fprintf(stderr, "%s\n", text), (void)ctx; }

/* plan() of this file, compiled; its state lives as long as the program. */
static void (*compiled(const char *path, char **folders))(struct ww_plan *)
{
	TCCState *s = tcc_new();
	void (*plan)(struct ww_plan *) = NULL;

	if (!s)
		return NULL;
	tcc_set_error_func(s, NULL, say);
	tcc_set_output_type(s, TCC_OUTPUT_MEMORY);
	for (; *folders; folders++)
		tcc_add_include_path(s, *folders);
	if (tcc_add_file(s, path) < 0 || tcc_relocate(s, TCC_RELOCATE_AUTO) < 0)
		return NULL;
	void *f = tcc_get_symbol(s, "plan");
	memcpy(&plan, &f, sizeof(plan));
	return plan;
}

int main(int argc, char **argv)
{
	static struct ww_plan p;
	char kind[16], dtype[16];

	while (scanf("%15s %127s %15s", kind, p.name[p.n], dtype) == 3) {
		struct ww_tensor *t = &p.tensor[p.n];

		if (scanf("%d", &t->rank) != 1 || t->rank > WW_MAX_RANK)
			return 1;
		for (int i = 0; i < WW_MAX_RANK; i++)
			t->size[i] = 1;
		for (int i = 0; i < t->rank; i++)
			if (scanf("%lld", &t->size[i]) != 1)
				return 1;
		t->numel = t->contiguous = 1;
		for (int i = t->rank - 1; i >= 0; i--) {
			if (scanf("%lld", &t->stride[i]) != 1)
				return 1;
			t->contiguous &= t->size[i] == 1 || t->stride[i] == t->numel;
			t->numel *= t->size[i];
		}
		t->contiguous |= !t->numel;
		t->name = p.name[p.n];
		for (const struct type *d = types; d->name; d++)
			if (!strcmp(dtype, d->name))
				t->dtype = d->dtype, t->itemsize = d->bytes;
		if (!t->itemsize)
			return 1;
		t->bytes = t->numel * t->itemsize;
		t->buf = p.n;
		p.kind[p.n++] = kind[0];
	}
	void (*plan)(struct ww_plan *) = argc > 1 ? compiled(argv[1], argv + 2) : NULL;
	if (!plan)
		return 1;
	plan(&p);
	return 0;
}
