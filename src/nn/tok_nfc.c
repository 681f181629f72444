/* tok_nfc.c - canonical composition (NFC) as Hugging Face's `tokenizers` does it.
 *
 * That library's tables are those of Unicode 9.  To it, a combining mark of a later version is a letter: it is neither
 * put in order with the marks beside it nor composed.  Models were trained on ids that were made so.  utf8proc knows
 * later versions, so a text is normalised in the pieces between such characters, and they are copied as they are.
 */
#include "nn/tok_internal.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Characters after Unicode 9 that combine or compose (Unicode 18), as ranges; where a whole block is new, the block. */
static const struct {
	uint32_t first, last;
} later[] = { { 0x5c8, 0x5c9 }, { 0x7fd, 0x7fd }, { 0x897, 0x89f }, { 0x8ca, 0x8d3 }, { 0x9fe, 0x9fe },
	{ 0xc3c, 0xc3c }, { 0xd3b, 0xd3c }, { 0xeba, 0xeba }, { 0x1715, 0x1715 }, { 0x1abf, 0x1af0 }, { 0x1df6, 0x1dfa },
	{ 0xa82c, 0xa82c }, { 0x105c0, 0x105ff }, { 0x10d24, 0x10d27 }, { 0x10d69, 0x10d6d }, { 0x10eab, 0x10eac },
	{ 0x10ecb, 0x10ecf }, { 0x10ef0, 0x10eff }, { 0x10f46, 0x10f50 }, { 0x10f82, 0x10f85 }, { 0x11070, 0x11070 },
	{ 0x1133b, 0x1133b }, { 0x11380, 0x113ff }, { 0x1145e, 0x1145e }, { 0x11839, 0x1183a }, { 0x11900, 0x1195f },
	{ 0x119e0, 0x119e0 }, { 0x11a34, 0x11a34 }, { 0x11a47, 0x11a47 }, { 0x11a99, 0x11a99 }, { 0x11d42, 0x11d42 },
	{ 0x11d44, 0x11d45 }, { 0x11d97, 0x11d97 }, { 0x11f41, 0x11f42 }, { 0x16100, 0x1613f }, { 0x16d40, 0x16d7f },
	{ 0x16ff0, 0x16ff1 }, { 0x1d127, 0x1d128 }, { 0x1d250, 0x1d252 }, { 0x1d25b, 0x1d25c }, { 0x1d25f, 0x1d25f },
	{ 0x1d280, 0x1d281 }, { 0x1e08f, 0x1e08f }, { 0x1e130, 0x1e136 }, { 0x1e2ae, 0x1e2ae }, { 0x1e2ec, 0x1e2ef },
	{ 0x1e4ec, 0x1e4ef }, { 0x1e5ee, 0x1e5ef }, { 0x1e6e3, 0x1e6f5 } };

static int is_later(utf8proc_int32_t c)
{
	size_t low = 0, high = WW_ARRAY_LEN(later);
	while (low < high) {
		size_t mid = (low + high) / 2;
		if ((uint32_t)c > later[mid].last)
			low = mid + 1;
		else
			high = mid;
	}
	return c >= 0 && low < WW_ARRAY_LEN(later) && (uint32_t)c >= later[low].first;
}

/* Negative: an error of utf8proc. */
static utf8proc_ssize_t add_piece(const char *text, size_t n, struct ww_str *out)
{
	ww_auto_free utf8proc_uint8_t *p = NULL;
	utf8proc_ssize_t len = utf8proc_map(
		(const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &p, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (len > 0)
		ww_str_add(out, p, (size_t)len);
	return len;
}

enum ww_rc ww_tok_nfc(const char *text, size_t n, struct ww_str *out, struct ww_err *err)
{
	size_t done = 0;
	utf8proc_ssize_t got = 0;
	for (size_t at = 0; got >= 0 && at < n;) {
		utf8proc_int32_t c;
		utf8proc_ssize_t size = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
		size_t next = at + (size > 0 ? (size_t)size : 1);
		if (size > 1 && is_later(c)) {
			got = add_piece(text + done, at - done, out);
			ww_str_add(out, text + at, next - at);
			done = next;
		}
		at = next;
	}
	if (got >= 0)
		got = add_piece(text + done, n - done, out);
	if (got < 0 || out->cut)
		return ww_err_set(
			err, WW_ERR_NOMEM, "cannot normalise the text: %s", utf8proc_errmsg(got < 0 ? got : UTF8PROC_ERROR_NOMEM));
	return WW_OK;
}
