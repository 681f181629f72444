#include "base/opt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int in_choices(const char *words, const char *v)
{
	size_t len = strlen(v);
	for (const char *p = words; len; p++) {
		size_t n = strcspn(p, "|");
		if (n == len && !memcmp(p, v, n))
			return 1;
		p += n;
		if (!*p)
			break;
	}
	return 0;
}

static enum ww_rc set_value(const struct ww_opt *o, void *values, const char *text, struct ww_err *err)
{
	void *at = (char *)values + o->offset;
	char *end = NULL;
	int limited = o->min != 0 || o->max != 0;
	errno = 0;
	switch (o->type) {
	case WW_OPT_FLAG: *(int *)at = strcmp(text, "0") && strcmp(text, "false"); return WW_OK;
	case WW_OPT_INT: {
		long long v = strtoll(text, &end, 0);
		if (end == text || *end || errno)
			return ww_err_set(err, WW_ERR_USAGE, "--%s needs a whole number, not \"%s\"", o->name, text);
		if (limited && ((double)v < o->min || (double)v > o->max))
			return ww_err_set(
				err, WW_ERR_USAGE, "--%s must be from %.0f to %.0f, not %s", o->name, o->min, o->max, text);
		*(int64_t *)at = v;
		return WW_OK;
	}
	case WW_OPT_NUM: {
		double v = strtod(text, &end);
		if (end == text || *end || !isfinite(v))
			return ww_err_set(err, WW_ERR_USAGE, "--%s needs a number, not \"%s\"", o->name, text);
		if (limited && (v < o->min || v > o->max))
			return ww_err_set(err, WW_ERR_USAGE, "--%s must be from %g to %g, not %s", o->name, o->min, o->max, text);
		*(double *)at = v;
		return WW_OK;
	}
	case WW_OPT_CHOICE:
		if (!in_choices(o->arg, text))
			return ww_err_set(err, WW_ERR_USAGE, "--%s must be one of %s, not \"%s\"", o->name, o->arg, text);
		*(const char **)at = text;
		return WW_OK;
	case WW_OPT_STR: *(const char **)at = text; return WW_OK;
	}
	return WW_OK;
}

static const struct ww_opt *find_long(const struct ww_cmd *cmd, const char *name, size_t n)
{
	for (const struct ww_opt *o = cmd->opts; o && o->name; o++)
		if (strlen(o->name) == n && !memcmp(o->name, name, n))
			return o;
	return NULL;
}

/* Letters to change, add or drop between two words. */
static int distance(const char *a, const char *b)
{
	enum { WORD = 40 };
	int n = (int)strnlen(b, WORD), row[WORD + 1];
	for (int j = 0; j <= n; j++)
		row[j] = j;
	for (int i = 0; a[i] && i < WORD; i++) {
		int diagonal = row[0];
		row[0] = i + 1;
		for (int j = 0; j < n; j++) {
			int above = row[j + 1], best = diagonal + (a[i] != b[j]);
			best = above + 1 < best ? above + 1 : best;
			row[j + 1] = row[j] + 1 < best ? row[j] + 1 : best;
			diagonal = above;
		}
	}
	return row[n];
}

void ww_guess_offer(struct ww_guess *g, const char *candidate)
{
	int letters = distance(g->word, candidate), limit = 1 + (int)strlen(candidate) / 3;
	if (letters > limit || (g->best && letters >= g->letters))
		return;
	g->best = candidate;
	g->letters = letters;
}

/* "; did you mean --json?" for an option; where none is near, the command that lists them. */
static void add_guess(const struct ww_cmd *cmd, const char *name, const char *dashes, struct ww_err *err)
{
	struct ww_guess g = { .word = name };
	size_t at = strlen(err->msg);
	for (const struct ww_opt *o = cmd->opts; o && o->name; o++)
		ww_guess_offer(&g, o->name);
	if (g.best)
		snprintf(err->msg + at, sizeof(err->msg) - at, "; did you mean \"%s%s\"?", dashes, g.best);
	else
		snprintf(err->msg + at, sizeof(err->msg) - at, "; warpwright %s -h lists them", cmd->name);
}

