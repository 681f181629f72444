/* Advantages and losses of policy training against PyTorch over whole contexts with masks, values and gradients; and
 * that equal calls give equal bits.
 *
 * budget: 1 CPU-seconds */
#include "../nn/oracle.h"

#include "nn/safetensors.h"
#include "train/rl.h"
#include "train/trajectory.h"

#include <math.h>

enum { EPISODES = 9, T = 60, MOST = EPISODES * T };
#define LIMIT 1e-4

static struct {
	struct ww_st *st;
	struct ww_trajectory t[EPISODES];
	int64_t starts[EPISODES + 1], group[EPISODES];
	struct ww_rl_set set;
	int32_t rows[MOST], targets[MOST];
	float old[MOST];
} f;
static double worst;

static const void *data(const char *name)
{
	const struct ww_st_tensor *t = ww_st_find(f.st, name);
	if (!t)
		fail_msg("the oracle wrote no %s", name);
	return t->data;
}

/* The numbers of own tokens out of whole contexts. */
static void own_of(const float *whole, float *own)
{
	for (int64_t e = 0, k = 0; e < EPISODES; e++)
		for (int64_t i = 0; i < T; i++)
			if (f.t[e].n > i && f.t[e].own[i])
				own[k++] = whole[e * T + i];
}

static void hold(const char *what, double is, double wanted)
{
	double d = fabs(is - wanted);
	worst = fmax(worst, d);
	if (!(d <= LIMIT * fmax(1, fabs(wanted))))
		fail_msg("%s: %g, PyTorch says %g", what, is, wanted);
}

/* All own tokens of a tensor over whole contexts. */
static void hold_all(const char *name, const float *is)
{
	float wanted[MOST];
	own_of(data(name), wanted);
	for (int64_t i = 0; i < f.starts[EPISODES]; i++)
		hold(name, (double)is[i], (double)wanted[i]);
}

static const float *own_data(const char *name, float *own)
{
	own_of(data(name), own);
	return own;
}

static void make_trajectories(void)
{
	struct ww_err err = WW_ERR_INIT;
	const int32_t *ids = data("ids"), *own = data("own"), *lengths = data("lengths"), *group = data("group");
	const float *old = data("old");
	for (int64_t e = 0; e < EPISODES; e++) {
		assert_int_equal(ww_trajectory_init(&f.t[e], lengths[e], &err), WW_OK);
		memcpy(f.t[e].ids, ids + e * T, (size_t)lengths[e] * sizeof(*ids));
		for (int64_t i = 0; i < lengths[e]; i++)
			if (own[e * T + i])
				ww_trajectory_mark(&f.t[e], i, old + e * T + i, 1);
		f.group[e] = group[e];
		int64_t k = f.starts[e];
		ww_trajectory_rows(&f.t[e], e * T, f.rows + k, f.targets + k, f.old + k);
		f.starts[e + 1] = k + f.t[e].own_n;
	}
	f.set = (struct ww_rl_set){ f.starts, EPISODES };
}

static void rows_are_those_that_predict(void **state)
{
	const int32_t *ids = data("ids"), *own = data("own");
	(void)state;
	assert_int_equal(f.starts[EPISODES], 189);
	for (int64_t i = 0; i < f.starts[EPISODES]; i++) {
		assert_true(own[f.rows[i] + 1] && ids[f.rows[i] + 1] == f.targets[i]);
		assert_true(!i || f.rows[i] > f.rows[i - 1]);
	}
	assert_int_equal(f.t[5].own_n, 0);
}

static void advantages(void **state)
{
	float value[MOST], a[MOST], b[MOST], target[MOST];
	const float *reward = data("reward");
	char name[32];
	(void)state;
	own_data("value", value);
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "gae.%d.opts", i);
		const float *o = data(name);
		struct ww_rl_gae gae = { (double)o[0], (double)o[1], (double)o[2] };
		ww_rl_gae(&f.set, &gae, reward, value, a, target);
		ww_rl_gae(&f.set, &gae, reward, value, b, NULL);
		assert_memory_equal(a, b, (size_t)f.starts[EPISODES] * sizeof(*a));
		snprintf(name, sizeof(name), "gae.%d.advantage", i);
		hold_all(name, a);
		snprintf(name, sizeof(name), "gae.%d.target", i);
		hold_all(name, target);
	}
	for (int kind = 0; kind < 2; kind++) {
		ww_rl_group_advantages(&f.set, kind ? WW_RL_RLOO : WW_RL_GRPO, f.group, reward, a);
		snprintf(name, sizeof(name), "group.%d", kind);
		hold_all(name, a);
	}
}

