/* point.c - lowering of pointwise operators.
 *
 * Each operator becomes a few primitive operations (PL_OP_MAP).  The type of the arithmetic is the type that the graph
 * records for the result, so PyTorch's promotion rules need no second implementation here; comparisons promote their
 * operands.  Half precision is computed in single and rounded once when it is stored. */
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

/* The operand cast to the type of the node's result. */
static struct val *operand(struct pl *pl, struct gnode *n, int i, const char *name)
{
	return pl_cast(pl, pl_need_val(pl, n, i, name), n->meta[0].dt);
}

static struct val *num(struct pl *pl, struct gnode *n, double f) { return pl_constf(pl, n->meta[0].dt, f); }

#define MAX(a, b) pl_op2(pl, OP_MAXIMUM, (a), (b))
#define MIN(a, b) pl_op2(pl, OP_MINIMUM, (a), (b))
#define GT(a, b) pl_op2(pl, OP_GT, (a), (b))
#define LE(a, b) pl_op2(pl, OP_LE, (a), (b))
#define N(f) num(pl, n, (f))

enum { TO_RADIANS, TO_DEGREES };
static const double PI = 3.14159265358979323846;

/* Is the result of a function rounded to 16 bits by PyTorch, so that a short formula is as good as an exact one? */
static int is_rounded(const struct pl *pl, const struct gnode *n)
{
	return pl->target == WW_TARGET_CUDA && pl_is_half(n->meta[0].dt) && pl_algebra(pl);
}

static struct val *short_if(struct pl *pl, int rounded, enum pl_op op, struct val *x)
{
	static const int forms[][2] = { { OP_EXP, OP_EXP16 }, { OP_EXPM1, OP_EXPM1_16 }, { OP_LOG1P, OP_LOG1P_16 },
		{ OP_LOG1P_UNIT, OP_LOG1P_16 }, { OP_SIGMOID, OP_SIGMOID16 }, { OP_TANH, OP_TANH16 }, { OP_ASINH, OP_ASINH16 },
		{ OP_ACOSH, OP_ACOSH16 }, { OP_ATANH, OP_ATANH16 } };

	for (size_t i = 0; rounded && i < WW_ARRAY_LEN(forms); i++)
		if (forms[i][0] == (int)op)
			op = forms[i][1];
	return pl_op1(pl, op, x);
}

/* op, or the short form of it where that is as good. */
static struct val *short_of(struct pl *pl, struct gnode *n, enum pl_op op, struct val *x)
{
	return short_if(pl, is_rounded(pl, n), op, x);
}

struct val *pl_log1p_exp(struct pl *pl, int rounded, struct val *x)
{
	return short_if(
		pl, rounded, OP_LOG1P_UNIT, short_if(pl, rounded, OP_EXP, pl_op1(pl, OP_NEG, pl_op1(pl, OP_ABS, x))));
}

static void unary(struct pl *pl, struct gnode *n) { done(n, short_of(pl, n, n->variant, operand(pl, n, 0, "self"))); }

/* torch.round(decimals=...), which may be negative. */
static void rounded(struct pl *pl, struct gnode *n)
{
	int64_t decimals = pl_arg_int(pl, n, 1, "decimals", 0);
	struct val *x = operand(pl, n, 0, "self"), *ten = N(pow(10, fabs((double)decimals)));

	if (decimals)
		x = decimals > 0 ? MUL(x, ten) : DIV(x, ten);
	x = pl_op1(pl, OP_ROUND, x);
	if (decimals)
		x = decimals > 0 ? DIV(x, ten) : MUL(x, ten);
	done(n, x);
}

/* self op alpha * other */
static void binary(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 0, "self"), *b = operand(pl, n, 1, "other");
	struct garg *alpha = pl_arg(n, 2, "alpha");

	if (alpha && (alpha->kind == G_INT || alpha->kind == G_FLOAT) && alpha->f != 1)
		b = MUL(b, pl_cast(pl, pl_val_of(pl, alpha), n->meta[0].dt));
	a = pl_turn_beside(pl, n, pl_copy_last(pl, n, a, b), b);
	done(n, pl_op2(pl, n->variant, a, pl_turn_beside(pl, n, pl_copy_last(pl, n, b, a), a)));
}

static void rsub(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 0, "self"), *b = operand(pl, n, 1, "other");
	struct garg *alpha = pl_arg(n, 2, "alpha");

	if (alpha && alpha->kind != G_NONE)
		a = MUL(a, pl_cast(pl, pl_val_of(pl, alpha), n->meta[0].dt));
	done(n, SUB(b, a));
}

/* a to the power e, a positive multiple of a quarter below 4 that is no whole number: its whole part by products, the
 * rest by roots.  A local response norm's .75 takes a quarter of pow(). */
static struct val *power_of_quarters(struct pl *pl, struct val *a, double e)
{
	struct val *s = pl_op1(pl, OP_SQRT, a), *p = NULL;
	int quarters = (int)(4 * e);

