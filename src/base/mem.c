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

int ww_mem_grow(void *pointer, size_t *cap, size_t need, size_t size)
{
	void *p;
	size_t wide = *cap ? *cap : 16;
	if (need <= *cap)
		return 1;
	while (wide < need)
		wide *= 2;
	memcpy(&p, pointer, sizeof(p));
	if (!(p = reallocarray(p, wide, size)))
		return 0;
	memcpy(pointer, &p, sizeof(p));
	*cap = wide;
	return 1;
}
