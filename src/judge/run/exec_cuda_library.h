/* exec_cuda_library.h - the gemm and conv nodes of a plan on the cuda target, for exec_cuda.c; carried by exports like
 * it.
 *
 * Functions return 0, or an enum ww_exec_error with one line of text in `why` (at least WW_EXEC_WHY bytes). */
#ifndef WW_JUDGE_RUN_EXEC_CUDA_LIBRARY_H
#define WW_JUDGE_RUN_EXEC_CUDA_LIBRARY_H

#include "judge/image_data.h"

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

struct ww_library;

/* For the library nodes of m, which must stay in memory as long; NULL: out of memory.  Opens nothing yet. */
struct ww_library *ww_library_new(const struct ww_image *m);
/* Node number `node` is a gemm or a conv: open its library if need be, describe it, choose an algorithm within the
 * workspace that the node plans and within `room` bytes.  What it needs comes back. */
int ww_library_load(struct ww_library *l, uint32_t node, size_t room, size_t *workspace_bytes, char *why);
/* Issue a loaded node on `stream`; workspace: device memory of at least what ww_library_load() said. */
int ww_library_issue(struct ww_library *l, uint32_t node, void *const *buffers, void *workspace, size_t workspace_bytes,
	CUstream stream, char *why);
void ww_library_free(struct ww_library *l);

#endif
