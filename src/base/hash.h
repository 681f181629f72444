/* hash.h - content addresses: SHA-256 (FIPS 180-4, by libmd) as 64 lower-case hexadecimal digits; and 64-bit hashes for
 * tables and sets, which are fast and not collision-resistant. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { WW_HASH_HEX = 65 }; /* 64 digits and the NUL */

void ww_hash_hex(const void *bytes, size_t n, char out[WW_HASH_HEX]);
/* Hash of several parts: each part's length goes in before its bytes, so that no two lists of parts collide. */
struct ww_hash_part {
	const void *p;
	size_t n;
};
void ww_hash_parts_hex(const struct ww_hash_part *parts, size_t count, char out[WW_HASH_HEX]);

/* FNV-1a (Fowler, Noll, Vo). */
uint64_t ww_hash_fnv(const void *bytes, size_t n);
/* Mix one more value into the hash h. */
static inline uint64_t ww_hash_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}