static const struct ww_opt *find_letter(const struct ww_cmd *cmd, char letter)
{
	for (const struct ww_opt *o = cmd->opts; o && o->name; o++)
		if (o->letter == letter)
			return o;
	return NULL;
}

static enum ww_rc unknown(const struct ww_cmd *cmd, const char *a, struct ww_err *err)
{
	char name[64];
	const char *word = a + strspn(a, "-");
	ww_err_set(err, WW_ERR_USAGE, "unknown option %.*s", (int)(strcspn(a, "=") & 63), a);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	add_guess(cmd, name, "--", err);
	return err->rc;
}

enum ww_rc ww_opt_set(const struct ww_cmd *cmd, void *values, const char *name, const char *text, struct ww_err *err)
{
	const struct ww_opt *o = find_long(cmd, name, strlen(name));
	if (o)
		return set_value(o, values, text, err);
	ww_err_set(err, WW_ERR_USAGE, "%s has no option \"%.60s\"", cmd->name, name);
	add_guess(cmd, name, "", err);
	return err->rc;
}

void ww_opt_defaults(const struct ww_cmd *cmd, void *values)
{
	struct ww_err err = WW_ERR_INIT;
	memset(values, 0, cmd->values_size);
	for (const struct ww_opt *o = cmd->opts; o && o->name; o++) {
		enum ww_rc rc = o->def ? set_value(o, values, o->def, &err) : WW_OK;
		WW_BUG(rc != WW_OK);
	}
}

enum ww_rc ww_opt_parse_over(
	const struct ww_cmd *cmd, int argc, char **argv, void *values, int *rest, struct ww_err *err)
{
	*rest = 0;
	int only_args = 0;
	for (int i = 0; i < argc; i++) {
		char *a = argv[i];
		if (only_args || a[0] != '-' || !a[1]) {
			memmove(argv + *rest + 1, argv + *rest, (size_t)(i - *rest) * sizeof(*argv));
			argv[(*rest)++] = a;
			continue;
		}
		if (!strcmp(a, "--")) {
			only_args = 1;
			continue;
		}
		const char *inline_value = NULL;
		const struct ww_opt *o;
		if (a[1] == '-') {
			size_t n = strcspn(a + 2, "=");
			o = find_long(cmd, a + 2, n);
			inline_value = a[2 + n] ? a + 3 + n : NULL;
		} else {
			o = find_letter(cmd, a[1]);
			inline_value = a[2] ? a + 2 : NULL;
		}
		if (!o)
			return unknown(cmd, a, err);
		if (o->type == WW_OPT_FLAG && inline_value)
			return ww_err_set(err, WW_ERR_USAGE, "--%s takes no value", o->name);
		if (o->type != WW_OPT_FLAG && !inline_value) {
			if (i + 1 >= argc)
				return ww_err_set(err, WW_ERR_USAGE, "--%s needs a value (%s)", o->name, o->arg);
			inline_value = argv[++i];
		}
		WW_CHECK(set_value(o, values, inline_value ? inline_value : "1", err));
	}
	return WW_OK;
}

enum ww_rc ww_opt_parse(const struct ww_cmd *cmd, int argc, char **argv, void *values, int *rest, struct ww_err *err)
{
	ww_opt_defaults(cmd, values);
	WW_CHECK(ww_opt_parse_over(cmd, argc, argv, values, rest, err));
	if (*rest < cmd->min_args || (cmd->max_args >= 0 && *rest > cmd->max_args))
		return ww_err_set(err, WW_ERR_USAGE, "%s arguments; usage: warpwright %s [options]%s%s",
			*rest < cmd->min_args ? "missing" : "too many", cmd->name, *cmd->args ? " " : "", cmd->args);
	return WW_OK;
}

