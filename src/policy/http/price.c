/* price.c - see price.h; the built-in table is src/policy/prices.txt, linked into the binary. */
#include "policy/http/price.h"

#include "base/fs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_MAX_BYTES = 1 << 20 };

__asm__(".section .rodata\n"
		"ww_prices_builtin:\n"
		".incbin \"" WW_PRICES_FILE "\"\n"
		".byte 0\n"
		".previous\n");
extern const char ww_prices_builtin[];

/* A spec without a date after its name: "-2026-03-05" or "-20260305". */
static size_t undated(const char *spec)
{
	static const char *const forms[] = { "-dddd-dd-dd", "-dddddddd" };
	size_t n = strlen(spec);
	for (size_t f = 0; f < WW_ARRAY_LEN(forms); f++) {
		size_t k = strlen(forms[f]), i = 0;
		if (n <= k)
			continue;
		while (i < k && (forms[f][i] == 'd' ? isdigit((unsigned char)spec[n - k + i]) != 0 : spec[n - k + i] == '-'))
			i++;
		if (i == k)
			return n - k;
	}
	return n;
}

static int parse_line(const char *p, struct ww_price_band *b)
{
	double v[5] = { 0 };
	int n = 0;
	char *end;
	for (; n < 5; n++, p = end) {
		v[n] = strtod(p, &end);
		if (end == p)
			break;
		if (!(v[n] >= 0 && v[n] < 1e9))
			return 0;
	}
	*b = (struct ww_price_band){ (int64_t)v[4], v[0] / 1e6, v[1] / 1e6, v[2] / 1e6, v[3] / 1e6 };
	return n >= 4 && !p[strspn(p, " \t\r")];
}

static enum ww_rc add_band(struct ww_price *out, const char *line, const char *where, int number, struct ww_err *err)
{
	struct ww_price_band b;
	int at = out->n_bands;
	if (!parse_line(line, &b))
		return ww_err_set(err, WW_ERR_USAGE,
			"%s: line %d: after the model come four prices for a million tokens, and maybe a "
			"number of tokens",
			where, number);
	if (at == WW_PRICE_BANDS_MAX)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s: line %d: more than %d lines for one model", where, number, WW_PRICE_BANDS_MAX);
	for (; at > 0 && out->bands[at - 1].from > b.from; at--)
		out->bands[at] = out->bands[at - 1];
	out->bands[at] = b;
	out->n_bands++;
	return WW_OK;
}

/* Lines whose name is spec[0..n-1]. */
static enum ww_rc find(
	const char *table, const char *where, const char *spec, size_t n, struct ww_price *out, struct ww_err *err)
{
	int number = 0;
	for (const char *p = table; *p;) {
		size_t len = strcspn(p, "\n");
		char line[512];
		number++;
		if (len >= sizeof(line))
			return ww_err_set(err, WW_ERR_USAGE, "%s: line %d is too long", where, number);
		memcpy(line, p, len);
		line[len] = 0;
		p += len + (p[len] == '\n');
		if (strlen(line) > n && !memcmp(line, spec, n) && strchr(" \t", line[n]))
			WW_CHECK(add_band(out, line + n, where, number, err));
	}
	out->found = out->n_bands > 0;
	return WW_OK;
}

enum ww_rc ww_price_find(
	const char *table, const char *where, const char *spec, struct ww_price *out, struct ww_err *err)
{
	enum ww_rc rc = find(table, where, spec, strlen(spec), out, err);
	return rc == WW_OK && !out->found ? find(table, where, spec, undated(spec), out, err) : rc;
}

enum ww_rc ww_price_load(
	const char *user_file, int official, const char *spec, struct ww_price *out, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(TABLE_MAX_BYTES);
	memset(out, 0, sizeof(*out));
	if (user_file) {
		WW_CHECK(ww_fs_read(user_file, TABLE_MAX_BYTES, &text, err));
		WW_CHECK(ww_price_find(text.p, user_file, spec, out, err));
	}
	if (!out->found && official)
		WW_CHECK(ww_price_find(ww_prices_builtin, "the built-in price table", spec, out, err));
	return WW_OK;
}

static const struct ww_price_band *band_for(const struct ww_price *p, int64_t prompt_tokens)
{
	const struct ww_price_band *b = &p->bands[0];
	for (int i = 1; i < p->n_bands && p->bands[i].from <= prompt_tokens; i++)
		b = &p->bands[i];
	return b;
}

double ww_price_usd(const struct ww_price *p, const struct ww_wire_usage *u)
{
	if (!p->found)
		return 0;
	const struct ww_price_band *b = band_for(p, u->input + u->cache_read + u->cache_write);
	return (double)u->input * b->input + (double)u->cache_read * b->cache_read +
		(double)u->cache_write * b->cache_write + (double)u->output * b->output;
}

double ww_price_most(const struct ww_price *p, int64_t prompt_tokens, int64_t reply_tokens)
{
	if (!p->found)
		return 0;
	const struct ww_price_band *b = band_for(p, prompt_tokens);
	double in = b->input > b->cache_write ? b->input : b->cache_write;
	return (double)prompt_tokens * in + (double)reply_tokens * b->output;
}
