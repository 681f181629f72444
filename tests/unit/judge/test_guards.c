/* Guard bytes and digests of the cuda plug-in (plugin_memory.c), with a driver that is host memory: each byte beside a
 * buffer that changes is found, and one wait is enough for a call and the look behind it.  budget: 1 CPU-second */
#include "unit.h"

#if __has_include(<cuda.h>)
#include "judge/run/plugin_parts.h"

enum { GRANULE = 4096, BUFFERS = 3, MANY = WW_CUDA_EDGES + 2, SHORT = 100 };
static int waits, copies, tables_checked;

int ww_cuda_attribute(struct ww_cuda *x, CUdevice_attribute a) { return (void)x, (void)a, 1; }

int ww_cuda_failed(struct ww_cuda *x, struct ww_run_reply *r, int kind, const char *what, CUresult e)
{
	return (void)x, (void)r, (void)what, (void)e, kind;
}

int ww_cuda_fault(struct ww_cuda *x, struct ww_run_reply *r, CUresult e)
{
	return ww_cuda_failed(x, r, WW_RUN_FAULT, "", e);
}

CUresult ww_cuda_tables_restore(struct ww_cuda *x) { return (void)x, CUDA_SUCCESS; }

int ww_cuda_tables_check(struct ww_cuda *x, struct ww_run_reply *r)
{
	tables_checked++;
	return (void)x, (void)r, WW_RUN_OK;
}

static CUresult fill(CUdeviceptr to, unsigned char byte, size_t n, CUstream s)
{
	(void)s;
	memset((void *)(uintptr_t)to, byte, n);
	return CUDA_SUCCESS;
}

static CUresult to_host(void *to, CUdeviceptr from, size_t n)
{
	copies++;
	memcpy(to, (void *)(uintptr_t)from, n);
	return CUDA_SUCCESS;
}

static CUresult to_host_queued(void *to, CUdeviceptr from, size_t n, CUstream s)
{
	(void)s;
	memcpy(to, (void *)(uintptr_t)from, n);
	return CUDA_SUCCESS;
}

static CUresult wait_all(CUstream s)
{
	(void)s;
	waits++;
	return CUDA_SUCCESS;
}

/* ww_digest (repeat.c has the formula). */
static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, CUstream s, void **args, void **extra)
{
	(void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)s, (void)extra;
	const unsigned char *p = *(void **)args[0];
	unsigned long long words = 2 * *(unsigned long long *)args[1];
	uint64_t key = *(uint64_t *)args[2], *sum = *(void **)args[3], w;
	for (unsigned long long i = 0; i < words; i++) {
		memcpy(&w, p + 8 * i, 8);
		w ^= key + i * 0x9e3779b97f4a7c15u;
		w = (w ^ w >> 32) * 0xd6e8feb86659fd93u;
		w = (w ^ w >> 32) * 0xd6e8feb86659fd93u;
		*sum += w ^ w >> 32;
	}
	return CUDA_SUCCESS;
}

static uint64_t sum;

/* n buffers of `bytes` bytes in a granule each, the first of them read-only; the last of all is scratch, at the end. */
static struct ww_cuda *plan(uint32_t n, size_t bytes)
{
	struct ww_cuda *x = test_calloc(1, sizeof(*x));
	struct ww_image *image = test_calloc(1, sizeof(*image));
	image->n_buffers = n;
	x->image = image;
	x->granule = GRANULE;
	x->sm_count = 1;
	x->cuMemsetD8Async = fill;
	x->cuMemcpyDtoH = to_host;
	x->cuMemcpyDtoHAsync = to_host_queued;
	x->cuStreamSynchronize = wait_all;
	x->cuLaunchKernel = launch;
	x->sum = (CUdeviceptr)(uintptr_t)&sum;
	x->behind = test_calloc(1, sizeof(*x->behind));
	x->buffers = test_calloc(n, sizeof(*x->buffers));
	for (uint32_t i = 0; i < n; i++) {
		struct ww_cuda_buffer *b = &x->buffers[i];
		unsigned char *map = test_calloc(1, GRANULE);
		memset(map, WW_RUN_GUARD_BYTE, GRANULE);
		b->map = (CUdeviceptr)(uintptr_t)map;
		b->map_bytes = GRANULE;
		b->bytes = bytes;
		b->data = b->map + (i + 1 == n ? (GRANULE - bytes) & ~(size_t)255 : 0);
		b->writable = i > 0;
		b->role = i + 1 == n ? WW_BUF_SCRATCH : i ? WW_BUF_OUTPUT : WW_BUF_INPUT;
	}
	assert_int_equal(ww_cuda_digest_guards(x, &x->guards), CUDA_SUCCESS);
	return x;
}

