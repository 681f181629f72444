/* algebra.c - did the solution do the arithmetic that the task asks for?
 *
 * A solution may be right and compute less: the mean of a matrix product is a product with a mean.  Such a verdict is
 * correct and tagged `algebraic`, so that its speed is never read as that of a better kernel.  The tag must be certain,
 * since it would discredit an honest solution; it follows from three numbers:
 *
 *     asked      multiply-adds of the graph's matrix products, convolutions and attentions, times two.  Pointwise
 *                work is left out: fusing and common subexpressions save it honestly.  Half of a causal attention is
 *                counted.
 *     library    what the plan's library nodes do of it, exactly: their sizes are in the plan.
 *     possible   what the launches can have done in the time measured, at the rate that the device cannot exceed: its
 *                units, times what they do in a cycle, times its highest clock (struct ww_run_facts).  Without
 *                tensor-core instructions in the binary that is the fp32 rate (twice it where operands are half or
 *                bfloat16: two to a register).  So it is for a plan's kernels on cpu: Linux gives AMX's tiles to a
 *                process that asks for them (arch_prctl), and the runner neither asks nor may its kernels.
 *
 * The limit is by construction, since any that is measured is too low when the machine was busy: a peak that came from
 * such a machine has called honest solutions algebraic (noise in the time measured only adds to it, which is the safe
 * side).  A device that is not in the table has no limit, so no solution is tagged for its time there.  On cpu the time
 * is that which the processors spent on it.
 *
 * A candidate of another form than a plan has no list of nodes and no binary: all of its arithmetic counts as possible
 * by matrix units. The tag is set where asked - library > possible, and where there is no launch that could make up the
 * difference; never where PyTorch itself, timed with the candidate, did its arithmetic at that rate (Winograd's
 * convolutions do less than the direct ones that are counted).  It finds solutions that gained by the saving.  It
 * misses a solution that saves arithmetic and is slow otherwise, one whose task is bound by memory either way, and one
 * that carries tensor-core instructions for show.
 *
 * Rejected: recognising tasks that collapse by patterns of their graph (there is always another identity, and an honest
 * solution of such a task is no less honest); bounding a kernel's loops from its machine code (not decidable in
 * general). */
#include "judge/facts.h"
#include "judge/own_work.h"
#include "judge/stages.h"

#include "base/log.h"
#include "judge/compile/cubin_scan.h"
#include "judge/profile/work.h"

#include <math.h>

static const double NEGLIGIBLE = 0.01;

static double library_flops(const struct ww_image *m)
{
	double sum = 0;
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (ww_library_node(m, i))
			sum += ww_work_of_node(m, i).flops;
	return sum;
}

static double highest_peak(const struct ww_ref_peaks *p)
{
	return fmax(fmax(p->fp32_flops, p->tf32_flops), fmax(p->fp16_flops, p->bf16_flops));
}

/* What the launches of this binary cannot have exceeded, flop/s; 0 unknown. */
static double launch_limit(const struct ww_session *s)
{
	const struct ww_run_facts *f = &s->t->judge->facts;
	int half = ww_half_operands(&s->t->facts);
	int cpu = f->device.target == WW_TARGET_CPU;
	if (cpu ? !s->image : !s->binary || ww_cubin_tensor_cores(s->binary->binary, s->binary->binary_bytes, f->device.cc))
		return cpu && !half ? fmax(f->plain_limit_flops, f->matrix_limit_flops / 2) : f->matrix_limit_flops;
	return half ? 2 * f->plain_limit_flops : f->plain_limit_flops;
}

/* Is so much arithmetic impossible in the time measured?  On cpu by processor time, which other processes do not
 * lengthen. */
static int impossible(const struct ww_session *s, double flops)
{
	double limit = launch_limit(s), time_s = s->v->time.device_us * 1e-6;
	int threads = s->t->judge->facts.device.threads;
	if (s->used_s.n && threads > 0)
		time_s = ww_recent_median(&s->used_s) / threads;
	ww_log(WW_LOG_DEBUG, "arithmetic: %.3g left to the launches, %.3g possible in %.1f us", flops, limit * time_s,
		time_s * 1e6);
	return limit > 0 && flops > limit * time_s;
}

/* PyTorch does all the arithmetic that the graph asks for: a solution that needs no higher rate than PyTorch reached
 * may have done all of it too. */
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

static int computed_less(const struct ww_session *s, double asked)
{
	double left = s->image ? asked - library_flops(s->image) - ww_pytorch_flops(s->t->graph, s->image) : asked;
	if (left <= NEGLIGIBLE * asked)
		return 0;
	return (s->image && !has_launch(s->image)) || (faster_than_pytorch(s->v, left / asked) && impossible(s, left));
}

enum ww_rc ww_judge_algebraic(struct ww_session *s, struct ww_err *err)
{
	double asked = s->t->matrix_flops;
	struct ww_ref_peaks p;

	if (asked <= 0)
		return WW_OK;
	s->v->algebraic = computed_less(s, asked);
	WW_CHECK(ww_judge_device_peaks(s->t, err));
	ww_judge_peaks(s->t->judge, &p);
	if (highest_peak(&p) > 0)
		s->v->floor_flops_us = asked / highest_peak(&p) * 1e6;
	return WW_OK;
}
