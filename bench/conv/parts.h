/* parts.h - what library.c does for parts.cu. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct parts_conv {
	int n, c, k, h, w, r, pad;
};

enum { PARTS_WHY = 512 };

/* Chooses cuDNN's algorithm for c, choice 0 of a library node, of fp32 or of halves.  Returns the workspace's bytes;
 * -1: why says. */
long long parts_library(const struct parts_conv *c, int half, char *why);
int parts_library_issue(void *const *buffers, void *workspace, void *stream, char *why);
/* Microseconds of conv_tc by the estimate, with this end (enum ww_conv_end), filters, and width, height and images of a
 * tile; the end, and the tile, that a plan chooses. */
double parts_estimate(const struct parts_conv *c, int end, int filters, const int *tile);
int parts_choice(const struct parts_conv *c, int *tile);
/* The RUNS of after_halves. */
int parts_runs(long long rows, long long cols);

#ifdef __cplusplus
}
#endif
