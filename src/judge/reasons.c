/* reasons.c - see reasons.h. */
#include "judge/reasons.h"

#include <string.h>

enum { RUN_TEXT_BYTES = 480 };

char *ww_reason_bounded(const struct ww_str *reasons)
{
	struct ww_str clean = WW_STR_INIT(WW_REASONS_MAX_BYTES + 256);
	ww_str_add_bounded(&clean, reasons->p, reasons->len, WW_REASONS_MAX_BYTES);
	return ww_str_take(&clean);
}

void ww_reason_build(enum ww_build_result r, const struct ww_str *text, struct ww_str *out)
{
	ww_str_addf(out, "%s\n", ww_build_result_text(r));
	ww_str_add_quoted(out, text->p, text->len, WW_BUILD_DIAG_BYTES);
}

void ww_reason_compile(enum ww_compile_result r, const char *log, struct ww_str *out)
{
	ww_str_addf(out, "%s\n", ww_compile_result_text(r));
	ww_str_add_quoted(out, log, strlen(log), WW_COMPILE_LOG_BYTES);
}

void ww_reason_run(const char *what, const char *stage, const char *text, struct ww_str *out)
{
	ww_str_addf(out, "%s (%s)%s\n", what, stage, *text ? ":" : "");
	ww_str_add_quoted(out, text, strlen(text), RUN_TEXT_BYTES);
}

/* ---- A wrong output ---------------------------------------------------------------------------------------------- */

static void add_index(struct ww_str *s, const int64_t *index, int rank)
{
	ww_str_addc(s, '[');
	for (int i = 0; i < rank && i < WW_MAX_RANK; i++)
		ww_str_addf(s, "%s%lld", i ? ", " : "", (long long)index[i]);
	ww_str_addc(s, ']');
}

struct words {
	const char *name, *text;
};

static const char *words_of(const struct words *w, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, w[i].name))
			return w[i].text;
	return "";
}

static const struct words wheres[] = { { "all", "nearly every element is wrong" },
	{ "tail", "the wrong elements are at the end: a tail or the last block is not covered" },
	{ "row ends", "the wrong elements are at the end of each row: the last columns are not covered" },
	{ "strided", "the wrong elements repeat at a fixed distance" },
	{ "single", "one element is wrong: a bound that is off by one, or a race" },
	{ "scattered", "the wrong elements are scattered: a race, or a condition on the data" },
	{ "accuracy", "no element is far off, the whole is too inaccurate: accumulate in higher precision" } };
static const struct words looks[] = {
	{ "nan", "they hold NaN: never written (outputs and scratch hold NaN bytes before many calls), or an overflow" },
	{ "unwritten", "they hold one byte throughout, as outputs and scratch do before a call: never written" },
	{ "zero", "they are zero" }, { "shifted", "each holds what belongs to its neighbour: an index that is off by one" }
};

static void add_pattern(const struct ww_ref_diff *d, struct ww_str *out)
{
	const char *where = words_of(wheres, WW_ARRAY_LEN(wheres), d->pattern),
			   *what = words_of(looks, WW_ARRAY_LEN(looks), d->looks);
	if (*where)
		ww_str_addf(out, "  pattern: %s%s%s\n", where, *what ? "; " : "", what);
}

void ww_reason_diff(const struct ww_ref_diff *d, int output, const char *when, struct ww_str *out)
{
	ww_str_addf(out, "output %d does not match (%s): ", output, when);
	if (d->violations)
		ww_str_addf(out, "%lld of %lld elements beyond the limit", (long long)d->violations, (long long)d->numel);
	else
		ww_str_addf(out, "the norm-wise error%s is too large", *d->part ? " of a part" : "");
	if (d->nonfinite)
		ww_str_addf(out, ", %lld of them NaN or Inf", (long long)d->nonfinite);
	ww_str_addf(out,
		"\n  relative error %.3g (limit %.3g, PyTorch's own %.3g); largest absolute error %.3g (limit %.3g, "
		"PyTorch's own %.3g)\n",
		d->err_rel, d->limit_rel, d->e_rel, d->err_abs, d->limit_abs, d->e_max);
	if (d->violations) {
		ww_str_adds(out, "  first at ");
		add_index(out, d->first, d->rank);
		ww_str_addf(out, ": expected %.9g, found %.9g\n  worst at ", d->first_expected, d->first_found);
		add_index(out, d->worst, d->rank);
		ww_str_addf(out, ": expected %.9g, found %.9g\n", d->worst_expected, d->worst_found);
	}
	add_pattern(d, out);
	if (*d->part)
		ww_str_addf(out, "  part: %s, measured by its own size: the output as a whole is right\n", d->part);
}
