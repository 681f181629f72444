/* binary_check.h - what compiled device code may contain.  Reads hostile ELF files: every offset and size in them is
 * checked. */
#pragma once

#include "base/str.h"

#include <stddef.h>

/* 1 where the cubin has no device globals but tables of at most 1 MiB, which hold a value, and calls nothing outside
 * itself (malloc, printf, device-side launches); else 0 and `why` names what was found. */
int ww_cubin_check(const void *bytes, size_t n, struct ww_str *why);
/* 1 where the shared object has no writable memory once it is loaded, runs nothing when it is loaded, imports only the
 * listed mathematical and memory functions, and has no system-call instruction at any offset of its code. */
int ww_so_check(const void *bytes, size_t n, struct ww_str *why);
int ww_so_has_system_call(const void *bytes, size_t n); /* the last of these alone */
/* Whether the binary defines the function `symbol` (a symbol table entry of type FUNC). */
int ww_cubin_has(const void *bytes, size_t n, const char *symbol);
int ww_so_has(const void *bytes, size_t n, const char *symbol);
