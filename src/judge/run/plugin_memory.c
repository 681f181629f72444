/* plugin_memory.c - the cuda plug-in's buffers: guards around them, poison in them, digests of them.
 *
 * A buffer is one allocation, imported from the reference worker (inputs, parameters, outputs) or made here (scratch),
 * mapped in the middle of a larger reservation, so that there is at least one granule (2 MiB) of unmapped addresses on
 * both sides. Inputs and parameters are mapped read-only: a store to them is a fault.  Scratch ends at the end of its
 * mapping, as far as an alignment of 256 bytes lets it; what lies between the end of a buffer and the end of its last
 * granule holds a guard byte that is looked at after checked runs.
 *
 * Digests (repeat.c defines them) are computed by a kernel of ours on the candidate's stream: the sum is set to zero
 * after the candidate has ended and fetched before its next run begins, so that none of its kernels is alive while the
 * sum means anything.  The guards have a digest too: most often nothing has changed, and the device can tell without a
 * copy.  It is queued behind the call, as the digest of a repeat is, and waited for with it: where several processes
 * share the device, each wait hands it to another one. */
#include "judge/run/kernels_ptx.h"
#include "judge/run/plugin_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

static void memory_prop(struct ww_cuda *x, CUmemAllocationProp *p)
{
	memset(p, 0, sizeof(*p));
	p->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p->location.id = x->device;
}

/* Our own kernels are there before any candidate: the driver's compiler for PTX is a library that it loads now. */
int ww_cuda_memory_open(struct ww_cuda *x, struct ww_run_reply *r)
{
	CUmemAllocationProp prop;
	CUmodule module;
	void *behind;
	int kind = WW_RUN_OK;
	memory_prop(x, &prop);
	WW_CUDA_TRY(x->cuMemGetAllocationGranularity(&x->granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
		"cuMemGetAllocationGranularity");
	WW_CUDA_TRY(x->cuModuleLoadData(&module, ww_kernels_ptx), "the driver cannot compile the runner's kernels");
	WW_CUDA_TRY(x->cuModuleGetFunction(&x->digest, module, "ww_digest"), "digest");
	WW_CUDA_TRY(x->cuModuleGetFunction(&x->stamp, module, "ww_stamp"), "stamp");
	WW_CUDA_TRY(x->cuMemAlloc(&x->sum, 8), "memory for the digest");
	WW_CUDA_TRY(x->cuMemAllocHost(&behind, sizeof(*x->behind)), "memory for the digest");
	x->behind = behind;
	x->sm_count = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
out:
	return kind;
}

void ww_cuda_unmap(struct ww_cuda *x, struct ww_cuda_buffer *b)
{
	if (b->mapped)
		x->cuMemUnmap(b->map, b->map_bytes);
	if (b->reserve)
		x->cuMemAddressFree(b->reserve, b->reserve_bytes);
	b->mapped = 0;
	b->reserve = 0;
}

/* Map an allocation between two unmapped granules.  The handle is released here in any case. */
static int map_buffer(struct ww_cuda *x, struct ww_cuda_buffer *b, CUmemGenericAllocationHandle h, size_t map_bytes,
	int writable, struct ww_run_reply *r)
{
	CUmemAccessDesc access;
	int kind = WW_RUN_OK;

	b->map_bytes = map_bytes;
	b->reserve_bytes = map_bytes + 2 * x->granule;
	b->writable = writable;
	WW_CUDA_TRY(x->cuMemAddressReserve(&b->reserve, b->reserve_bytes, 0, 0, 0), "cuMemAddressReserve");
	b->map = b->reserve + x->granule;
	WW_CUDA_TRY(x->cuMemMap(b->map, map_bytes, 0, h, 0), "cuMemMap");
	b->mapped = 1;
	memset(&access, 0, sizeof(access));
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = x->device;
	access.flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
	WW_CUDA_TRY(x->cuMemSetAccess(b->map, map_bytes, &access, 1), "cuMemSetAccess");
out:
	x->cuMemRelease(h);
	return kind;
}

/* Fill what lies beside the buffer in its mapping. */
static int guard_buffer(struct ww_cuda *x, const struct ww_cuda_buffer *b, struct ww_run_reply *r)
{
	size_t front = (size_t)(b->data - b->map), behind = b->map_bytes - front - b->bytes;
	int kind = WW_RUN_OK;
	if (front)
		WW_CUDA_TRY(x->cuMemsetD8Async(b->map, WW_RUN_GUARD_BYTE, front, x->stream), "guard");
	if (behind)
		WW_CUDA_TRY(x->cuMemsetD8Async(b->data + b->bytes, WW_RUN_GUARD_BYTE, behind, x->stream), "guard");
out:
	return kind;
}

int ww_cuda_bind(void *self, const struct ww_run_bind *q, int fd, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	struct ww_cuda_buffer *b = &x->buffers[q->buf];
	CUmemGenericAllocationHandle h;
	int kind = WW_RUN_OK;

	WW_CUDA_TRY(x->cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		"cannot import a shared buffer");
	kind = map_buffer(x, b, h, q->map_bytes, (int)q->writable, r);
	if (kind != WW_RUN_OK)
		goto out;
	b->data = b->map + q->offset_bytes;
	b->bytes = q->bytes;
	if (b->writable)
		kind = guard_buffer(x, b, r);
out:
	return kind;
}

int ww_cuda_scratch(struct ww_cuda *x, struct ww_cuda_buffer *b, size_t bytes, struct ww_run_reply *r)
{
	CUmemAllocationProp prop;
	CUmemGenericAllocationHandle h;
	size_t n = (bytes ? bytes + x->granule - 1 : x->granule) / x->granule * x->granule;
	int kind = WW_RUN_OK;

	memory_prop(x, &prop);
	WW_CUDA_TRY(x->cuMemCreate(&h, n, &prop, 0), "scratch");
	kind = map_buffer(x, b, h, n, 1, r);
	if (kind != WW_RUN_OK)
		goto out;
	b->data = b->map + ((n - bytes) & ~(size_t)255);
	b->bytes = bytes;
	kind = guard_buffer(x, b, r);
out:
	return kind;
}

int ww_cuda_exact(struct ww_cuda *x, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK;
	for (uint32_t i = 0; i < x->image->n_buffers; i++) {
		struct ww_cuda_buffer *b = &x->buffers[i];
		CUdeviceptr p;
		WW_CUDA_TRY(x->cuMemAlloc(&p, b->bytes ? b->bytes : 1), "memory");
		if (!b->writable && b->bytes)
			WW_CUDA_TRY(x->cuMemcpyDtoDAsync(p, b->data, b->bytes, x->stream), "a copy");
		WW_CUDA_TRY(x->cuStreamSynchronize(x->stream), "a copy");
		ww_cuda_unmap(x, b);
		b->map = b->data = p;
		b->map_bytes = (b->bytes + 15) & ~(size_t)15; /* no guards */
	}
out:
	return kind;
}

CUresult ww_cuda_poison(struct ww_cuda *x)
{
	CUresult e = CUDA_SUCCESS;
	unsigned char byte = ww_run_poison(x->poisoned++);
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers; i++) {
		const struct ww_cuda_buffer *b = &x->buffers[i];
		if (b->writable && b->bytes)
			e = x->cuMemsetD8Async(b->data, byte, b->bytes, x->stream);
	}
	return e == CUDA_SUCCESS ? ww_cuda_tables_restore(x) : e;
}

