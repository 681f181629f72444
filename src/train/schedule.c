/* schedule.c - learning rates, and the guard against bad steps.
 *
 * The guard looks at losses and not at the norm of the gradient, which clipping has bounded already; and at the spread
 * of recent losses and not at a fixed distance, since how much a loss varies from step to step is a matter of the
 * batch's size. It keeps only finite numbers, so its state can be written down and read back exactly.
 */
#include "train/schedule.h"
#include "base/median.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ww_schedule_kind ww_schedule_kind_of(const char *name)
{
	static const char *const names[] = { "constant", "linear", "cosine", "wsd" };
	int k = ww_word_at(name, names, WW_SCHEDULE_COUNT);
	return k < 0 ? WW_SCHEDULE_COUNT : (enum ww_schedule_kind)k;
}

double ww_schedule_lr(const struct ww_schedule *s, int64_t step)
{
	double low = s->lr * s->floor,
		   from = s->kind == WW_SCHEDULE_WSD ? (double)(s->steps - s->decay) : (double)s->warmup;
	if (step <= s->warmup)
		return s->lr * (double)step / (double)s->warmup;
	if (s->kind == WW_SCHEDULE_CONSTANT || (double)step <= from)
		return s->lr;
	double done = fmin(1, ((double)step - from) / ((double)s->steps - from));
	if (s->kind == WW_SCHEDULE_COSINE)
		return low + (s->lr - low) * 0.5 * (1 + cos(M_PI * done));
	return s->lr + (low - s->lr) * done;
}

static int is_spike(const struct ww_guard *g, double loss)
{
	int n = g->seen < WW_GUARD_STEPS ? (int)g->seen : WW_GUARD_STEPS;
	double x[WW_GUARD_STEPS];
	if (g->factor <= 0 || n < WW_GUARD_FEW)
		return 0;
	memcpy(x, g->losses, (size_t)n * sizeof(*x));
	double middle = ww_median(x, (size_t)n);
	for (int i = 0; i < n; i++)
		x[i] = fabs(g->losses[i] - middle);
	return loss > middle + g->factor * fmax(ww_median(x, (size_t)n), 0.01);
}

enum ww_guard_word ww_guard_look(const struct ww_guard *g, double loss)
{
	return !isfinite(loss) ? WW_GUARD_NAN : is_spike(g, loss) ? WW_GUARD_SPIKE : WW_GUARD_FINE;
}

void ww_guard_note(struct ww_guard *g, enum ww_guard_word word, double loss)
{
	if (word == WW_GUARD_FINE) {
		g->skipped_in_row = 0;
		g->losses[g->seen++ % WW_GUARD_STEPS] = loss;
		return;
	}
	g->skipped_in_row++;
	g->skipped++;
}