static void drop(struct ww_cuda *x)
{
	for (uint32_t i = 0; i < x->image->n_buffers; i++)
		test_free((void *)(uintptr_t)x->buffers[i].map);
	test_free(x->buffers);
	test_free(x->behind);
	test_free((void *)(uintptr_t)x->image);
	test_free(x);
}

/* As cuda_go() and the runner do, with the look behind the call, or after it (a call with a clock). */
static int look(struct ww_cuda *x, int queued, struct ww_run_reply *r)
{
	memset(r, 0, sizeof(*r));
	waits = copies = 0;
	if (queued)
		assert_int_equal(ww_cuda_queue_guards(x), CUDA_SUCCESS);
	assert_int_equal(x->cuStreamSynchronize(x->stream), CUDA_SUCCESS);
	return ww_cuda_guards(x, r);
}

static void every_byte_beside_a_buffer_is_looked_at(void **state)
{
	struct ww_run_reply r;
	(void)state;
	for (size_t bytes = SHORT; bytes < SHORT + 17; bytes++) {
		struct ww_cuda *x = plan(BUFFERS, bytes);
		for (int queued = 0; queued < 2; queued++)
			for (uint32_t i = 0; i < BUFFERS; i++) {
				const struct ww_cuda_buffer *b = &x->buffers[i];
				for (size_t at = 0; at < GRANULE; at += at < 2 * SHORT || at > GRANULE - 512 ? 1 : 97) {
					unsigned char *p = (unsigned char *)(uintptr_t)b->map + at, before = *p;
					int inside = b->map + at >= b->data && b->map + at < b->data + b->bytes;
					*p ^= 1;
					assert_int_equal(look(x, queued, &r), inside || !i ? WW_RUN_OK : WW_RUN_OVERRUN);
					assert_true(inside || !i || strstr(r.text, i + 1 == BUFFERS ? "scratch" : "output"));
					*p = before;
				}
			}
		drop(x);
	}
}

static void one_wait_for_a_call_and_the_look_behind_it(void **state)
{
	struct ww_run_reply r;
	(void)state;
	struct ww_cuda *x = plan(BUFFERS, SHORT + 1);
	tables_checked = 0;
	assert_int_equal(look(x, 1, &r), WW_RUN_OK);
	assert_int_equal(waits, 1);
	assert_int_equal(copies, 0);
	assert_int_equal(look(x, 0, &r), WW_RUN_OK); /* what was queued serves once */
	assert_int_equal(waits, 2);
	assert_int_equal(copies, 0);
	assert_int_equal(tables_checked, 2);
	drop(x);
}

/* Those that are not fetched behind the call are looked at all the same. */
static void more_buffers_than_edges(void **state)
{
	struct ww_run_reply r;
	(void)state;
	struct ww_cuda *x = plan(MANY, SHORT + 1);
	assert_int_equal(look(x, 1, &r), WW_RUN_OK);
	for (uint32_t i = 1; i < MANY; i++) {
		unsigned char *p = (unsigned char *)(uintptr_t)(x->buffers[i].data + x->buffers[i].bytes);
		*p ^= 1;
		assert_int_equal(look(x, 1, &r), WW_RUN_OVERRUN);
		*p ^= 1;
	}
	drop(x);
}

static void outputs_alone_are_digested(void **state)
{
	uint64_t before, now;
	(void)state;
	struct ww_cuda *x = plan(BUFFERS, SHORT);
	assert_int_equal(ww_cuda_digest_outputs(x, 7, &before), CUDA_SUCCESS);
	for (uint32_t i = 0; i < BUFFERS; i++) {
		*(unsigned char *)(uintptr_t)(x->buffers[i].data + SHORT - 1) ^= 1;
		assert_int_equal(ww_cuda_digest_outputs(x, 7, &now), CUDA_SUCCESS);
		assert_int_equal(now == before, i != 1);
		*(unsigned char *)(uintptr_t)(x->buffers[i].data + SHORT - 1) ^= 1;
	}
	drop(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_byte_beside_a_buffer_is_looked_at),
		cmocka_unit_test(one_wait_for_a_call_and_the_look_behind_it), cmocka_unit_test(more_buffers_than_edges),
		cmocka_unit_test(outputs_alone_are_digested) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	puts("# skip: no <cuda.h> here");
	return 77;
}
#endif