	if (quarters & 2)
		p = s;
	if (quarters & 1)
		p = p ? MUL(p, pl_op1(pl, OP_SQRT, s)) : pl_op1(pl, OP_SQRT, s);
	for (int i = 0; i < quarters / 4; i++)
		p = MUL(a, p);
	return p;
}

/* Powers with exponents of few multiplications, without pow(). */
static void power(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 0, "self"), *b = operand(pl, n, 1, "exponent");
	double e = b->f;

	if (b->kind != V_CONST) {
		done(n, pl_op2(pl, OP_POW, a, b));
	} else if (e == 2) {
		done(n, MUL(a, a));
	} else if (e == 3) {
		done(n, MUL(MUL(a, a), a));
	} else if (e == 4) {
		struct val *s = MUL(a, a);

		done(n, MUL(s, s));
	} else if (e == 1) {
		done(n, a);
	} else if (e == 0) {
		done(n, pl_expand(pl, pl_where(pl, pl_op2(pl, OP_EQ, a, a), N(1), N(1)), a->rank, a->size));
	} else if (e == 0.5 && pl_is_float(a->dt)) {
		done(n, pl_op1(pl, OP_SQRT, a));
	} else if (e > 0 && e < 4 && 4 * e == floor(4 * e) && e != floor(e) && pl_is_float(a->dt) && pl_algebra(pl)) {
		done(n, power_of_quarters(pl, a, e));
	} else if (e == -0.5 && pl_is_float(a->dt)) {
		done(n, pl_op1(pl, OP_RSQRT, a));
	} else if (e == -1 && pl_is_float(a->dt)) {
		done(n, pl_op1(pl, OP_RECIP, a));
	} else {
		done(n, pl_op2(pl, OP_POW, a, b));
	}
}

static void division(struct pl *pl, struct gnode *n)
{
	const char *mode = pl_arg_str(n, 2, "rounding_mode", "");
	struct val *a = operand(pl, n, 0, "self"), *b = operand(pl, n, 1, "other"), *q;

	if (!pl_is_float(n->meta[0].dt)) {
		q = pl_op2(pl, OP_FLOORDIV, a, b);
		if (!strcmp(mode, "trunc")) { /* the floor is one too low where the signs differ and there is a remainder */
			struct val *left = pl_op2(pl, OP_NE, MUL(q, b), a),
					   *below = pl_op2(pl, OP_LXOR, pl_op2(pl, OP_LT, a, N(0)), pl_op2(pl, OP_LT, b, N(0)));

			q = ADD(q, pl_cast(pl, pl_op2(pl, OP_LAND, left, below), a->dt));
		}
		done(n, q);
		return;
	}
	a = pl_turn_beside(pl, n, a, b);
	b = pl_turn_beside(pl, n, b, a);
	if (b->kind == V_CONST && b->f != 0 && !*mode && log2(fabs(b->f)) == floor(log2(fabs(b->f))))
		q = MUL(a, pl_constf(pl, b->dt, 1 / b->f)); /* exact: b is a power of two */
	else
		q = DIV(a, b);
	if (!strcmp(mode, "floor"))
		q = pl_op1(pl, OP_FLOOR, q);
	else if (!strcmp(mode, "trunc"))
		q = pl_op1(pl, OP_TRUNC, q);
	done(n, q);
}

/* A number of 16 bits as its operator returns it, though it is computed as a float. */
static struct val *as_returned(struct pl *pl, struct val *v)
{
	const struct val *of = v;

	while (of->kind == V_VIEW)
		of = of->arg[0];
	if (!pl_is_half(v->dt) || of->kind == V_BUF || of->kind == V_CONST)
		return v;
	return pl_op1(pl, v->dt == WW_F16 ? OP_AS_F16 : OP_AS_BF16, v);
}

/* b as the sort of a, an operand, left it in fp32, and *as, a in fp32; NULL: b are no elements of a. */
static struct val *picked(struct pl *pl, const struct val *a, struct val *b, struct val **as)
{
	struct val *v;

	if (b->picked_of == a) {
		*as = b->picked_as;
		return b->arg[0];
	}
	v = b->kind == V_VIEW && !b->cond ? picked(pl, a, b->arg[0], as) : NULL;
	return v ? pl_view(pl, v, b->rank, b->size, b->map) : NULL;
}

/* Two numbers of 16 bits are rounded before they are compared: one of them may have been stored on the way, and be
 * larger by its rounding than the element that it is (a row's gates that are at least its second one: none at all). */
static void compare(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *b = pl_need_val(pl, n, 1, "other"), *as, *v;

	if ((v = picked(pl, a, b, &as))) {
		a = as;
		b = v;
	} else if ((v = picked(pl, b, a, &as))) {
		a = v;
		b = as;
	} else if (a->kind != V_CONST && b->kind != V_CONST && n->variant != OP_LAND && n->variant != OP_LOR &&
		n->variant != OP_LXOR) {
		a = as_returned(pl, a);
		b = as_returned(pl, b);
	}
	done(n, pl_op2(pl, n->variant, a, b));
}

