/* dl.h - the functions of a shared library that is loaded when it is first needed. */
#pragma once

#include <stddef.h>

struct ww_dl_symbol {
	const char *name;
	size_t offset; /* of its pointer in the table */
};

/* Load the first library of `names` (ends with NULL) and all symbols into the table; the handle, which lives as long as
 * the process, or NULL where a library or a symbol is missing. */
void *ww_dl_load(const char *const *names, const struct ww_dl_symbol *symbols, size_t n, void *table);
