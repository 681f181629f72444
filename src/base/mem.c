#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ww_free_at(void *pointer) { free(*(void **)pointer); }

enum ww_rc ww_nomem(struct ww_err *err) { return ww_err_set(err, WW_ERR_NOMEM, "out of memory"); }

enum ww_rc ww_mem_new(void *pointer, size_t n, size_t size, struct ww_err *err)
{
	void *p = calloc(n ? n : 1, size);
	memcpy(pointer, &p, sizeof(p));
	return p ? WW_OK : ww_nomem(err);
}

enum ww_rc ww_mem_grow(void *pointer, size_t n, size_t *cap, size_t size, struct ww_err *err)
{
	void *p;
	if (n < *cap)
		return WW_OK;
	size_t wide = *cap ? 2 * *cap : 16;
	memcpy(&p, pointer, sizeof(p));
	if (!(p = reallocarray(p, wide, size)))
		return ww_nomem(err);
	memset((char *)p + *cap * size, 0, (wide - *cap) * size);
	memcpy(pointer, &p, sizeof(p));
	*cap = wide;
	return WW_OK;
}