/* The variant is the operation on integers; that on bools is as far behind OP_LAND as the variant is behind OP_AND. */
static void bitwise(struct pl *pl, struct gnode *n)
{
	enum pl_op op = n->meta[0].dt == WW_BOOL ? OP_LAND + (n->variant - OP_AND) : n->variant;

	done(n, pl_op2(pl, op, operand(pl, n, 0, "self"), operand(pl, n, 1, "other")));
}

static void lnot(struct pl *pl, struct gnode *n)
{
	int boolean = n->meta[0].dt == WW_BOOL;
	struct val *a = pl_need_val(pl, n, 0, "self");

	done(n, boolean ? pl_op1(pl, OP_LNOT, pl_cast(pl, a, WW_BOOL)) : pl_op1(pl, OP_BITNOT, a));
}

static void isnan_(struct pl *pl, struct gnode *n) { done(n, pl_op1(pl, OP_ISNAN, pl_need_val(pl, n, 0, "self"))); }

static void isinf_(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self");

	done(n, pl_op2(pl, OP_EQ, pl_op1(pl, OP_ABS, a), pl_constf(pl, a->dt, INFINITY)));
}

static void relu(struct pl *pl, struct gnode *n) { done(n, MAX(operand(pl, n, 0, "self"), N(0))); }
static void relu6(struct pl *pl, struct gnode *n) { done(n, MIN(MAX(operand(pl, n, 0, "self"), N(0)), N(6))); }

enum { BOTH, LOWER, UPPER };

/* clamp has one bound or both; clamp_min and clamp_max have one. */
static void clamp(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 0, "self"), *lo = n->variant == UPPER ? NULL : pl_arg_val(pl, n, 1, "min"),
			   *hi = n->variant == LOWER ? NULL : pl_arg_val(pl, n, n->variant == UPPER ? 1 : 2, "max");

	if (lo)
		a = MAX(a, pl_cast(pl, lo, n->meta[0].dt));
	if (hi)
		a = MIN(a, pl_cast(pl, hi, n->meta[0].dt));
	done(n, a);
}

static void hardtanh(struct pl *pl, struct gnode *n)
{
	done(n,
		MIN(MAX(operand(pl, n, 0, "self"), N(pl_arg_num(pl, n, 1, "min_val", -1))),
			N(pl_arg_num(pl, n, 2, "max_val", 1))));
}

static struct val *where_pos(struct pl *pl, struct gnode *n, struct val *x, struct val *yes, struct val *no)
{
	return pl_where(pl, GT(x, N(0)), yes, no);
}

static void leaky_relu(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, where_pos(pl, n, x, x, MUL(x, N(pl_arg_num(pl, n, 1, "negative_slope", 0.01)))));
}

static void rrelu(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");
	double lo = pl_arg_num(pl, n, 1, "lower", 0.125), hi = pl_arg_num(pl, n, 2, "upper", 1.0 / 3);

	if (pl_arg_int(pl, n, 3, "training", 0))
		pl_cannot(pl, n, "it is random in training");
	done(n, where_pos(pl, n, x, x, MUL(x, N((lo + hi) / 2))));
}

static void prelu(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self"), *w = operand(pl, n, 1, "weight");
	const struct ix *size[PL_MAX_RANK];

	if (x->rank > 1 && w->rank == 1 && !ix_is(w->size[0], 1)) {
		for (int d = 0; d < x->rank; d++)
			size[d] = d == 1 ? w->size[0] : ix_const(pl, 1);
		w = pl_reshape(pl, w, x->rank, size);
	}
	done(n, where_pos(pl, n, x, x, MUL(x, w)));
}

static struct val *elu_of(struct pl *pl, struct gnode *n, struct val *x, double alpha, double scale, double in_scale)
{
	/* A choice of two would be a branch on cuda, where a warp does both sides of it. */
	int cuda = pl->target == WW_TARGET_CUDA;
	struct val *low = cuda ? MIN(x, N(0)) : x, *high = cuda ? MAX(x, N(0)) : x;

	low = MUL(short_of(pl, n, OP_EXPM1, in_scale == 1 ? low : MUL(low, N(in_scale))), N(alpha * scale));
	high = scale == 1 ? high : MUL(high, N(scale));
	return cuda ? ADD(high, low) : where_pos(pl, n, x, high, low);
}

static void elu(struct pl *pl, struct gnode *n)
{
	done(n,
		elu_of(pl, n, operand(pl, n, 0, "self"), pl_arg_num(pl, n, 1, "alpha", 1), pl_arg_num(pl, n, 2, "scale", 1),
			pl_arg_num(pl, n, 3, "input_scale", 1)));
}

