/* catalogue.c - the rows of operators.def, and how one is applied to a value. */
#include "synth/grammar.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct ww_synth_op rows[] = {
#define OP(name, rule, category, f, m, variant, traits, growth, weight, cost) \
	{ name, sy_rule_##rule, #rule, WW_SYNTH_##category, f, m, variant, traits, growth, weight, cost },
#include "synth/operators.def"
#undef OP
};

static const char *const categories[] = {
#define CATEGORY(id, text) text,
#include "synth/categories.def"
#undef CATEGORY
};

static const struct {
	const char *name;
	int bytes;
} dtypes[] = { { "float32", 4 }, { "float16", 2 }, { "bfloat16", 2 }, { "int64", 8 }, { "bool", 1 } };

int ww_synth_ops(void) { return (int)WW_ARRAY_LEN(rows); }
const struct ww_synth_op *ww_synth_op(int i) { return &rows[i]; }
const char *ww_synth_op_name(const struct ww_synth_op *op) { return op->name; }
const char *ww_synth_category_name(enum ww_synth_category c) { return categories[c]; }
const char *ww_synth_dtype_name(enum ww_synth_dtype d) { return dtypes[d].name; }

const struct ww_synth_op *sy_op_named(const char *name)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i].name, name))
			return &rows[i];
	ww_bug(__FILE__, __LINE__, name);
}

/* ---- Types and values */

int64_t sy_product(const struct ww_synth_type *t, unsigned axes)
{
	int64_t n = 1;
	for (int i = 0; i < t->rank; i++)
		n *= axes >> i & 1 ? t->d[i] : 1;
	return n;
}

int64_t ww_synth_numel(const struct ww_synth_type *t)
{
	int64_t n = 1;
	for (int i = 0; i < t->rank; i++)
		n *= t->d[i];
	return n;
}

int64_t ww_synth_bytes(const struct ww_synth_type *t) { return ww_synth_numel(t) * dtypes[t->dtype].bytes; }

struct ww_synth_type sy_with_dim(struct ww_synth_type t, int axis, int64_t n)
{
	t.d[axis] = n;
	return t;
}

struct ww_synth_type sy_without_dim(struct ww_synth_type t, int axis)
{
	for (int i = axis; i + 1 < t.rank; i++)
		t.d[i] = t.d[i + 1];
	t.rank--;
	return t;
}

int sy_is_float(const struct val *x) { return x->t.dtype <= WW_SYNTH_BF16; }
int sy_feature_axis(const struct val *x) { return x->channels_first && x->t.rank > 1 ? 1 : x->t.rank - 1; }
double sy_log2_of(double v) { return v > 1 ? log2(v) : 0; }
int sy_fits(const struct ww_comp *c, double mag) { return mag < (c->dtype == WW_SYNTH_F16 ? 14.5 : 60); }
int sy_reduces_flat(const struct val *x, unsigned axes) { return x->flat && (axes & x->flat) == x->flat; }

/* After an operation only `facts` still hold, and no axes are known to be constant on average. */
static void forget(struct val *x, unsigned facts)
{
	x->facts &= facts;
	x->flat = 0;
}

/* ---- Work: a rough time for each operator in eager mode, so that sizes can be chosen.  The real time is measured
 * later.
 */

struct speed {
	double launch_us, bytes_per_us, flops_per_us[3]; /* by dtype: F32, F16, BF16 */
};

static const struct speed *speed_of(enum ww_target target)
{
	static const struct speed cuda = { 2.5, 2.6e6, { 3.5e7, 3e8, 3e8 } }, cpu = { 5, 8e3, { 6e4, 1e4, 4e4 } };
	return target == WW_TARGET_CPU ? &cpu : &cuda;
}

void sy_work(struct ww_comp *c, double bytes, double flops)
{
	const struct speed *s = speed_of(c->r->target);
	double move = bytes / s->bytes_per_us, compute = flops / s->flops_per_us[c->dtype];
	c->us += c->repeats * (s->launch_us + (move > compute ? move : compute));
}

void sy_count_op(struct ww_comp *c, const char *name)
{
	ww_str_addf(c->ops, "%s%s", c->ops->len ? " " : "", name);
	c->n_ops++;
}

/* ---- Applying a row */

