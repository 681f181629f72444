/* bench_step.c - times training steps of a model: forward, loss, backward and AdamW on random tokens.
 *
 *   bench-step DIR [DEVICE [exact|fast [SEQUENCES LENGTH [STEPS [LAYERS [WARM [fp32|bf16]]]]]]]     default: cpu exact
 *   1 128 3, all, 4, bf16
 *
 * DIR is a model in Hugging Face's form; LAYERS layers (0: all) keep their activations, the others are computed again;
 * WARM steps come before the ones that count, since products choose their algorithms in the first three. The
 * floating-point operations counted are 6 N a token (N: all parameters) and those of causal attention, half of the
 * square; the fraction is of 989 TFLOP/s, the peak of an H100 and an H200 for dense bf16.
 */
#include "base/rng.h"
#include "base/time.h"
#include "nn/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(enum ww_rc rc, const struct ww_err *err)
{
	if (rc == WW_OK)
		return;
	fprintf(stderr, "bench-step: %s\n", err->msg);
	exit(rc == WW_ERR_MISSING ? 77 : 3);
}

static int64_t number(int argc, char **argv, int i, int64_t otherwise) { return argc > i ? atoll(argv[i]) : otherwise; }

static double flops_of(const struct ww_config *c, int64_t length)
{
	return 6 * (double)ww_config_params(c) + 6 * (double)(c->layers * c->heads * c->head_dim) * (double)length;
}

int main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_dev *dev;
	struct ww_model *m;
	struct ww_run *r;
	struct ww_optim *o;
	struct ww_rng rng;
	const char *device = argc > 2 ? argv[2] : "cpu", *mode = argc > 3 ? argv[3] : "exact";
	int64_t sequences = number(argc, argv, 4, 1), length = number(argc, argv, 5, 128), steps = number(argc, argv, 6, 3);
	int64_t keep = number(argc, argv, 7, 0), warm = number(argc, argv, 8, 4), t = sequences * length;
	int dtype = argc > 9 && !strcmp(argv[9], "fp32") ? WW_F32 : WW_BF16;
	if (argc < 2 || sequences < 1 || length < 2 || steps < 1 || keep < 0 || warm < 0) {
		fprintf(stderr,
			"usage: bench-step DIR [DEVICE [exact|fast [SEQUENCES LENGTH [STEPS [LAYERS [WARM [fp32|bf16]]]]]]]\n");
		return 2;
	}
	check(ww_dev_open(device, !strcmp(mode, "exact"), &dev, &err), &err);
	check(ww_model_open(argv[1], dev, dtype, &m, &err), &err);
	check(ww_run_new(m, t, sequences, keep ? keep : WW_RUN_KEEP_ALL, &r, &err), &err);
	check(ww_optim_new(m, &o, &err), &err);
	ww_run_bind(r, m, ww_optim_grads(o));
	int32_t *ids = malloc((size_t)(t + 1) * 4), *starts = malloc((size_t)(sequences + 1) * 4);
	float *dlogp = malloc((size_t)t * 4), *logp = malloc((size_t)t * 4), norm = 0;
	ww_rng_init(&rng, 1, 0);
	for (int64_t i = 0; i <= t; i++)
		ids[i] = (int32_t)ww_rng_below(&rng, (uint64_t)m->config.vocab_size);
	for (int64_t i = 0; i <= sequences; i++)
		starts[i] = (int32_t)(i * length);
	for (int64_t i = 0; i < t; i++)
		dlogp[i] = -1.0f / (float)t;
	struct ww_batch b = { .ids = ids, .starts = starts, .t = t, .sequences = sequences };
	double loss = 0, learn_s = 0, all_s = 0, forward_s = 0;
	for (int64_t i = 0; i < warm + steps; i++) {
		struct ww_adamw h = { 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, i + 1 };
		uint64_t begun = ww_now_ns();
		check(ww_run_learn(r, &b, ids + 1, dlogp, logp, &err), &err);
		learn_s += i < warm ? 0 : ww_seconds_since(begun);
		check(ww_optim_step(o, &h, 1.0f, &norm, &err), &err);
		all_s += i < warm ? 0 : ww_seconds_since(begun);
	}
	for (int64_t i = 0; i < steps; i++) {
		uint64_t begun = ww_now_ns();
		check(ww_run_forward(r, &b, &err), &err);
		forward_s += ww_seconds_since(begun);
	}
	for (int64_t i = 0; i < t; i++)
		loss -= (double)logp[i] / (double)t;
	double rate = (double)(t * steps) / all_s, n = (double)steps;
	printf(
		"%s %s, %lld x %lld tokens: %.0f tokens/s, %.1f ms a step (forward %.1f, learn %.1f, AdamW %.1f), %.1f%% of 989 TFLOP/s, "
		"%.2f GB, loss %.4f, norm %.3f\n",
		device, mode, (long long)sequences, (long long)length, rate, all_s / n * 1e3, forward_s / n * 1e3,
		learn_s / n * 1e3, (all_s - learn_s) / n * 1e3, rate * flops_of(&m->config, length) / 989e12 * 100,
		(double)dev->peak_bytes / 1e9, loss, (double)norm);
	ww_optim_free(o);
	ww_run_free(r);
	ww_model_free(m);
	ww_dev_close(dev);
	free(ids);
	free(starts);
	free(dlogp);
	free(logp);
	return 0;
}
