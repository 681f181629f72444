/* algebra.c - was the arithmetic done that the task asks for?
 *
 * A solution may be right and compute less: the mean of a matrix product is a product with a mean.  Such a verdict is correct
 * and tagged `algebraic`, so that its speed is never read as that of a better kernel.  The tag must be certain, since an honest
 * solution that wears it is slandered; it follows from three numbers:
 *
 *     asked      multiply-adds of the graph's matrix products, convolutions and attentions, times two.  Pointwise
 *                work is left out: fusing and common subexpressions save it honestly.  Half of a causal attention is counted.
 *     library    what the plan's library nodes do of it, exactly: their sizes are in the plan.
 *     possible   what the launches can have done in the time measured, at 1.25 times the highest arithmetic peak measured
 *                on this device for the instructions that the binary has.  Without tensor-core instructions that is the fp32 peak
 *                (twice it where operands are half or bfloat16: two to a register).  On cpu the margin is 2, since a peak may
 *                have been measured on a busy machine, and half-precision units count half where operands are fp32.
 *
 * A candidate of another form than a plan has no list of nodes and no binary: all of its arithmetic counts as possible at the highest
 * peak.  The tag is set where asked - library > possible, and where there is no launch that could make up the difference; never where
 * PyTorch itself, timed beside the candidate, did its arithmetic at that rate, and never before the peaks have been measured once more
 * (facts.c).  It finds those who gained by it.  It misses a solution that saves arithmetic and is slow otherwise, one whose task is bound
 * by memory either way, and one that carries tensor-core instructions for show.
 *
 * Rejected: recognising tasks that collapse by patterns of their graph (there is always another identity, and an honest
 * solution of such a task is no less honest); bounding a kernel's loops from its machine code (not decidable in general). */
#include "judge/internal.h"

#include "judge/compile/cubin_scan.h"

#include <math.h>

static const double PEAK_MARGIN = 1.25, CPU_MARGIN = 2, NEGLIGIBLE = 0.01;

static double conv_flops(const struct ww_conv *c)
{
	const long long *places = c->transposed ? c->in : c->out;
	double n = 2.0 * (double)c->n * (double)c->c * (double)c->k / (c->groups > 0 ? c->groups : 1);
	for (int i = 0; i < c->nd; i++)
		n *= (double)places[i] * (double)c->kernel[i];
	return n;
}

double ww_library_flops(const struct ww_image *m)
{
	double sum = 0;
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const struct ww_image_node *n = &ww_image_nodes(m)[i];
		if (n->kind == WW_NODE_GEMM)
			sum += 2.0 * (double)n->gemm.m * (double)n->gemm.n * (double)n->gemm.k * (double)n->gemm.batch;
		else if (n->kind == WW_NODE_CONV)
			sum += conv_flops(&n->conv);
	}
	return sum;
}

static int half_operands(const struct ww_facts *f)
{
	int half = 0;
	for (int i = 0; i < f->n_inputs; i++)
		half |= f->inputs[i].dtype == WW_F16 || f->inputs[i].dtype == WW_BF16;
	for (int i = 0; i < f->n_params; i++)
		half |= f->params[i].dtype == WW_F16 || f->params[i].dtype == WW_BF16;
	return half;
}

static double highest_peak(const struct ww_ref_peaks *p)
{
	return fmax(fmax(p->fp32_flops, p->tf32_flops), fmax(p->fp16_flops, p->bf16_flops));
}

/* What the launches of this binary could have reached, flop/s; 0 unknown. */
static double launch_peak(const struct ww_session *s, const struct ww_ref_peaks *p)
{
	const struct ww_device *d = &s->t->facts.device;
	double half = fmax(p->fp16_flops, p->bf16_flops);
	if (d->target == WW_TARGET_CPU)
		return CPU_MARGIN * fmax(p->fp32_flops, half_operands(&s->t->facts) ? half : half / 2);
	if (!s->binary || ww_cubin_tensor_cores(s->binary->binary, s->binary->binary_bytes, d->cc))
		return PEAK_MARGIN * highest_peak(p);
	return PEAK_MARGIN * (half_operands(&s->t->facts) ? 2 * p->fp32_flops : p->fp32_flops);
}

/* Could so much arithmetic not have been done in the time measured? */
static int impossible(const struct ww_session *s, double flops)
{
	struct ww_ref_peaks p;
	ww_judge_peaks(s->t->judge, &p);
	double peak = launch_peak(s, &p);
	return peak > 0 && flops > peak * s->v->time.device_us * 1e-6;
}

/* PyTorch does all that is asked for; who does so much of it at no higher rate need not have saved anything. */
static int faster_than_pytorch(const struct ww_verdict *v, double share)
{
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (v->baseline_measured[b] && v->time.device_us >= share * v->baselines[b].device_us)
			return 0;
	return 1;
}

static int has_launch(const struct ww_image *m)
{
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (ww_image_nodes(m)[i].kind == WW_NODE_LAUNCH)
			return 1;
	return 0;
}

static enum ww_rc look(struct ww_session *s, double asked, struct ww_err *err)
{
	struct ww_verdict *v = s->v;
	double left = s->image ? asked - ww_library_flops(s->image) : asked;
	enum ww_rc rc = WW_OK;

	if (left <= NEGLIGIBLE * asked)
		return WW_OK;
	v->algebraic = s->image && !has_launch(s->image);
	if (v->algebraic || !faster_than_pytorch(v, left / asked) || !impossible(s, left))
		return WW_OK;
	WW_TRY(ww_judge_device_again(s->t, err));
	v->algebraic = impossible(s, left);
out:
	return rc;
}

enum ww_rc ww_judge_algebraic(struct ww_session *s, struct ww_err *err)
{
	double asked = s->t->matrix_flops;
	struct ww_ref_peaks p;
	enum ww_rc rc = WW_OK;

	if (asked <= 0)
		return WW_OK;
	WW_TRY(ww_judge_device_peaks(s->t, err));
	WW_TRY(look(s, asked, err));
	ww_judge_peaks(s->t->judge, &p);
	if (highest_peak(&p) > 0)
		s->v->floor_flops_us = asked / highest_peak(&p) * 1e6;
out:
	return rc;
}