static double grown(double mag, enum growth g)
{
	switch (g) {
	case G_SAME: return mag;
	case G_BOUND: return 2;
	case G_LOG: return log2(fabs(mag) + 4);
	case G_HALF: return mag / 2;
	case G_SQUARE: return 2 * mag;
	case G_CUBE: return 3 * mag;
	case G_EXP: return exp2(mag) * 1.45;
	case G_PLUS: return mag + 2;
	}
	return mag;
}

/* $ is the value, @ the arguments, @@ the second kind of them, which follow a bar in `args`. */
static void fill(struct ww_str *out, const char *form, const char *x, const char *args)
{
	const char *bar = strchr(args, '|');
	int n = bar ? (int)(bar - args) : (int)strlen(args);
	for (const char *p = form; *p; p++) {
		if (*p == '$')
			ww_str_adds(out, x);
		else if (*p != '@')
			ww_str_addc(out, *p);
		else if (p[1] != '@')
			ww_str_addf(out, "%.*s", n, args);
		else if (++p)
			ww_str_adds(out, bar ? bar + 1 : args);
	}
}

/* "max_pool2d" is a "max_pool". */
static void attribute_base(const struct ww_synth_op *op, char out[28])
{
	const char *name = op->category == WW_SYNTH_CONVOLUTION ? (op->variant & 8 ? "deconv" : "conv")
		: op->category == WW_SYNTH_ACTIVATION               ? "act"
		: strstr(op->name, "norm")                          ? "norm"
		: strstr(op->name, "pool")                          ? "pool"
		: strstr(op->name, "pad")                           ? "pad"
															: op->name;
	snprintf(out, 28, "%.20s", name);
}

static void settle(struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const struct ww_synth_type *out)
{
	double moved = (double)(ww_synth_bytes(&x->t) + ww_synth_bytes(out)) * op->cost;
	sy_work(c, moved, c->flops);
	c->flops = 0;
	c->memory_bytes += c->repeats * (double)ww_synth_bytes(out);
	x->t = *out;
	x->mag = grown(x->mag, op->growth);
	if (!(op->traits & LINEAR))
		x->flat = 0;
	x->facts &= op->category == WW_SYNTH_LAYOUT ? NONNEG | UNIT | RAW
		: op->traits & LINEAR                   ? BIASED | SCALED | OFFSET
												: 0;
	if (op->traits & GIVE_NONNEG)
		x->facts |= NONNEG;
	if (op->traits & GIVE_UNIT)
		x->facts |= UNIT;
	x->by = op;
	sy_count_op(c, op->name);
	c->failed |= !sy_fits(c, x->mag);
}

void sy_apply(
	struct ww_comp *c, const struct ww_synth_op *op, struct val *x, const char *args, const struct ww_synth_type *out)
{
	char base[28];
	ww_auto_str text = WW_STR_INIT(2000);
	/* A module without arguments is as often written as a function; one with a state has no other form. */
	if (op->m && (!op->f || sy_chance(c, 0.45))) {
		attribute_base(op, base);
		const char *name = sy_attribute(c, base);
		fill(&text, op->m, x->name, args);
		sy_init_line(c, "self.%s = %s", name, text.p);
		sy_line(c, "%s = self.%s(%s)", x->name, name, x->name);
	} else {
		fill(&text, op->f, x->name, args);
		sy_line(c, "%s = %s", x->name, text.p);
	}
	c->uses_f |= strstr(text.p, "F.") != NULL;
	settle(c, op, x, out);
}

struct val sy_branch(struct ww_comp *c, const struct val *x, const char *base)
{
	struct val v = *x;
	sy_variable(c, v.name, base);
	sy_line(c, "%s = %s", v.name, x->name);
	return v;
}

void sy_assign(
	struct ww_comp *c, struct val *x, const struct ww_synth_type *out, double more, double flops, const char *fmt, ...)
{
	ww_auto_str text = WW_STR_INIT(2000);
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&text, fmt, ap);
	va_end(ap);
	sy_line(c, "%s = %s", x->name, text.p);
	c->uses_f |= strstr(text.p, "F.") != NULL;
	c->uses_math |= strstr(text.p, "math.") != NULL;
	sy_work(c, (double)(ww_synth_bytes(&x->t) + ww_synth_bytes(out)) + more, flops);
	c->memory_bytes += c->repeats * (double)ww_synth_bytes(out);
	x->t = *out;
	forget(x, 0);
}
