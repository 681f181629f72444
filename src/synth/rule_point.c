/* rule_point.c - operators whose result has the shape of their operands, broadcast: functions of one, two, three
 * values, gated halves, softmax.
 */
#include "synth/grammar.h"

#include <stdio.h>
#include <string.h>

/* Arguments of functions of one value; a function without a row takes none. */
static const struct {
	const char *name, *form;
	double values[4];
} drawn[] = {
	{ "leaky_relu", "negative_slope=%g", { 0.01, 0.05, 0.1, 0.2 } },
	{ "celu", "alpha=%g", { 0.5, 1.5, 2, 0.8 } },
	{ "hardtanh", "min_val=-%g, max_val=%g", { 1, 2, 0.5, 3 } },
	{ "softplus_beta", "beta=%g", { 2, 0.5, 4, 1.5 } },
	{ "softshrink", "lambd=%g", { 0.5, 0.25, 0.1, 1 } },
	{ "hardshrink", "lambd=%g", { 0.5, 0.25, 0.1, 1 } },
	{ "threshold", "-%g", { 0.1, 0.5, 1, 0.25 } },
	{ "swish_beta", "%g", { 1.5, 2, 0.5, 1.25 } },
	{ "pow_frac", "%g", { 0.75, 1.5, 0.25, 1.25 } },
	{ "clamp", "min=-%g, max=%g", { 1, 2, 0.5, 3 } },
	{ "clamp_min", "%g", { 0.1, -0.5, -1, 0.25 } },
	{ "atanh", "%g", { 0.9, 0.95, 0.5, 0.8 } },
	{ "erfinv", "%g", { 0.9, 0.95, 0.5, 0.8 } },
	{ "add_scalar", "%g", { 1, 0.5, 2, 3 } },
	{ "sub_scalar", "%g", { 1, 0.5, 2, 0.25 } },
	{ "mul_scalar", "%g", { 2, 0.5, 1.5, 0.125 } },
	{ "div_scalar", "%g", { 2, 4, 8, 1.5 } },
	{ "soft_cap", "%g", { 15, 20, 30, 50 } },
	{ "where_negative", "%g", { 0.1, 0.25, 0.5, 0.2 } },
};

static void draw_argument(struct ww_comp *c, const struct ww_synth_op *op, char args[MAX_ARGS])
{
	args[0] = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(drawn); i++)
		if (!strcmp(drawn[i].name, op->name)) {
			double v = PICK(c, drawn[i].values);
			snprintf(args, MAX_ARGS, drawn[i].form, v, v);
		}
}

/* Make x positive, for a function of positive numbers. */
static void make_positive(struct ww_comp *c, const struct ww_synth_op *op, struct val *x)
{
	int divides = op->growth == G_BOUND;
	const char *eps = divides ? "0.01" : "1e-4";
	if (x->facts & NONNEG)
		sy_line(c, "%s = %s + %s", x->name, x->name, eps);
	else if (sy_chance(c, 0.6))
		sy_line(c, "%s = torch.abs(%s) + %s", x->name, x->name, eps);
	else {
		sy_line(c, "%s = F.softplus(%s) + %s", x->name, x->name, eps);
		c->uses_f = 1;
	}
	sy_work(c, 4.0 * (double)ww_synth_bytes(&x->t), 0);
}

static int suits(struct ww_comp *c, const struct ww_synth_op *op, const struct val *x)
{
	int raw = x->facts & RAW;
	if (!sy_is_float(x) || (op->traits & F32_ONLY && c->dtype != WW_SYNTH_F32))
		return 0;
	if (op->traits & ID_NONNEG && x->facts & NONNEG)
		return 0;
	if (op->category == WW_SYNTH_ACTIVATION && x->facts & NONPOS)
		return 0;
	if (op->traits & NEED_RAW && !raw)
		return 0;
	if (op->traits & NEED_UNIT && !(x->facts & UNIT))
		return 0;
	if (op->traits & NEED_SMALL && x->mag > 5.2 && !(raw && op->growth == G_BOUND))
		return 0;
	return 1;
}

RULE(unary)
{
	char args[MAX_ARGS];
	struct ww_synth_type out = x->t;
	unsigned before = x->facts, add = !strcmp(op->name, "add_scalar") || !strcmp(op->name, "sub_scalar");
	double mag = x->mag;
	if (!suits(c, op, x))
		return 0;
	if (x->facts & NONNEG &&
		(!strcmp(op->name, "clamp") || !strcmp(op->name, "hardtanh") || !strcmp(op->name, "where_negative")))
		return 0;
	if (op->category == WW_SYNTH_ACTIVATION && x->by && x->by->category == WW_SYNTH_ACTIVATION && sy_chance(c, 0.8))
		return 0; /* a function of a function of a number is rarely meant */
	draw_argument(c, op, args);
	if (op->traits & NEED_POS)
		make_positive(c, op, x);
	sy_apply(c, op, x, args, &out);
	if (op->traits & NEED_POS && op->growth == G_BOUND)
		x->mag = 7;
	if (op->growth == G_PLUS && before & UNIT)
		x->mag = 6;
	if (!strcmp(op->name, "soft_cap") || !strcmp(op->name, "rad2deg"))
		x->mag = mag < 6 ? mag + 6 : 6;
	if (!strcmp(op->name, "logsigmoid"))
		x->facts = NONPOS;
	if (op->traits & LINEAR) {
		x->facts |= add ? OFFSET : SCALED;
		x->facts |= before & NONNEG && strcmp(op->name, "sub_scalar") && strcmp(op->name, "neg") ? NONNEG : 0;
	}
	return 1;
}

