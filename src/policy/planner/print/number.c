/* number.c - C text of scalars: types, literals, conversions, and the operations of ops.def.  expr.c decides where they
 * are computed. */
#include "policy/planner/print/number.h"

#include <math.h>
#include <string.h>

const char *pl_ctype(int dt, int target)
{
	int cuda = target == WW_TARGET_CUDA;

	switch (dt) {
	case WW_F32: return "float";
	case WW_F64: return "double";
	case WW_F16: return cuda ? "__half" : "uint16_t";
	case WW_BF16: return cuda ? "__nv_bfloat16" : "uint16_t";
	case WW_I8: return "signed char";
	case WW_I16: return "short";
	case WW_I32: return "int";
	case WW_I64: return "long long";
	default: return "unsigned char";
	}
}

const char *pl_acc_type(int dt)
{
	return dt == WW_F64 ? "double" : pl_is_float(dt) ? "float" : dt == WW_BOOL ? "int" : "long long";
}

const char *pl_literal(struct pl *pl, int dt, double f, int64_t i)
{
	const char *s;

	if (!pl_is_float(dt))
		return pl_fmt(pl, dt == WW_BOOL ? "%lld" : "%lldll", (long long)i);
	if (isnan(f))
		return dt == WW_F64 ? "PL_NAN" : "PL_NANF";
	if (isinf(f))
		return pl_fmt(pl, "%sPL_INF%s%s", f < 0 ? "(-" : "", dt == WW_F64 ? "" : "F", f < 0 ? ")" : "");
	s = pl_fmt(pl, dt == WW_F64 ? "%.17g" : "%.9g", dt == WW_F64 ? f : (double)(float)f);
	if (!strpbrk(s, ".en"))
		s = pl_fmt(pl, "%s.0", s);
	return pl_fmt(pl, f < 0 ? "(%s%s)" : "%s%s", s, dt == WW_F64 ? "" : "f");
}

const char *pl_fill(struct pl *pl, const char *t, const char *const *arg, int dt)
{
	struct ww_str s = pl_text(pl);

	for (; *t; t++) {
		if (*t == '$' && t[1] >= '0' && t[1] <= '3')
			ww_str_adds(&s, arg[*++t - '0']);
		else if (*t == '@')
			ww_str_adds(&s, dt == WW_F64 ? "" : "f");
		else
			ww_str_addc(&s, *t);
	}
	return s.p;
}

const char *pl_from_store(struct pl *pl, const char *p, int dt)
{
	int cuda = pl->target == WW_TARGET_CUDA;

	switch (dt) {
	case WW_F16: return pl_fmt(pl, cuda ? "__half2float(%s)" : "ww_f32_of_f16(%s)", p);
	case WW_BF16: return pl_fmt(pl, cuda ? "__bfloat162float(%s)" : "ww_f32_of_bf16(%s)", p);
	default: return p;
	}
}

const char *pl_cast_text(struct pl *pl, const char *t, int from, int to)
{
	if (to == WW_BOOL)
		return pl_fmt(pl, "(%s != 0)", t);
	if (!strcmp(pl_acc_type(from), pl_acc_type(to)) && !(pl_is_int(to) && to != WW_I64 && to != from))
		return t;
	if (to == WW_I32 && pl_is_float(from) &&
		pl->target == WW_TARGET_CUDA) /* the conversion to 64 bits takes four times as long */
		return pl_fmt(pl, "(long long)(int)(%s)", t);
	if (pl_is_int(to) && to != WW_I64) /* wrap as the narrow type does */
		return pl_fmt(pl, "(long long)(%s)(%s%s)", pl_ctype(to, pl->target), pl_is_float(from) ? "long long)(" : "", t);
	return pl_fmt(pl, "(%s)%s", pl_acc_type(to), t);
}

const char *pl_ident(struct pl *pl, enum pl_red red, int dt)
{
	switch (red) {
	case RED_SUM: return pl_is_float(dt) ? pl_literal(pl, dt, 0, 0) : "0";
	case RED_PROD: return pl_is_float(dt) ? pl_literal(pl, dt, 1, 1) : "1";
	case RED_MAX:
	case RED_ARGMAX:
		return pl_is_float(dt) ? pl_literal(pl, dt, -INFINITY, 0) : dt == WW_BOOL ? "0" : "(-0x7fffffffffffffffll - 1)";
	default: return pl_is_float(dt) ? pl_literal(pl, dt, INFINITY, 0) : dt == WW_BOOL ? "1" : "0x7fffffffffffffffll";
	}
}

const char *pl_combine(struct pl *pl, enum pl_red red, int dt, const char *a, const char *b, int vec)
{
	static const enum pl_op ops[] = { [RED_SUM] = OP_ADD,
		[RED_PROD] = OP_MUL,
		[RED_MAX] = OP_MAXIMUM,
		[RED_MIN] = OP_MINIMUM,
		[RED_ARGMAX] = OP_MAXIMUM,
		[RED_ARGMIN] = OP_MINIMUM };
	const struct pl_op_info *o = &pl_ops[ops[red]];
	const char *s[2] = { a, b };

	return pl_fill(pl, vec ? o->vec : pl_is_float(dt) ? o->scalar : o->intg, s, dt);
}

const char *pl_to_store(struct pl *pl, const char *text, int from, int to)
{
	int cuda = pl->target == WW_TARGET_CUDA;

	if (from != to)
		text = pl_cast_text(pl, text, from, to);
	switch (to) {
	case WW_F16: return pl_fmt(pl, cuda ? "__float2half_rn(%s)" : "ww_f16_of_f32(%s)", text);
	case WW_BF16: return pl_fmt(pl, cuda ? "__float2bfloat16_rn(%s)" : "ww_bf16_of_f32(%s)", text);
	case WW_F32:
	case WW_F64: return text;
	default: return pl_fmt(pl, "(%s)(%s)", pl_ctype(to, pl->target), text);
	}
}