static void selu(struct pl *pl, struct gnode *n)
{
	done(n, elu_of(pl, n, operand(pl, n, 0, "self"), 1.6732632423543772, 1.0507009873554805, 1));
}

static void celu(struct pl *pl, struct gnode *n)
{
	double alpha = pl_arg_num(pl, n, 1, "alpha", 1);

	done(n, elu_of(pl, n, operand(pl, n, 0, "self"), alpha, 1, 1 / alpha));
}

static struct val *sigmoid_of(struct pl *pl, struct gnode *n, struct val *x) { return short_of(pl, n, OP_SIGMOID, x); }

static void sigmoid(struct pl *pl, struct gnode *n) { done(n, sigmoid_of(pl, n, operand(pl, n, 0, "self"))); }

static void gelu(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self"), *h = MUL(x, N(0.5));

	if (!strcmp(pl_arg_str(n, 1, "approximate", "none"), "tanh")) {
		const double root = 0.7978845608028654, cube = 0.044715;
		struct val *u = MUL(N(root), ADD(x, MUL(N(cube), MUL(MUL(x, x), x)))),
				   *twice = MUL(x, ADD(N(2 * root), MUL(N(2 * root * cube), MUL(x, x))));

		done(n,
			pl_algebra(pl) ? MUL(x, sigmoid_of(pl, n, twice)) /* (1 + tanh u) / 2 = 1 / (1 + e^-2u) */
						   : MUL(h, ADD(N(1), pl_op1(pl, OP_TANH, u))));
	} else if (is_rounded(pl, n)) {
		done(n, pl_op1(pl, OP_GELU16, x));
	} else {
		done(n, MUL(h, ADD(N(1), pl_op1(pl, OP_ERF, MUL(x, N(0.7071067811865476))))));
	}
}

static void silu(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, MUL(x, sigmoid_of(pl, n, x)));
}

static struct val *softplus_of(struct pl *pl, struct gnode *n, struct val *x, double beta, double threshold)
{
	struct val *b = beta == 1 ? x : MUL(x, N(beta)), *soft = ADD(MAX(b, N(0)), pl_log1p_exp(pl, is_rounded(pl, n), b));

	if (beta == 1 && threshold >= 20 && n->meta[0].dt != WW_F64)
		return soft; /* which is x from there on, once it is rounded to 24 bits */
	return pl_where(pl, GT(b, N(threshold)), x, beta == 1 ? soft : MUL(soft, N(1 / beta)));
}

static void softplus(struct pl *pl, struct gnode *n)
{
	done(n,
		softplus_of(
			pl, n, operand(pl, n, 0, "self"), pl_arg_num(pl, n, 1, "beta", 1), pl_arg_num(pl, n, 2, "threshold", 20)));
}

static void mish(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self"), *w, *top;

	if (!pl_algebra(pl)) {
		done(n, MUL(x, pl_op1(pl, OP_TANH, softplus_of(pl, n, x, 1, 20))));
		return;
	}
	w = short_of(pl, n, OP_EXP, MIN(x, N(20))); /* tanh(log(1 + w)) = ((1 + w)^2 - 1) / ((1 + w)^2 + 1) */
	top = MUL(w, ADD(w, N(2)));
	done(n, MUL(x, pl_op2(pl, OP_QUOTIENT, top, ADD(top, N(2)))));
}

static struct val *hsig(struct pl *pl, struct gnode *n, struct val *x)
{
	return MUL(MIN(MAX(ADD(x, N(3)), N(0)), N(6)), N(1.0 / 6));
}

static void hardsigmoid(struct pl *pl, struct gnode *n) { done(n, hsig(pl, n, operand(pl, n, 0, "self"))); }

static void hardswish(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, MUL(x, hsig(pl, n, x)));
}

static void log_sigmoid(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, SUB(MIN(x, N(0)), pl_log1p_exp(pl, is_rounded(pl, n), x)));
}

static void softshrink(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");
	double l = pl_arg_num(pl, n, 1, "lambd", 0.5);

	done(n,
		pl_where(pl, GT(x, N(l)), SUB(x, N(l)), pl_where(pl, pl_op2(pl, OP_LT, x, N(-l)), ADD(x, N(l)), MUL(x, N(0)))));
}

static void hardshrink(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");
	double l = pl_arg_num(pl, n, 1, "lambd", 0.5);

	done(n, pl_where(pl, LE(pl_op1(pl, OP_ABS, x), N(l)), N(0), x));
}

static void threshold(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, pl_where(pl, LE(x, N(pl_arg_num(pl, n, 1, "threshold", 0))), N(pl_arg_num(pl, n, 2, "value", 0)), x));
}

static void square(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, MUL(x, x));
}

static void frac(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, SUB(x, pl_op1(pl, OP_TRUNC, x)));
}

static void logaddexp(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 0, "self"), *b = operand(pl, n, 1, "other");

	done(n, ADD(MAX(a, b), pl_log1p_exp(pl, is_rounded(pl, n), SUB(a, b))));
}