/* ---- Digests ----------------------------------------------------------------------------------------------------- */

/* Add the digest of `bytes` bytes, a multiple of 16, to the sum. */
static CUresult queue_digest(struct ww_cuda *x, CUdeviceptr at, size_t bytes, uint64_t key)
{
	unsigned long long pairs = bytes / 16, blocks = (pairs + 255) / 256, most = 8ull * (unsigned)x->sm_count;
	void *args[] = { &at, &pairs, &key, &x->sum };
	if (!pairs)
		return CUDA_SUCCESS;
	return x->cuLaunchKernel(
		x->digest, (unsigned)(blocks < most ? blocks : most), 1, 1, 256, 1, 1, 0, x->stream, args, NULL);
}

static CUresult queue_sum(struct ww_cuda *x, CUresult e)
{
	return e == CUDA_SUCCESS ? x->cuMemcpyDtoHAsync(&x->behind->sum, x->sum, 8, x->stream) : e;
}

static CUresult take_sum(struct ww_cuda *x, CUresult e, uint64_t *out)
{
	if (e == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	*out = x->behind->sum;
	return e;
}

/* All outputs as they are when everything queued has ended.  Whole pairs of words: what lies behind a buffer in its
 * granule holds guard bytes. */
CUresult ww_cuda_digest_outputs(struct ww_cuda *x, uint64_t key, uint64_t *out)
{
	CUresult e = x->cuMemsetD8Async(x->sum, 0, 8, x->stream);
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers; i++) {
		const struct ww_cuda_buffer *b = &x->buffers[i];
		if (b->role == WW_BUF_OUTPUT)
			e = queue_digest(x, b->data, (b->bytes + 15) & ~(size_t)15, key + b->index);
	}
	return take_sum(x, queue_sum(x, e), out);
}