/* The whole step at once and in two parts: the weights are the step's. */
static void policy_losses(void **state)
{
	float advantage[MOST], logp[MOST], sampled[MOST], ref[MOST], weight[MOST], d[MOST], again[MOST];
	int64_t n = f.starts[EPISODES], half = f.starts[3];
	char name[32];
	(void)state;
	own_data("advantage", advantage);
	own_data("logp", logp);
	own_data("sampled", sampled);
	own_data("reference", ref);
	for (int i = 0; i < 32; i++) {
		struct ww_rl_ratios ratios = { 0 };
		snprintf(name, sizeof(name), "policy.%d.opts", i);
		const float *o = data(name);
		struct ww_rl_clip clip = { (double)o[1], (double)o[2], (double)o[3], (double)o[4], (double)o[5] };
		ww_rl_weights(&f.set, o[0] > 0 ? WW_RL_MEAN_TOKEN : WW_RL_MEAN_EPISODE, weight);
		struct ww_rl_tokens k = { weight, advantage, f.old, sampled, ref, n };
		double loss = ww_rl_policy_loss(&clip, &k, logp, d, &ratios);
		struct ww_rl_tokens a = { weight, advantage, f.old, sampled, ref, half };
		struct ww_rl_tokens b = { weight + half, advantage + half, f.old + half, sampled + half, ref + half, n - half };
		double parts = ww_rl_policy_loss(&clip, &a, logp, again, NULL);
		parts += ww_rl_policy_loss(&clip, &b, logp + half, again + half, NULL);
		assert_memory_equal(d, again, (size_t)n * sizeof(*d));
		snprintf(name, sizeof(name), "policy.%d.loss", i);
		hold(name, loss, (double)*(const float *)data(name));
		hold(name, parts, loss);
		snprintf(name, sizeof(name), "policy.%d.grad", i);
		hold_all(name, d);
		assert_true(ratios.n == n && ratios.clipped > 10 && ratios.clipped < n && ratios.ratio_max > 1.28);
		assert_true(o[5] > 0 ? ratios.kl_sum > 1 : ratios.kl_sum == 0);
	}
}

static void value_losses(void **state)
{
	float target[MOST], value[MOST], weight[MOST], d[MOST], reward[MOST];
	const float *each = data("reward");
	char name[32];
	(void)state;
	own_data("target", target);
	own_data("value", value);
	for (int64_t e = 0; e < EPISODES; e++)
		for (int64_t i = f.starts[e]; i < f.starts[e + 1]; i++)
			reward[i] = each[e];
	hold("explained", ww_rl_explained(reward, value, f.starts[EPISODES]), (double)*(const float *)data("explained"));
	assert_true(isnan(ww_rl_explained(each, value, 1)));
	for (int64_t i = 0; i < f.starts[EPISODES]; i++)
		value[i] *= 0.5f;
	for (int mean = 0; mean < 2; mean++) {
		ww_rl_weights(&f.set, mean ? WW_RL_MEAN_TOKEN : WW_RL_MEAN_EPISODE, weight);
		double loss = ww_rl_value_loss(weight, target, value, f.starts[EPISODES], d);
		snprintf(name, sizeof(name), "value.%d.loss", mean);
		hold(name, loss, (double)*(const float *)data(name));
		snprintf(name, sizeof(name), "value.%d.grad", mean);
		hold_all(name, d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(rows_are_those_that_predict), cmocka_unit_test(advantages),
		cmocka_unit_test(policy_losses), cmocka_unit_test(value_losses) };
	struct ww_err err = WW_ERR_INIT;
	char dir[PATH_MAX];
	if (!oracle_kept("rl_oracle.py", "", dir))
		return 0;
	assert_int_equal(ww_st_open(dir, &f.st, &err), WW_OK);
	make_trajectories();
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	printf("# largest difference %.1e\n", worst);
	for (int e = 0; e < EPISODES; e++)
		ww_trajectory_release(&f.t[e]);
	ww_st_free(f.st);
	oracle_clean(dir);
	return rc;
}