static void where(struct pl *pl, struct gnode *n)
{
	done(n, pl_where(pl, pl_need_val(pl, n, 0, "condition"), operand(pl, n, 1, "self"), operand(pl, n, 2, "other")));
}

static void masked_fill(struct pl *pl, struct gnode *n)
{
	done(n, pl_where(pl, pl_need_val(pl, n, 1, "mask"), operand(pl, n, 2, "value"), operand(pl, n, 0, "self")));
}

static void lerp(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 0, "self"), *b = operand(pl, n, 1, "end"), *w = operand(pl, n, 2, "weight");

	done(n, ADD(a, MUL(w, SUB(b, a))));
}

static void addcx(struct pl *pl, struct gnode *n)
{
	struct val *a = operand(pl, n, 1, "tensor1"), *b = operand(pl, n, 2, "tensor2");
	struct val *p = pl_op2(pl, n->variant, a, b);
	double v = pl_arg_num(pl, n, 3, "value", 1);

	done(n, ADD(operand(pl, n, 0, "self"), v == 1 ? p : MUL(p, N(v))));
}

static void glu(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self"), *a, *b;
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", -1), x->rank);
	const struct ix *half = ix_div(pl, x->size[d], ix_const(pl, 2));

	pl_guard_eq(pl, ix_mulc(pl, half, 2), x->size[d], "an even size for glu");
	pl_keep_sliced(pl, x);
	a = pl_slice(pl, x, d, ix_const(pl, 0), half, 1);
	b = pl_slice(pl, x, d, half, half, 1);
	done(n, MUL(a, sigmoid_of(pl, n, b)));
}

static void cast(struct pl *pl, struct gnode *n) { done(n, operand(pl, n, 0, "self")); }

static void nan_to_num(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");
	double big = n->meta[0].dt == WW_F64 ? 1.7976931348623157e308
		: n->meta[0].dt == WW_F16        ? 65504
										 : 3.4028234663852886e38;

	x = pl_where(pl, pl_op1(pl, OP_ISNAN, x), N(pl_arg_num(pl, n, 1, "nan", 0)), x);
	x = pl_where(pl, pl_op2(pl, OP_EQ, x, N(INFINITY)), N(pl_arg_num(pl, n, 2, "posinf", big)), x);
	done(n, pl_where(pl, pl_op2(pl, OP_EQ, x, N(-INFINITY)), N(pl_arg_num(pl, n, 3, "neginf", -big)), x));
}

/* -0 counts: 1 / -0 is -inf.  cuda: by the bit, since an exact quotient has a branch (copysign: 200 instructions for
 * four elements, 110 without); vectors of the cpu have no such operation. */
static struct val *negative(struct pl *pl, struct val *x)
{
	struct val *zero = pl_constf(pl, x->dt, 0);

	if (pl->target == WW_TARGET_CUDA)
		return pl_op1(pl, OP_SIGNBIT, x);
	return pl_op2(pl, OP_LOR, pl_op2(pl, OP_LT, x, zero),
		pl_op2(pl, OP_LAND, pl_op2(pl, OP_EQ, x, zero), pl_op2(pl, OP_LT, pl_op1(pl, OP_RECIP, x), zero)));
}

/* ---- Functions of one number that are a few operations */

static struct val *need_float(struct pl *pl, struct gnode *n, int i, const char *name)
{
	struct val *v = pl_need_val(pl, n, i, name);

	if (!pl_is_float(v->dt))
		pl_cannot(pl, n, "its operand is an integer tensor");
	return v;
}

static void isfinite_(struct pl *pl, struct gnode *n)
{
	struct val *x = need_float(pl, n, 0, "self");

	done(n, pl_op2(pl, OP_LT, pl_op1(pl, OP_ABS, x), pl_constf(pl, x->dt, INFINITY)));
}

/* The variant is the sign. */
static void is_one_inf(struct pl *pl, struct gnode *n)
{
	struct val *x = need_float(pl, n, 0, "self");

	done(n, pl_op2(pl, OP_EQ, x, pl_constf(pl, x->dt, n->variant * INFINITY)));
}

static void signbit_(struct pl *pl, struct gnode *n) { done(n, negative(pl, need_float(pl, n, 0, "self"))); }

static void degrees(struct pl *pl, struct gnode *n)
{
	done(n, MUL(operand(pl, n, 0, "self"), N(n->variant == TO_DEGREES ? 180 / PI : PI / 180)));
}

static void sinc(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");

	done(n, pl_where(pl, pl_op2(pl, OP_EQ, x, N(0)), N(1), DIV(pl_op1(pl, OP_SIN, MUL(x, N(PI))), MUL(x, N(PI)))));
}

/* Functions that are written in single precision alone. */
static void special(struct pl *pl, struct gnode *n)
{
	if (n->meta[0].dt == WW_F64)
		pl_cannot(pl, n, "double precision");
	unary(pl, n);
}

