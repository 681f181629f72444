/* plan_host.c - <ww/plan.h> for a test: runs a plan.c and prints what it says as lines of words.
 *
 *     input|param|output NAME DTYPE RANK SIZE...     on stdin: the task's tensors, contiguous
 *     define NAME VALUE
 *     buffer BYTES                                   scratch, in order
 *     launch KERNEL GX GY GZ THREADS, then for it    arg buf NUMBER OFFSET | arg i32|i64|f32|f64 VALUE
 *     memset BUF OFFSET BYTES VALUE
 *     conv, and 40 numbers: struct ww_conv in its order
 *     pytorch READ WRITE                             buffers of an operator of one operand that has no rule
 *     other WHAT                                     a node that this test does not run */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ww/plan.h>

void plan(struct ww_plan *p);

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

static const struct ww_tensor *find(struct ww_plan *p, char kind, int index, const char *name)
{
	for (int i = 0; i < p->n; i++)
		if (p->kind[i] == kind && (name ? !strcmp(p->name[i], name) : !index--))
			return &p->tensor[i];
	fprintf(stderr, "the plan asks for %c %d %s\n", kind, index, name ? name : "");
	exit(1);
}

const struct ww_tensor *ww_input(struct ww_plan *p, int i) { return find(p, 'i', i, NULL); }
const struct ww_tensor *ww_output(struct ww_plan *p, int i) { return find(p, 'o', i, NULL); }
const struct ww_tensor *ww_param(struct ww_plan *p, const char *name) { return find(p, 'p', 0, name); }
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

void ww_shared(struct ww_plan *p, long long bytes) { (void)p, (void)bytes; } /* all that a block may have is there */
void ww_cluster(struct ww_plan *p, int x, int y, int z)
{
	printf("other cluster\n"), (void)p, (void)x, (void)y, (void)z;
}
void ww_cooperative(struct ww_plan *p) { printf("other cooperative\n"), (void)p; }
void ww_pdl(struct ww_plan *p) { (void)p; }
void ww_arg_buf(struct ww_plan *p, int buf, long long offset) { printf("arg buf %d %lld\n", buf, offset), (void)p; }
void ww_arg_i32(struct ww_plan *p, int v) { printf("arg i32 %d\n", v), (void)p; }
void ww_arg_i64(struct ww_plan *p, long long v) { printf("arg i64 %lldLL\n", v), (void)p; }
void ww_arg_f32(struct ww_plan *p, float v) { printf("arg f32 %.9gf\n", (double)v), (void)p; }
void ww_arg_f64(struct ww_plan *p, double v) { printf("arg f64 %.17g\n", v), (void)p; }
void ww_arg_tmap(struct ww_plan *p, const struct ww_tmap *t) { printf("other tensor map\n"), (void)p, (void)t; }
void ww_gemm(struct ww_plan *p, const struct ww_gemm *g) { printf("other product\n"), (void)p, (void)g; }

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

void ww_pytorch(struct ww_plan *p, const struct ww_pytorch *t)
{
	(void)p;
	if (!*t->reads || strchr(t->reads, ' ') || strchr(t->nodes, ' '))
		printf("other operators of PyTorch\n");
	else
		printf("pytorch %d %d\n", t->read_buf[0], t->write_buf[0]);
}

void ww_conv(struct ww_plan *p, const struct ww_conv *c)
{
	(void)p;
	printf("conv %d %d %d %d %lld %lld %lld", c->nd, c->transposed, c->layout, c->groups, c->n, c->c, c->k);
	for (int i = 0; i < 3; i++)
		printf(" %lld %lld %lld %d %d %d", c->in[i], c->kernel[i], c->out[i], c->stride[i], c->pad[i], c->dilation[i]);
	printf(" %d %lld %d %lld %d %lld\n", c->x_buf, c->x_offset_bytes, c->w_buf, c->w_offset_bytes, c->y_buf,
		c->y_offset_bytes);
}

static const struct type {
	const char *name;
	int dtype, bytes;
} types[] = { { "float32", WW_F32, 4 }, { "float16", WW_F16, 2 }, { "bfloat16", WW_BF16, 2 }, { "int64", WW_I64, 8 },
	{ "bool", WW_BOOL, 1 }, { 0 } };

int main(void)
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
	plan(&p);
	return 0;
}