const struct ww_opt *ww_opt_given(const struct ww_cmd *cmd, char ***at)
{
	*at += **at && !strcmp(**at, "--");
	const char *a = **at;
	if (!a)
		return NULL;
	size_t n = a[1] == '-' ? 2 + strcspn(a + 2, "=") : 2;
	const struct ww_opt *o = a[1] == '-' ? find_long(cmd, a + 2, n - 2) : find_letter(cmd, a[1]);
	*at += o->type == WW_OPT_FLAG || a[n] ? 1 : 2;
	return o;
}

/* ---- Help ------------------------------------------------------------------------------------------------------- */

enum { COLUMNS = 80, HELP_AT = 30 };

static void add_spaces(struct ww_str *out, int n)
{
	for (; n > 0; n--)
		ww_str_addc(out, ' ');
}

void ww_opt_fill(struct ww_str *out, const char *text, int at, int indent)
{
	const char *gap = "";
	for (const char *p = text + strspn(text, " \n"); *p; p += strspn(p, " \n")) {
		int n = (int)strcspn(p, " \n");
		if (*gap && at + 1 + n > COLUMNS) {
			ww_str_addc(out, '\n');
			add_spaces(out, indent);
			at = indent;
			gap = "";
		}
		ww_str_addf(out, "%s%.*s", gap, n, p);
		at += n + (*gap != 0);
		gap = " ";
		p += n;
	}
}

/* A row of two columns. */
static void add_row(struct ww_str *out, const char *left, int n_left, const char *help)
{
	int n = 2 + n_left;
	ww_str_addf(out, "  %.*s", n_left, left);
	if (n + 2 > HELP_AT) {
		ww_str_addc(out, '\n');
		n = 0;
	}
	add_spaces(out, HELP_AT - n);
	ww_opt_fill(out, help, HELP_AT, HELP_AT);
	ww_str_addc(out, '\n');
}

/* Paragraphs are filled; a line that begins with two spaces is a row of two columns. */
static void add_details(struct ww_str *out, const char *text)
{
	ww_auto_str part = WW_STR_INIT(65536);
	for (const char *p = text; *p; p += *p == '\n') {
		int row = *p == ' ', n = (int)strcspn(p, "\n");
		ww_str_addf(&part, "%.*s ", n, p);
		p += n;
		const char *gap = row ? strstr(part.p + 2, "  ") : NULL;
		if (gap)
			add_row(out, part.p + 2, (int)(gap - part.p) - 2, gap);
		else if (n && *p && p[1] && p[1] != '\n' && p[1] != ' ')
			continue;
		else
			ww_opt_fill(out, part.p, 0, 0);
		if (!gap)
			ww_str_addc(out, '\n');
		ww_str_reset(&part);
	}
}

static void add_option(struct ww_str *out, const char *left, const char *help, const char *def)
{
	ww_auto_str right = WW_STR_INIT(4096);
	ww_str_addf(&right, def ? "%s (default %s)" : "%s", help, def);
	add_row(out, left, (int)strlen(left), right.p);
}

void ww_opt_help(const struct ww_cmd *cmd, struct ww_str *out)
{
	ww_auto_str line = WW_STR_INIT(4096);
	ww_str_addf(&line, "usage: warpwright %s [options] %s", cmd->name, cmd->args);
	ww_opt_fill(out, line.p, 0, 8);
	ww_str_adds(out, "\n\n");
	ww_opt_fill(out, cmd->summary, 0, 0);
	ww_str_addc(out, '\n');
	if (cmd->details) {
		ww_str_addc(out, '\n');
		add_details(out, cmd->details);
	}
	ww_str_adds(out, "\noptions:\n");
	for (const struct ww_opt *o = cmd->opts; o && o->name; o++) {
		ww_str_reset(&line);
		if (o->letter)
			ww_str_addf(&line, "-%c, ", o->letter);
		ww_str_addf(&line, o->type == WW_OPT_FLAG ? "--%s" : "--%s %s", o->name, o->arg);
		add_option(out, line.p, o->help, o->type != WW_OPT_FLAG && o->def && *o->def ? o->def : NULL);
	}
	add_option(out, "-h, --help", "this text", NULL);
}