/* sin(x) / x */
static void spherical(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self"), *r = DIV(pl_op1(pl, OP_SIN, x), x);

	r = pl_where(pl, pl_op2(pl, OP_EQ, pl_op1(pl, OP_ABS, x), N(INFINITY)), N(0), r);
	done(n, pl_where(pl, pl_op2(pl, OP_EQ, x, N(0)), N(1), r));
}

/* -x log x, 0 at 0; left of it minus infinity */
static void entropy(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self"), *e = pl_op1(pl, OP_NEG, MUL(x, pl_op1(pl, OP_LOG, x)));

	e = pl_where(pl, pl_op2(pl, OP_LT, x, N(0)), N(-INFINITY), e);
	done(n, pl_where(pl, pl_op2(pl, OP_EQ, x, N(0)), N(0), e));
}

/* erfc keeps the small values of the left tail */
static void ndtr(struct pl *pl, struct gnode *n)
{
	done(n, MUL(pl_op1(pl, OP_ERFC, MUL(operand(pl, n, 0, "self"), N(-0.70710678118654752440))), N(0.5)));
}

static void logit(struct pl *pl, struct gnode *n)
{
	struct val *x = operand(pl, n, 0, "self");
	struct garg *eps = pl_arg(n, 1, "eps");

	if (eps && eps->kind == G_FLOAT)
		x = MIN(MAX(x, N(eps->f)), N(1 - eps->f));
	done(n, pl_op1(pl, OP_LOG, DIV(x, SUB(N(1), x))));
}

/* ---- Functions of two numbers that are a few operations */

static void float_operands(struct pl *pl, struct gnode *n, struct val **a, struct val **b)
{
	if (!pl_is_float(n->meta[0].dt))
		pl_cannot(pl, n, "its operand is an integer tensor");
	*a = operand(pl, n, 0, "self");
	*b = operand(pl, n, 1, "other");
}

/* Scaled, so that squares neither overflow nor vanish. */
static void hypot_(struct pl *pl, struct gnode *n)
{
	struct val *a, *b, *hi, *lo;

	float_operands(pl, n, &a, &b);
	hi = MAX(pl_op1(pl, OP_ABS, a), pl_op1(pl, OP_ABS, b));
	lo = MIN(pl_op1(pl, OP_ABS, a), pl_op1(pl, OP_ABS, b));
	lo = pl_where(pl, GT(hi, N(0)), DIV(lo, hi), N(0));
	done(n, MUL(hi, pl_op1(pl, OP_SQRT, ADD(N(1), MUL(lo, lo)))));
}

static void copysign_(struct pl *pl, struct gnode *n)
{
	struct val *a, *b;

	float_operands(pl, n, &a, &b);
	a = pl_op1(pl, OP_ABS, a);
	done(n, pl_where(pl, negative(pl, b), pl_op1(pl, OP_NEG, a), a));
}

static void heaviside(struct pl *pl, struct gnode *n)
{
	struct val *a, *b;

	float_operands(pl, n, &a, &b);
	done(n,
		pl_where(pl, pl_op2(pl, OP_EQ, a, N(0)), b,
			pl_where(pl, GT(a, N(0)), N(1), pl_where(pl, pl_op1(pl, OP_ISNAN, a), a, N(0)))));
}

/* The variant is the logarithm: a log(b) or a log1p(b); 0 where a is 0, unless b is NaN. */
static void xlogy(struct pl *pl, struct gnode *n)
{
	struct val *a, *b, *l;

	float_operands(pl, n, &a, &b);
	l = pl_op1(pl, n->variant, b);
	done(n,
		pl_where(pl, pl_op2(pl, OP_LAND, pl_op2(pl, OP_EQ, a, N(0)), pl_op1(pl, OP_LNOT, pl_op1(pl, OP_ISNAN, b))),
			N(0), MUL(a, l)));
}

/* fmax and fmin: if one operand is NaN, the other one. */
static void extremum_of_numbers(struct pl *pl, struct gnode *n)
{
	struct val *a, *b;

	float_operands(pl, n, &a, &b);
	done(n,
		pl_where(
			pl, pl_op1(pl, OP_ISNAN, a), b, pl_where(pl, pl_op1(pl, OP_ISNAN, b), a, pl_op2(pl, n->variant, a, b))));
}

static void logaddexp2(struct pl *pl, struct gnode *n)
{
	struct val *a, *b, *d;

	float_operands(pl, n, &a, &b);
	d = pl_op1(pl, OP_NEG, pl_op1(pl, OP_ABS, SUB(a, b)));
	done(n, ADD(MAX(a, b), MUL(pl_op1(pl, OP_LOG1P_UNIT, pl_op1(pl, OP_EXP2, d)), N(1.4426950408889634))));
}

static void ldexp_(struct pl *pl, struct gnode *n)
{
	struct val *a, *b;

	float_operands(pl, n, &a, &b);
	done(n, MUL(a, pl_op1(pl, OP_EXP2, b)));
}

