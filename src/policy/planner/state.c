/* state.c - what one build owns: its memory and texts, how it refuses, the guards of plan.c, the knobs. */
#include "policy/planner/knobs.h"
#include "policy/planner/planner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT = 1 << 20 };

void pl_fail(struct pl *pl, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(pl->why, sizeof(pl->why), fmt, ap);
	va_end(ap);
	longjmp(pl->bail, 1);
}

void *pl_alloc(struct pl *pl, size_t bytes)
{
	void *p = ww_arena_alloc(&pl->arena, bytes);

	if (!p)
		pl_fail(pl, "the graph needs more than %d MiB to plan", PL_ARENA_BYTES >> 20);
	return p;
}

struct ww_str pl_text(struct pl *pl) { return (struct ww_str)WW_STR_IN(&pl->arena, MAX_TEXT); }

const char *pl_vfmt(struct pl *pl, const char *fmt, va_list ap)
{
	char small[256], *p;
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	p = pl_alloc(pl, (size_t)n + 1);
	if (n < (int)sizeof(small))
		memcpy(p, small, (size_t)n + 1);
	else
		vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}

const char *pl_fmt(struct pl *pl, const char *fmt, ...)
{
	const char *r;
	va_list ap;

	va_start(ap, fmt);
	r = pl_vfmt(pl, fmt, ap);
	va_end(ap);
	return r;
}

void pl_guard(struct pl *pl, const char *statement)
{
	if (!strstr(pl->guards.p, statement))
		ww_str_adds(&pl->guards, statement);
}

void pl_guard_eq(struct pl *pl, const struct ix *a, const struct ix *b, const char *what)
{
	if (ix_same(a, b))
		return;
	if (ix_num(a) != ix_num(b))
		pl_fail(pl, "%s differ: %lld and %lld", what, (long long)ix_num(a), (long long)ix_num(b));
	pl_guard(pl, pl_fmt(pl, "\tWW_EQUAL(%s, %s);\n", ix_text(pl, a), ix_text(pl, b)));
	ix_unite(pl, a, b);
}

const struct knobs *pl_knobs(struct pl *pl, int kernel)
{
	static const struct knobs none, last = { .last = 1 };

	if (pl->knobs && kernel < pl->n_knobs)
		return &pl->knobs[kernel];
	return pl_all_last(pl) ? &last : &none;
}

int pl_all_plain(const struct pl *pl) { return pl->n_knobs && pl->knobs && pl->knobs[pl->n_knobs - 1].plain; }

int pl_all_last(const struct pl *pl) { return pl->n_knobs && pl->knobs && pl->knobs[pl->n_knobs - 1].last; }

int pl_overlap(const struct pl *pl)
{
	return pl->target == WW_TARGET_CUDA && pl->n_knobs && pl->knobs && pl->knobs[pl->n_knobs - 1].overlap;
}
