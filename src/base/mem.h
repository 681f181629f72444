/* mem.h - memory of a block, and arrays that grow. */
#pragma once

#include "base/err.h"

#include <stddef.h>

/* Call release(&variable) where the variable's block ends, however it is left:
 *     WW_AUTO(ww_ids_release) struct ww_ids ids = ...;
 *     ww_auto_free float *x = malloc(n);      free(); a json_t * is a json_auto_t */
#define WW_AUTO(release) __attribute__((cleanup(release)))
#define ww_auto_free WW_AUTO(ww_free_at)
void ww_free_at(void *pointer); /* free() what the pointer at this address points to */

/* `p` = n zeroed elements of its type; WW_ERR_NOMEM. */
#define WW_NEW(p, n, err) ww_mem_new((void *)&(p), (size_t)(n), sizeof(*(p)), err)
/* Room for at least `need` elements in `p`, where *cap are allocated; it doubles.  0: out of memory, all is as before.
 */
#define WW_GROW(p, cap, need) ww_mem_grow((void *)&(p), cap, (size_t)(need), sizeof(*(p)))

enum ww_rc ww_mem_new(void *pointer, size_t n, size_t size, struct ww_err *err) WW_MUST_CHECK;
int ww_mem_grow(void *pointer, size_t *cap, size_t need, size_t size) WW_MUST_CHECK;
enum ww_rc ww_nomem(struct ww_err *err); /* WW_ERR_NOMEM, "out of memory" */