static void isclose(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *b = pl_cast(pl, pl_need_val(pl, n, 1, "other"), a->dt), *tol,
			   *close;
	double rtol = pl_arg_num(pl, n, 2, "rtol", 1e-5), atol = pl_arg_num(pl, n, 3, "atol", 1e-8);

	if (!pl_is_float(a->dt))
		pl_cannot(pl, n, "its operand is an integer tensor");
	if (pl_arg_int(pl, n, 4, "equal_nan", 0))
		pl_cannot(pl, n, "equal_nan=True is not covered");
	tol = ADD(MUL(pl_op1(pl, OP_ABS, b), pl_constf(pl, a->dt, rtol)), pl_constf(pl, a->dt, atol));
	close = pl_op2(pl, OP_LAND, pl_op2(pl, OP_LE, pl_op1(pl, OP_ABS, SUB(a, b)), tol),
		pl_op2(pl, OP_LT, pl_op1(pl, OP_ABS, SUB(a, b)), pl_constf(pl, a->dt, INFINITY)));
	done(n, pl_op2(pl, OP_LOR, close, pl_op2(pl, OP_EQ, a, b)));
}

#define U(name, op) { name, unary, OP_##op }
#define UG(name, op, how) { name, unary, OP_##op, .grows = how } /* how it grows (lower.h) */
#define S(name, op) { name, special, OP_##op }
#define SG(name, op) { name, special, OP_##op, .grows = GROWS_NOT }
#define B(name, op) { name, binary, OP_##op }
#define A(name, ...) { name, __VA_ARGS__, PL_ARITHMETIC }
#define C(name, op) { name, compare, OP_##op }
const struct pl_lower_row pl_lower_point[] = { U("neg", NEG), U("negative", NEG), U("abs", ABS), U("absolute", ABS),
	UG("reciprocal", RECIP, GROWS_NOT), U("exp", EXP), U("exp2", EXP2), U("expm1", EXPM1), UG("log", LOG, GROWS_NOT),
	UG("log2", LOG2, GROWS_NOT), UG("log10", LOG10, GROWS_NOT), UG("log1p", LOG1P, GROWS_NOT),
	UG("sqrt", SQRT, GROWS_AS_ROOT), UG("rsqrt", RSQRT, GROWS_NOT), UG("sin", SIN, GROWS_NOT),
	UG("cos", COS, GROWS_NOT), U("tan", TAN), U("asin", ASIN), U("acos", ACOS), UG("atan", ATAN, GROWS_NOT),
	U("sinh", SINH), U("cosh", COSH), UG("tanh", TANH, GROWS_NOT), UG("asinh", ASINH, GROWS_NOT), U("acosh", ACOSH),
	U("atanh", ATANH), UG("erf", ERF, GROWS_NOT), UG("erfc", ERFC, GROWS_NOT), U("lgamma", LGAMMA),
	UG("digamma", DIGAMMA, GROWS_NOT), UG("special_digamma", DIGAMMA, GROWS_NOT), UG("special_psi", DIGAMMA, GROWS_NOT),
	{ "sigmoid", sigmoid, .grows = GROWS_NOT }, U("floor", FLOOR), U("ceil", CEIL), U("trunc", TRUNC), U("fix", TRUNC),
	{ "round", rounded }, UG("sign", SIGN, GROWS_NOT), UG("sgn", SIGN, GROWS_NOT),
	UG("special_expit", SIGMOID, GROWS_NOT), UG("special_erf", ERF, GROWS_NOT), UG("special_log1p", LOG1P, GROWS_NOT),
	U("special_expm1", EXPM1), U("special_exp2", EXP2), A("add", binary, OP_ADD), A("sub", binary, OP_SUB),
	B("subtract", SUB), { "mul", binary, OP_MUL, PL_ARITHMETIC, .grows = GROWS_AS_PRODUCT },
	{ "multiply", binary, OP_MUL, .grows = GROWS_AS_PRODUCT }, B("maximum", MAXIMUM), B("minimum", MINIMUM),
	{ "atan2", binary, OP_ATAN2, .grows = GROWS_NOT }, B("fmod", FMOD), B("remainder", REM),
	B("floor_divide", FLOORDIV), A("rsub", rsub, 0), B("__lshift__", SHL), B("__rshift__", SHR),
	B("bitwise_left_shift", SHL), B("bitwise_right_shift", SHR),
	{ "pow", power, 0, PL_ARITHMETIC, .grows = GROWS_AS_POWER }, { "float_power", power, .grows = GROWS_AS_POWER },
	{ "div", division, 0, PL_ARITHMETIC, .grows = GROWS_AS_FIRST },
	{ "true_divide", division, .grows = GROWS_AS_FIRST }, { "divide", division, .grows = GROWS_AS_FIRST }, C("lt", LT),
	C("le", LE), C("gt", GT), C("ge", GE), C("eq", EQ), C("ne", NE), C("less", LT), C("less_equal", LE),
	C("greater", GT), C("greater_equal", GE), C("not_equal", NE), C("logical_and", LAND), C("logical_or", LOR),
	C("logical_xor", LXOR), { "bitwise_and", bitwise, OP_AND }, { "bitwise_or", bitwise, OP_OR },
	{ "bitwise_xor", bitwise, OP_XOR }, { "__and__", bitwise, OP_AND }, { "__or__", bitwise, OP_OR },
	{ "__xor__", bitwise, OP_XOR }, { "logical_not", lnot }, { "bitwise_not", lnot }, { "isnan", isnan_ },
	{ "isinf", isinf_ }, { "relu", relu }, { "relu6", relu6, .grows = GROWS_NOT }, { "clamp", clamp },
	{ "clip", clamp }, { "clamp_min", clamp, LOWER }, { "clamp_max", clamp, UPPER },
	{ "hardtanh", hardtanh, .grows = GROWS_NOT }, { "leaky_relu", leaky_relu }, { "rrelu", rrelu }, { "prelu", prelu },
	{ "_prelu_kernel", prelu }, { "elu", elu }, { "selu", selu }, { "celu", celu }, { "gelu", gelu }, { "silu", silu },
	{ "softplus", softplus }, { "mish", mish }, { "hardsigmoid", hardsigmoid, .grows = GROWS_NOT },
	{ "hardswish", hardswish }, { "log_sigmoid", log_sigmoid }, { "softshrink", softshrink },
	{ "hardshrink", hardshrink }, { "threshold", threshold }, { "square", square, .grows = GROWS_AS_SQUARE },
	{ "frac", frac, .grows = GROWS_NOT }, { "logaddexp", logaddexp }, { "where", where },
	{ "masked_fill", masked_fill }, { "lerp", lerp }, { "addcmul", addcx, OP_MUL, .grows = GROWS_AS_SUM_WITH_PRODUCT },
	{ "addcdiv", addcx, OP_DIV }, { "glu", glu }, { "isfinite", isfinite_ }, { "isposinf", is_one_inf, 1 },
	{ "isneginf", is_one_inf, -1 }, { "signbit", signbit_ }, { "deg2rad", degrees, TO_RADIANS },
	{ "rad2deg", degrees, TO_DEGREES }, { "sinc", sinc, .grows = GROWS_NOT },
	{ "special_ndtr", ndtr, .grows = GROWS_NOT }, { "logit", logit }, { "special_logit", logit }, { "hypot", hypot_ },
	{ "copysign", copysign_ }, { "heaviside", heaviside }, { "xlogy", xlogy, OP_LOG, .grows = GROWS_AS_FIRST },
	{ "special_xlogy", xlogy, OP_LOG, .grows = GROWS_AS_FIRST },
	{ "special_xlog1py", xlogy, OP_LOG1P, .grows = GROWS_AS_FIRST }, { "fmax", extremum_of_numbers, OP_MAXIMUM },
	{ "fmin", extremum_of_numbers, OP_MINIMUM }, { "logaddexp2", logaddexp2 }, { "ldexp", ldexp_ },
	{ "isclose", isclose }, { "to", cast, 0, PL_VIEW | PL_MAY_COPY }, { "_to_copy", cast }, { "type_as", cast },
	{ "nan_to_num", nan_to_num }, U("arcsin", ASIN), U("arccos", ACOS), UG("arctan", ATAN, GROWS_NOT),
	UG("arcsinh", ASINH, GROWS_NOT), U("arccosh", ACOSH), U("arctanh", ATANH),
	{ "arctan2", binary, OP_ATAN2, .grows = GROWS_NOT }, UG("special_erfc", ERFC, GROWS_NOT),
	U("special_gammaln", LGAMMA), { "special_round", rounded }, { "special_sinc", sinc, .grows = GROWS_NOT },
	{ "special_entr", entropy, .grows = GROWS_AS_SQUARE },
	{ "special_spherical_bessel_j0", spherical, .grows = GROWS_NOT }, S("i0", I0), S("special_i0", I0),
	SG("special_i0e", I0E), S("special_i1", I1), SG("special_i1e", I1E), S("special_modified_bessel_i0", I0),
	S("special_modified_bessel_i1", I1), SG("special_modified_bessel_k0", K0), SG("special_modified_bessel_k1", K1),
	SG("special_scaled_modified_bessel_k0", K0E), SG("special_scaled_modified_bessel_k1", K1E),
	SG("special_bessel_j0", J0), SG("special_bessel_j1", J1), SG("special_bessel_y0", Y0), SG("special_bessel_y1", Y1),
	S("special_erfcx", ERFCX), { "special_log_ndtr", special, OP_LOG_NDTR, .grows = GROWS_AS_SQUARE },
	S("erfinv", ERFINV), S("special_erfinv", ERFINV), SG("special_ndtri", NDTRI), { NULL, NULL } };