RULE(prelu)
{
	char args[MAX_ARGS];
	struct ww_synth_type out = x->t;
	if (!suits(c, op, x) || x->t.rank < 2 || (x->t.rank > 2 && !x->channels_first) || x->t.d[1] > 8192)
		return 0;
	snprintf(args, sizeof(args), "%s", sy_channel(c, x->t.d[1]));
	sy_apply(c, op, x, args, &out);
	return 1;
}

RULE(glu)
{
	static const char *const gate[] = { "", "F.silu(%s) * %s", "F.gelu(%s) * %s", "F.relu(%s) * %s" };
	char args[MAX_ARGS], a[16], b[16];
	int axis = sy_feature_axis(x);
	struct ww_synth_type out = x->t;
	if (axis < 0 || !sy_is_float(x) || x->t.d[axis] % 2 || x->t.d[axis] < 4 ||
		!sy_fits(c, op->variant ? 2 * x->mag : x->mag))
		return 0;
	out = sy_with_dim(x->t, axis, x->t.d[axis] / 2);
	int dim = axis == x->t.rank - 1 ? -1 : axis;
	snprintf(args, sizeof(args), "dim=%d", dim);
	if (!op->variant) {
		sy_apply(c, op, x, args, &out);
		return 1;
	}
	double mag = 2 * x->mag;
	sy_variable(c, a, "gate");
	sy_variable(c, b, "value");
	sy_line(c, "%s, %s = %s.chunk(2, dim=%d)", a, b, x->name, dim);
	ww_auto_str text = WW_STR_INIT(200);
	ww_str_addf(&text, "%.0s", "");
	const char *form = gate[op->variant];
	for (const char *p = form, *name = a; *p; p++) {
		if (*p != '%')
			ww_str_addc(&text, *p);
		else {
			ww_str_adds(&text, name);
			name = b;
			p++;
		}
	}
	sy_assign(c, x, &out, (double)ww_synth_bytes(&out), 0, "%s", text.p);
	x->mag = mag;
	x->by = op;
	sy_count_op(c, op->name);
	return 1;
}

/* ---- Two values */

/* The shape of a second operand that is broadcast against t: some axes are 1, or the first ones are missing. */
static struct ww_synth_type broadcast(struct ww_comp *c, const struct val *x)
{
	struct ww_synth_type t = x->t;
	int feature = sy_feature_axis(x);
	switch (sy_below(c, 4)) {
	case 0: /* a number a feature */
		for (int i = 0; i < t.rank; i++)
			t.d[i] = i == feature ? t.d[i] : 1;
		break;
	case 1: /* without the batch */ t.d[0] = 1; break;
	case 2: /* a number a row */ t.d[t.rank - 1] = 1; break;
	default: /* one axis */ t.d[sy_below(c, (uint64_t)t.rank)] = 1;
	}
	if (!x->channels_first)
		while (t.rank > 1 && t.d[0] == 1 && sy_chance(c, 0.8))
			t = sy_without_dim(t, 0);
	return t;
}

/* A parameter of a feature's shape; its text in `name`. */
static void operand_parameter(struct ww_comp *c, const struct val *x, const char *base, int positive, char name[40])
{
	char init[120];
	int axis = sy_feature_axis(x);
	const char *width = x->channels_first ? sy_channel(c, x->t.d[axis]) : sy_feature(c, x->t.d[axis]);
	int at = snprintf(init, sizeof(init), "torch.%s(%s", positive ? "rand" : "randn", width);
	for (int i = axis + 1; i < x->t.rank; i++)
		at += snprintf(init + at, sizeof(init) - (size_t)at, ", 1");
	snprintf(init + at, sizeof(init) - (size_t)at, positive ? ") + 0.5" : ")");
	snprintf(name, 40, "self.%s", sy_parameter(c, base, init));
}

static const char *operand_name(const struct ww_synth_op *op, enum input_kind kind)
{
	return kind == IN_BOOL             ? "mask"
		: strstr(op->name, "mul_")     ? "gate"
		: !strcmp(op->name, "mul")     ? "scale"
		: !strncmp(op->name, "add", 3) ? "bias"
									   : "y";
}