static CUdeviceptr guards_behind(const struct ww_cuda_buffer *b)
{
	return (b->data + b->bytes + 15) & ~(CUdeviceptr)15;
}

static CUresult queue_guards_sum(struct ww_cuda *x)
{
	CUresult e = x->cuMemsetD8Async(x->sum, 0, 8, x->stream);
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers; i++) {
		const struct ww_cuda_buffer *b = &x->buffers[i];
		if (!b->writable)
			continue;
		e = queue_digest(x, b->map, (size_t)(b->data - b->map), 2 * i);
		if (e == CUDA_SUCCESS)
			e = queue_digest(x, guards_behind(b), (size_t)(b->map + b->map_bytes - guards_behind(b)), 2 * i + 1);
	}
	return queue_sum(x, e);
}

/* What lies beside the writable buffers, but for up to 15 bytes behind each. */
CUresult ww_cuda_digest_guards(struct ww_cuda *x, uint64_t *out) { return take_sum(x, queue_guards_sum(x), out); }

/* The bytes behind a buffer of which the digest has none: where they begin; their number into *n. */
static CUdeviceptr edge_of(const struct ww_cuda_buffer *b, size_t *n)
{
	CUdeviceptr end = b->data + b->bytes;
	*n = b->writable ? (size_t)(guards_behind(b) - end) : 0;
	return end;
}

CUresult ww_cuda_queue_guards(struct ww_cuda *x)
{
	CUresult e = queue_guards_sum(x);
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers && i < WW_CUDA_EDGES; i++) {
		size_t n;
		CUdeviceptr at = edge_of(&x->buffers[i], &n);
		if (n)
			e = x->cuMemcpyDtoHAsync(x->behind->edges[i], at, n, x->stream);
	}
	x->guards_queued = e == CUDA_SUCCESS;
	return e;
}

/* ---- Guards ------------------------------------------------------------------------------------------------------ */

static int all_guards(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != WW_RUN_GUARD_BYTE)
			return 0;
	return 1;
}

static int range_intact(struct ww_cuda *x, CUdeviceptr at, size_t n, unsigned char *host, CUresult *e)
{
	return (!n || (*e = x->cuMemcpyDtoH(host, at, n)) == CUDA_SUCCESS) && all_guards(host, n);
}

/* Most often nothing has changed, and the device can tell: no copy of megabytes, no loop over them on the host. */
static int guards_unchanged(struct ww_cuda *x)
{
	unsigned char edge[16];
	CUresult e = CUDA_SUCCESS;
	if (!x->guards_queued && (e = ww_cuda_queue_guards(x)) == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	x->guards_queued = 0;
	int same = e == CUDA_SUCCESS && x->behind->sum == x->guards;
	for (uint32_t i = 0; same && i < x->image->n_buffers; i++) {
		size_t n;
		CUdeviceptr at = edge_of(&x->buffers[i], &n);
		same = i < WW_CUDA_EDGES ? all_guards(x->behind->edges[i], n) : range_intact(x, at, n, edge, &e);
	}
	return same;
}

static int find_overrun(struct ww_cuda *x, unsigned char *host, struct ww_run_reply *r)
{
	CUresult e = CUDA_SUCCESS;
	for (uint32_t i = 0; i < x->image->n_buffers; i++) {
		const struct ww_cuda_buffer *b = &x->buffers[i];
		if (!b->writable)
			continue;
		/* Both gaps are smaller than a granule: an allocation is the buffer rounded up to one. */
		size_t front = (size_t)(b->data - b->map), behind = b->map_bytes - front - b->bytes;
		if (front > x->granule || behind > x->granule)
			return WW_RUN_BROKEN;
		if (range_intact(x, b->map, front, host, &e) && range_intact(x, b->data + b->bytes, behind, host, &e))
			continue;
		if (e != CUDA_SUCCESS)
			return ww_cuda_fault(x, r, e);
		snprintf(r->text, sizeof(r->text), "the bytes beside %s %u were overwritten",
			b->role == WW_BUF_OUTPUT ? "output" : "scratch", b->index);
		return WW_RUN_OVERRUN;
	}
	return WW_RUN_OK;
}

int ww_cuda_guards(void *self, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	if (guards_unchanged(x))
		return ww_cuda_tables_check(x, r);
	unsigned char *host = malloc(x->granule);
	int kind = host ? find_overrun(x, host, r) : WW_RUN_BROKEN;
	free(host);
	return kind;
}
