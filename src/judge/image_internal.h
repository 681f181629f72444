/* image_internal.h - what image_validate.c and image_library.c share. */
#pragma once

#include "judge/image.h"

/* Sizes and products of them never overflow in here: 63-bit factors, at most three of them at once beyond a bound
 * check. */
__extension__ typedef __int128 ww_wide;

struct ww_check {
	const struct ww_image *m;
	size_t bytes;
	const struct ww_facts *facts;
	struct ww_str *why;
	int node;                     /* the one being checked; -1: none yet */
	uint32_t next_arg, next_tmap; /* arguments and tensor maps belong to launches in order, none twice */
};

/* Say why and return 0.  The node's number and kind are put before the text. */
int ww_check_no(struct ww_check *c, const char *fmt, ...) WW_PRINTF(2, 3);
#define WW_NEED(c, cond, ...) do { if (!(cond)) return ww_check_no((c), __VA_ARGS__); } while (0)

/* [offset, offset + bytes) lies in buffer buf; with write set the buffer is an output or scratch. */
int ww_check_range(struct ww_check *c, const char *what, int buf, long long offset, ww_wide bytes, int write);
/* Whether two ranges of (buffer, start, length) share a byte. */
int ww_ranges_meet(int buf_a, long long at_a, ww_wide bytes_a, int buf_b, long long at_b, ww_wide bytes_b);

int ww_check_gemm(struct ww_check *c, const struct ww_gemm *g);
int ww_check_conv(struct ww_check *c, const struct ww_conv *v);
int ww_check_tmap(struct ww_check *c, const struct ww_tmap *t);