/* Draws a second operand of the row's kind; its text in `name`, the type in `t`. */
static int operand(
	struct ww_comp *c, const struct ww_synth_op *op, const struct val *x, char name[40], struct ww_synth_type *t)
{
	static const enum input_kind kinds[] = { IN_NORMAL, IN_POSITIVE, IN_NORMAL, IN_BOOL };
	enum input_kind kind = kinds[op->variant];
	int own = c->at != c->cls[0] || (op->variant == 0 && sy_chance(c, 0.3)), wide = sy_chance(c, c->r->broadcast);
	*t = wide ? broadcast(c, x) : x->t;
	if (own && op->variant > 1)
		return 0;
	if (own && x->t.d[sy_feature_axis(x)] <= 16384) {
		operand_parameter(c, x, operand_name(op, kind), op->variant == 1, name);
		*t = (struct ww_synth_type){ x->t.dtype, 1, { x->t.d[sy_feature_axis(x)] } };
		return 1;
	}
	t->dtype = kind == IN_BOOL ? WW_SYNTH_BOOL : x->t.dtype;
	struct input *in = sy_add_input(c, operand_name(op, kind), t, kind);
	if (!in)
		return 0;
	snprintf(name, 40, "%s", in->name);
	return 1;
}

RULE(binary)
{
	char name[40], args[MAX_ARGS];
	struct ww_synth_type t, out = x->t;
	if (!suits(c, op, x) || x->t.rank < 1 || !sy_fits(c, op->growth == G_SQUARE ? x->mag + 8.3 : x->mag + 2))
		return 0;
	double mag = op->growth == G_SQUARE ? x->mag + 8.3 : op->growth == G_BOUND ? 2 : (x->mag > 8.3 ? x->mag : 8.3) + 1;
	unsigned keep = op->variant == 1 ? x->facts & NONNEG : 0;
	if (!operand(c, op, x, name, &t))
		return 0;
	snprintf(args, sizeof(args), "%s|%s", name, c->dtype == WW_SYNTH_F16 ? "-1e4" : "-1e9");
	/* "$.masked_fill(@, @@)": only a mask has a second argument */
	if (strcmp(op->name, "masked_fill"))
		*strchr(args, '|') = 0;
	else
		snprintf(args, sizeof(args), "~%s|%g", name, sy_chance(c, 0.5) ? 0.0 : -1.0);
	sy_work(c, (double)ww_synth_bytes(&t), 0);
	sy_apply(c, op, x, args, &out);
	x->mag = mag;
	x->flat = 0;
	x->facts = (x->facts & NONNEG) | keep | (t.rank == 1 && op->traits & LINEAR ? BIASED : 0);
	return 1;
}

RULE(ternary)
{
	char a[40], b[40], args[MAX_ARGS];
	struct ww_synth_type t, out = x->t;
	const struct ww_synth_op *add = sy_op_named("add"), *mul = sy_op_named("mul"), *div = sy_op_named("div");
	if (!suits(c, op, x) || x->t.rank < 1 || !sy_fits(c, x->mag + 17))
		return 0;
	int divides = !strcmp(op->name, "addcdiv"), lerp = !strcmp(op->name, "lerp"), fma = !strcmp(op->name, "fma");
	if (!operand(c, fma ? mul : add, x, a, &t) || (!lerp && !operand(c, divides ? div : add, x, b, &t)))
		return 0;
	if (lerp)
		snprintf(args, sizeof(args), "%s, %g", a, sy_chance(c, 0.5) ? 0.3 : 0.75);
	else
		snprintf(args, sizeof(args), fma ? "%s + %s" : "%s, %s", a, b);
	double mag = (x->mag > 8.3 ? x->mag : 8.3) + 9;
	sy_work(c, 2.0 * (double)ww_synth_bytes(&t), 0);
	sy_apply(c, op, x, args, &out);
	x->mag = mag;
	return 1;
}

RULE(softmax)
{
	char args[MAX_ARGS];
	struct ww_synth_type out = x->t;
	int axis = x->channels_first && x->t.rank > 2 && sy_chance(c, 0.5) ? 1 : x->t.rank - 1;
	if (!sy_is_float(x) || x->t.rank < 1 || x->t.d[axis] < 3 || x->flat || x->facts & OFFSET)
		return 0;
	int dim = axis == x->t.rank - 1 ? -1 : axis, logs = strstr(op->name, "log") != NULL;
	static const double heat[] = { 0.5, 2, 8, 0.7 };
	snprintf(args, sizeof(args), "dim=%d|%g", dim, PICK(c, heat));
	if (strchr(op->f ? op->f : "@@", '@') && !strstr(op->f ? op->f : "@@", "@@"))
		*strchr(args, '|') = 0;
	if (op->f) {
		sy_apply(c, op, x, args, &out);
	} else {
		struct ww_synth_type m = { WW_SYNTH_BOOL, x->t.rank, { 0 } };
		for (int i = 0; i < m.rank; i++)
			m.d[i] = i == 0 || i == axis ? x->t.d[i] : 1;
		struct input *in = sy_add_input(c, "mask", &m, IN_BOOL);
		if (!in)
			return 0;
		sy_assign(c, x, &out, 3.0 * (double)ww_synth_bytes(&out), 0, "F.softmax(%s.masked_fill(~%s, -1e4), dim=%d)",
			x->name, in->name, dim);
		x->by = op;
		sy_count_op(c, op->name);
	}
	x->facts = logs ? NONPOS : NONNEG | UNIT;
	x->flat = logs ? 0 : 1u << axis;
	x->mag = logs ? 8 : 1;
	return 1;
}
