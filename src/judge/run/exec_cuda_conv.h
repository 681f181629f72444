/* exec_cuda_conv.h - conv nodes on the cuda target by cuDNN, for exec_cuda_library.c; carried by exports like it.
 *
 * Functions return 0, or an enum ww_exec_error with one line of text in `why` (at least WW_EXEC_WHY bytes). */
#ifndef WW_JUDGE_RUN_EXEC_CUDA_CONV_H
#define WW_JUDGE_RUN_EXEC_CUDA_CONV_H

#include "judge/image_data.h"

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

struct ww_dnn;      /* the library, open */
struct ww_dnn_conv; /* a node with its algorithm */

int ww_dnn_open(struct ww_dnn **out, char *why);
void ww_dnn_close(struct ww_dnn *d);
/* Describe convolution c and choose its algorithm among those that need no more than `limit` bytes of workspace; what
 * it needs comes back. */
int ww_dnn_load(struct ww_dnn *d, struct ww_dnn_conv **out, const struct ww_conv *c, size_t limit,
	size_t *workspace_bytes, char *why);
int ww_dnn_issue(struct ww_dnn *d, const struct ww_dnn_conv *s, const struct ww_conv *c, void *const *buffers,
	void *workspace, CUstream stream, char *why);
void ww_dnn_unload(struct ww_dnn *d, struct ww_dnn_conv *s);

#endif
