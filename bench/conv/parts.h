/* parts.h - what library.c does for parts.cu. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct parts_conv {
	int n, c, k, h, w, r, pad;
};

enum { PARTS_WHY = 512 };

/* Chooses cuDNN's algorithm for c, choice 0 of a library node.  Returns the workspace's bytes; -1: why says. */
long long parts_library(const struct parts_conv *c, char *why);
int parts_library_issue(void *const *buffers, void *workspace, void *stream, char *why);
/* Width, height and images of the tile that a plan chooses. */
void parts_tile(int staged, int bn, long long n, long long oh, long long ow, int *tile);

#ifdef __cplusplus
}
#endif
