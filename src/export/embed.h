/* embed.h - files that exports carry, linked into the binary at build time (module.cmake lists them).
 *
 * The program stays one file that can be moved, and what it writes into an export is the text that it was built from.
 */
#pragma once

#include <stddef.h>

struct ww_embedded {
	const char *path; /* relative to the source tree: "src/judge/run/exec.h" */
	const char *bytes;
	size_t n;
};
/* NULL where the path is not embedded. */
const struct ww_embedded *ww_embedded_find(const char *path);
