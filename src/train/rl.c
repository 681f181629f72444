/* rl.c - see rl.h.  Formulas: PPO (1707.06347), GAE (1506.02438), dual clip (1912.09729), GRPO (2402.03300), RLOO
 * (2402.14740), DAPO (2503.14476), VAPO (2504.05118).  The distance from a reference is GRPO's. */
#include "train/rl.h"

#include <math.h>
#include <stddef.h>

/* ---- advantages */

static double lambda_of(const struct ww_rl_gae *o, int64_t own)
{
	return o->alpha > 0 ? fmax(0, 1 - 1 / (o->alpha * (double)own)) : o->lambda;
}

void ww_rl_gae(const struct ww_rl_set *s, const struct ww_rl_gae *o, const float *reward, const float *value,
	float *advantage, float *target)
{
	for (int64_t e = 0; e < s->episodes; e++) {
		int64_t begin = s->starts[e], end = s->starts[e + 1];
		double lambda = lambda_of(o, end - begin), next = 0, a = 0;
		for (int64_t i = end - 1; i >= begin; i--) {
			double v = (double)value[i], r = i == end - 1 ? (double)reward[e] : 0;
			a = r + o->gamma * next - v + o->gamma * lambda * a;
			next = v;
			if (advantage)
				advantage[i] = (float)a;
			if (target)
				target[i] = (float)(v + a);
		}
	}
}

/* The advantage of one of n rewards. */
static double among(enum ww_rl_group kind, const float *reward, int64_t n, int64_t i)
{
	double sum = 0, square = 0, mean;
	for (int64_t k = 0; k < n; k++)
		sum += (double)reward[k];
	if (n < 2)
		return 0;
	if (kind == WW_RL_RLOO)
		return (double)reward[i] - (sum - (double)reward[i]) / (double)(n - 1);
	mean = sum / (double)n;
	for (int64_t k = 0; k < n; k++)
		square += ((double)reward[k] - mean) * ((double)reward[k] - mean);
	return ((double)reward[i] - mean) / (sqrt(square / (double)(n - 1)) + 1e-6);
}

void ww_rl_group_advantages(
	const struct ww_rl_set *s, enum ww_rl_group kind, const int64_t *group, const float *reward, float *advantage)
{
	for (int64_t first = 0, end; first < s->episodes; first = end) {
		for (end = first + 1; end < s->episodes && group[end] == group[first];)
			end++;
		for (int64_t e = first; e < end; e++)
			for (int64_t i = s->starts[e]; i < s->starts[e + 1]; i++)
				advantage[i] = (float)among(kind, reward + first, end - first, e - first);
	}
}

/* Of x - y, or of x where y is NULL; times n. */
static double variance(const float *x, const float *y, int64_t n)
{
	double mean = 0, sum = 0;
	for (int64_t i = 0; i < n; i++)
		mean += ((double)x[i] - (y ? (double)y[i] : 0)) / (double)n;
	for (int64_t i = 0; i < n; i++) {
		double d = (double)x[i] - (y ? (double)y[i] : 0) - mean;
		sum += d * d;
	}
	return sum;
}

static int are_equal(const float *x, int64_t n)
{
	int64_t same = 0;
	while (same < n && x[same] == x[0])
		same++;
	return same == n;
}

struct ww_rl_spread ww_rl_spread_of(const int64_t *group, const float *reward, int64_t n)
{
	struct ww_rl_spread s = { 0, 0, NAN };
	double within = 0;
	for (int64_t first = 0, end; first < n; first = end) {
		for (end = first + 1; end < n && group[end] == group[first];)
			end++;
		if (end - first < 2)
			continue;
		within += variance(reward + first, NULL, end - first) / (double)(end - first - 1);
		s.groups++;
		s.mixed += !are_equal(reward + first, end - first);
	}
	if (s.groups && !are_equal(reward, n))
		s.within = within / (double)s.groups / (variance(reward, NULL, n) / (double)(n - 1));
	return s;
}

/* ---- losses */

void ww_rl_weights(const struct ww_rl_set *s, enum ww_rl_mean mean, float *weight)
{
	int64_t with = 0, all = s->starts[s->episodes] - s->starts[0];
	for (int64_t e = 0; e < s->episodes; e++)
		with += s->starts[e + 1] > s->starts[e];
	for (int64_t e = 0; e < s->episodes; e++)
		for (int64_t i = s->starts[e]; i < s->starts[e + 1]; i++)
			weight[i] = (float)(mean == WW_RL_MEAN_TOKEN
					? 1 / (double)all
					: 1 / ((double)with * (double)(s->starts[e + 1] - s->starts[e])));
}

/* J of one token, and its derivative by logp. */
static double surrogate(const struct ww_rl_clip *o, double rho, double a, double *slope)
{
	double clipped = fmin(fmax(rho, 1 - o->low), 1 + o->high), j = fmin(rho * a, clipped * a);
	*slope = rho * a <= clipped * a ? rho * a : 0;
	if (o->dual <= 0 || a >= 0 || j >= o->dual * a)
		return j;
	*slope = 0;
	return o->dual * a;
}

static void note(struct ww_rl_ratios *r, double log_rho, double rho, int clipped)
{
	r->ratio_min = r->n ? fmin(r->ratio_min, rho) : rho;
	r->ratio_max = r->n ? fmax(r->ratio_max, rho) : rho;
	r->log_max = fmax(r->log_max, fabs(log_rho));
	r->log_sum += fabs(log_rho);
	r->clipped += clipped;
	r->n++;
}

/* r - 1 - log r, and its derivative by logp. */
static double from_reference(double logp, double ref, double *slope)
{
	double r = exp(ref - logp);
	*slope = 1 - r;
	return r - 1 - (ref - logp);
}

double ww_rl_policy_loss(const struct ww_rl_clip *o, const struct ww_rl_tokens *k, const float *logp, float *dlogp,
	struct ww_rl_ratios *ratios)
{
	double loss = 0;
	for (int64_t i = 0; i < k->n; i++) {
		double log_rho = (double)logp[i] - (double)k->logp_old[i], a = (double)k->advantage[i], slope;
		double w = (double)k->weight[i], j = surrogate(o, exp(log_rho), a, &slope);
		if (o->truncate > 0 && k->logp_sampled)
			w *= fmin(exp((double)k->logp_old[i] - (double)k->logp_sampled[i]), o->truncate);
		loss -= w * j;
		double away = 0, back = 0;
		if (o->kl > 0)
			away = from_reference((double)logp[i], (double)k->logp_ref[i], &back);
		loss += o->kl * (double)k->weight[i] * away;
		dlogp[i] = (float)(o->kl * (double)k->weight[i] * back - w * slope);
		if (ratios) {
			note(ratios, log_rho, exp(log_rho), a != 0 && slope == 0);
			ratios->kl_sum += away;
		}
	}
	return loss;
}

double ww_rl_value_loss(const float *weight, const float *target, const float *value, int64_t n, float *dvalue)
{
	double loss = 0;
	for (int64_t i = 0; i < n; i++) {
		double d = (double)value[i] - (double)target[i], w = (double)weight[i];
		loss += w * d * d / 2;
		dvalue[i] = (float)(w * d);
	}
	return loss;
}

double ww_rl_explained(const float *x, const float *y, int64_t n)
{
	return are_equal(x, n) ? NAN : 1 - variance(x, y, n) / variance(x, NULL, n);
}
