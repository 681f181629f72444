/* copies.h - is a solution's own code a copy of a library's?
 *
 * Problem.  Code counts as the solution's own where it lies in a file of its own (sampler.h).  That can be a library's
 * file under another name, a static library that was linked into an extension, or pages that were copied.
 *
 * Way.  The code of PyTorch, numpy, scipy and the machine's libraries for arithmetic is read once.  Where four bytes
 * have a certain hash, one place in 256 on average, a hash of the 24 bytes from there on is noted in a bitmap.  Such
 * places depend on the code alone, so a copy has them too, wherever it lies.  Code is a copy where most of its places
 * are noted.
 *
 * What it misses: code that was translated or compiled again. */
#pragma once

#include "base/err.h"
#include "store/store.h"

#include <stddef.h>

struct ww_copies;
/* Of the libraries beside this Python program; from the store where it has them.  With none of them: an empty one. */
enum ww_rc ww_copies_open(
	struct ww_copies **out, struct ww_store *store, const char *python, struct ww_err *err) WW_MUST_CHECK;
void ww_copies_close(struct ww_copies *c);
/* Whether `n` bytes of code are a library's, n about 4096; 0 where they are too few to tell. */
int ww_copies_has(const struct ww_copies *c, const unsigned char *code, size_t n);
