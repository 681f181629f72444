/* price.h - what a call to a model costs. */
#pragma once

#include "policy/http/wire.h"

enum { WW_PRICE_BANDS_MAX = 4 };

/* USD for one token, by length of the prompt: the last band whose `from` is reached counts, for the whole call. */
struct ww_price_band {
	int64_t from;
	double input, cache_read, cache_write, output;
};
struct ww_price {
	int found, n_bands;
	struct ww_price_band bands[WW_PRICE_BANDS_MAX];
};

/* Look "policy:model" up in the text of a table, `where` its name for errors; *out is left alone where it is not
 * listed. */
enum ww_rc ww_price_find(
	const char *table, const char *where, const char *spec, struct ww_price *out, struct ww_err *err) WW_MUST_CHECK;
/* The same in the user's file (NULL: none), then, where `official`, in the table that comes with the program. */
enum ww_rc ww_price_load(
	const char *user_file, int official, const char *spec, struct ww_price *out, struct ww_err *err) WW_MUST_CHECK;
/* 0 where no table has the price. */
double ww_price_usd(const struct ww_price *p, const struct ww_wire_usage *u);
/* The most that a call with so many tokens can cost. */
double ww_price_most(const struct ww_price *p, int64_t prompt_tokens, int64_t reply_tokens);
