#include "base/hash.h"

#include <sha2.h>
#include <stdint.h>

static void finish(SHA2_CTX *ctx, char out[WW_HASH_HEX])
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	static const char digits[] = "0123456789abcdef";
	SHA256Final(digest, ctx);
	for (size_t i = 0; i < sizeof(digest); i++) {
		out[2 * i] = digits[digest[i] >> 4];
		out[2 * i + 1] = digits[digest[i] & 15];
	}
	out[2 * sizeof(digest)] = 0;
}

void ww_hash_hex(const void *bytes, size_t n, char out[WW_HASH_HEX])
{
	SHA2_CTX ctx;
	SHA256Init(&ctx);
	SHA256Update(&ctx, bytes, n);
	finish(&ctx, out);
}

void ww_hash_parts_hex(const struct ww_hash_part *parts, size_t count, char out[WW_HASH_HEX])
{
	SHA2_CTX ctx;
	SHA256Init(&ctx);
	for (size_t i = 0; i < count; i++) {
		uint64_t n = parts[i].n;
		uint8_t le[8];
		for (int b = 0; b < 8; b++)
			le[b] = (uint8_t)(n >> (8 * b));
		SHA256Update(&ctx, le, sizeof(le));
		if (parts[i].n)
			SHA256Update(&ctx, parts[i].p, parts[i].n);
	}
	finish(&ctx, out);
}

uint64_t ww_hash_fnv(const void *bytes, size_t n)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
	return h;
}
