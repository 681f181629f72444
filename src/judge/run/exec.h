/* exec.h - replay a validated plan image on buffers that the caller owns.
 *
 * The only code that executes nodes: runners use it under the judge, and exported C libraries contain a copy of it
 * (exec_cpu.c or exec_cuda*.c, this header, image_data.h, ww/plan.h), so that what is exported is what was judged.
 * Therefore it depends on nothing else of this project and on nothing but libc, dlopen and (cuda) the types of
 * <cuda.h>.
 *
 * Functions return 0, or an enum ww_exec_error with one line of text in `why` (at least WW_EXEC_WHY bytes).
 */
#ifndef WW_JUDGE_RUN_EXEC_H
#define WW_JUDGE_RUN_EXEC_H

#include "judge/image_data.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WW_EXEC_WHY = 480 };
enum ww_exec_error {
	WW_EXEC_OK = 0,
	WW_EXEC_REFUSED,     /* the plan asks for what this device does not have (shared memory, residency, a kernel) */
	WW_EXEC_UNAVAILABLE, /* a library node whose library is missing on this machine */
	WW_EXEC_FAULT,       /* the device reported an error */
	WW_EXEC_NOMEM
};

struct ww_exec;
struct ww_exec_kernel {
	const char *kernel, *symbol;
}; /* the plan's name, the binary's */

/* The binary's name of a kernel: the plan's own where the list has none. */
static inline const char *ww_exec_symbol(const struct ww_exec_kernel *kernels, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(kernels[i].kernel, name))
			return kernels[i].symbol;
	return name;
}

/* Load an image and its binary (cubin, or the path of a shared object on cpu).  The image must stay in memory as long
 * as the ww_exec.  threads: cpu target, worker threads to start; cuda: ignored.  cuda: the context that is current is
 * used, and kernels, function attributes and library handles are prepared here, so that issuing does no more than
 * issue. */
int ww_exec_load(struct ww_exec **out, const struct ww_image *m, const void *binary, size_t binary_bytes,
	const struct ww_exec_kernel *kernels, int n_kernels, int threads, char *why);
/* Issue every node in order.  buffers[h] is the address of buffer h (scratch included).  cuda: on `stream` (a
 * CUstream), and returns without waiting; may be captured into a graph.  cpu: returns when everything is done; `stream`
 * is ignored. */
int ww_exec_issue(struct ww_exec *e, void *const *buffers, void *stream, char *why);
/* The nodes from..to-1 of it.  Nodes that PyTorch runs are left out by both. */
int ww_exec_issue_part(struct ww_exec *e, void *const *buffers, uint32_t from, uint32_t to, void *stream, char *why);
void ww_exec_free(struct ww_exec *e);

/* For a profile.  cuda only: issue one node; the CUfunction of a launch (NULL for other nodes). */
int ww_exec_issue_node(struct ww_exec *e, uint32_t node, void *const *buffers, void *stream, char *why);
void *ww_exec_function(const struct ww_exec *e, uint32_t node);
void *ww_exec_module(const struct ww_exec *e); /* the CUmodule; NULL where the plan launches nothing */
/* cpu only: from now on every thread calls mark() when it begins (done = 0) and ends (1) its part of a node; NULL: no
 * more. */
void ww_exec_watch(struct ww_exec *e, void (*mark)(void *ctx, uint32_t node, int thread, int done), void *ctx);

/* cpu only: open the library that the plan's library nodes need, where it is there.  ww_exec_load() does it too; before
 * it, where no file can be opened any more when that is called. */
void ww_exec_open_library(const struct ww_image *m);
/* cpu only, for the runner: the pool's size; run fn once on every thread (0 is the caller); a thread's shared memory
 * (NULL and 0 bytes where no launch asks for any); and the kernel that this thread is in, or NULL. */
int ww_exec_threads(const struct ww_exec *e);
void ww_exec_parallel(struct ww_exec *e, void (*fn)(void *ctx, int thread), void *ctx);
void *ww_exec_shared(struct ww_exec *e, int thread, size_t *bytes);
extern _Thread_local const char *ww_exec_kernel_name;

#endif
