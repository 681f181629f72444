/* operands.c - how the operands of a product lie, and what can read them so. */
#include "policy/planner/anchor/gemm/gemm.h"
#include "policy/planner/lower/lower.h"

const struct ix *pl_gemm_inner(const struct anchor *s) { return s->in[0].size[s->gemm.n_batch + 1]; }

int pl_gemm_dt(const struct anchor *sp) { return sp->in[0].val->dt; }

const struct ix *pl_gemm_stride(struct pl *pl, const struct anchor *sp, int which, int d)
{
	return d < 0 ? ix_const(pl, 0) : sp->in[which].stride[d];
}

int pl_gemm_one_stride(const struct operand *o, int from, int to)
{
	for (int d = from; d + 1 < to; d++)
		if (ix_num(o->stride[d]) != ix_num(o->stride[d + 1]) * ix_num(o->size[d + 1]))
			return 0;
	return 1;
}

/* Are the strides and the offset of a 16-bit operand aligned to 16 bytes, as tensor maps need? */
static int is_aligned(const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch;

	return !(ix_num(o->stride[nb + which]) % 8 || ix_num(o->offset) % 8 || (nb && ix_num(o->stride[nb - 1]) % 8));
}

int pl_gemm_is_along(const struct anchor *sp, int which)
{
	return ix_is(sp->in[which].stride[sp->gemm.n_batch + 1 - which], 1);
}

int pl_gemm_is_nk(const struct anchor *sp) { return !ix_is(sp->in[1].stride[sp->gemm.n_batch + 1], 1); }

int pl_gemm_is_one(const struct anchor *sp, int which)
{
	int several = 0;

	for (int d = 0; d < sp->gemm.n_batch; d++) {
		if (ix_is(sp->out->size[d], 1))
			continue;
		if (!ix_is(sp->in[which].stride[d], 0))
			return 0;
		several = 1;
	}
	return several && (!which || pl_gemm_dt(sp) != WW_F32);
}

/* Is one matrix otherwise the operand of several batches?  A tensor map has no stride of 0. */
static int is_repeated(const struct anchor *sp, int which)
{
	for (int d = 0; d < sp->gemm.n_batch; d++)
		if (ix_is(sp->in[which].stride[d], 0) && !ix_is(sp->out->size[d], 1))
			return !pl_gemm_is_one(sp, which);
	return 0;
}

int pl_gemm_is_read(const struct anchor *sp, int which)
{
	return pl_gemm_is_along(sp, which) && is_aligned(sp, which) && !is_repeated(sp, which);
}

int pl_gemm_fits16(const struct anchor *sp)
{
	int nb = sp->gemm.n_batch, fits = 1;

	for (int i = 0; i < 2; i++)
		fits = fits && (pl_gemm_is_along(sp, i) || ix_is(sp->in[i].stride[nb + i], 1));
	return fits;
}

int pl_gemm_fits_library(const struct anchor *sp)
{
	int r = sp->gemm.n_batch + 2;

	for (int i = 0; i < 2; i++) {
		const struct operand *o = &sp->in[i];
		int rows = ix_is(o->stride[r - 1], 1); /* (m, k) and (k, n) row by row, or by columns */
		const struct ix *length = rows == i ? sp->out->size[r - 2 + i] : pl_gemm_inner(sp);

		if (ix_num(o->stride[rows ? r - 2 : r - 1]) < ix_num(length) || !pl_gemm_one_stride(o, 0, sp->gemm.n_batch))
			return 0;
	}
	return 1;
}

int pl_gemm_vector(const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch, v = 16 / pl_itemsize(pl_gemm_dt(sp)), line = ix_is(o->stride[nb + 1 - which], 1);
	int64_t terms = ix_num(o->offset) | ix_num(o->stride[line ? nb + which : nb + 1 - which]);

	for (int d = 0; d < nb; d++)
		terms |= ix_num(o->stride[d]);
	while (v > 1 && terms % v)
		v /= 2;
	return v;
}

int pl_gemm_library_dt(const struct anchor *sp)
{
	return pl_is_half(sp->out->dt) && !sp->out->result ? WW_F32 : sp->out->dt;
}
