/* hash.h - content addresses: SHA-256 (FIPS 180-4, by libmd) as 64 lower-case hexadecimal digits. */
#pragma once

#include <stddef.h>

enum { WW_HASH_HEX = 65 }; /* 64 digits and the NUL */

void ww_hash_hex(const void *bytes, size_t n, char out[WW_HASH_HEX]);
/* Hash of several parts: each part's length goes in before its bytes, so that no two lists of parts collide. */
struct ww_hash_part {
	const void *p;
	size_t n;
};
void ww_hash_parts_hex(const struct ww_hash_part *parts, size_t count, char out[WW_HASH_HEX]);
