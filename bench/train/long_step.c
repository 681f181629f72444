/* long_step.c - one agentic step at any lengths, with prepared answers of the tools: does it fit, and what does it
 * cost?
 *
 *     bench-long-step CONFIG.json [EPISODES [CONTEXT [TURNS [OWN [DEVICE [GB]]]]]]   2 131072 150 400 cuda, what is
 * free
 *
 * New weights of the config, policy and critic, the memory planned as `train` does.  Each episode begins with 1,200
 * tokens (at most a quarter of the context); in each turn the policy samples OWN tokens at temperature 1, and then come
 * as many tokens of a tool as fill the context in the last turn, drawn from a seed.  Then one step of PPO over all of
 * it, with the published values: actor and critic, one epoch, every ratio has to be 1.  Printed as one JSON object:
 * seconds, tokens a second, the memory that was predicted and that was taken.  Exit code 3 where a recipe of these
 * lengths cannot fit; the message says by how much.
 */
#include "base/json.h"
#include "base/rng.h"
#include "base/time.h"
#include "infer/infer.h"
#include "train/recipe.h"
#include "train/rl_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 1200, SEED = 1 };

struct bench {
	const char *config_path, *device;
	int64_t episodes, context, turns, own;
	double gigabytes;
	struct ww_dev *dev;
	struct ww_config config;
	struct ww_memory memory;
	struct ww_infer_limits limits;
	struct ww_model *policy_m, *critic_m;
	struct ww_learner *policy, *critic;
	struct ww_infer *infer;
	struct ww_trajectory *t;
	int64_t *at; /* of each episode: tokens so far */
	double sampling_s, learning_s;
};

static int64_t number(int argc, char **argv, int i, int64_t otherwise)
{
	return argc > i ? (int64_t)strtoll(argv[i], NULL, 10) : otherwise;
}

static enum ww_rc plan(struct bench *b, struct ww_err *err)
{
	struct ww_model shape = { .config = b->config, .dtype = (int)b->config.dtype };
	struct ww_memory_ask ask = { .config = &b->config,
		.dtype = (int)b->config.dtype,
		.max_tokens = b->context,
		.longest = b->context,
		.budget = (uint64_t)(b->gigabytes * 1e9),
		.critic = 1 };
	int64_t whole = b->episodes * b->context;
	b->limits = (struct ww_infer_limits){ whole, b->episodes, whole < 8192 ? whole : 8192 };
	ask.cache = ww_infer_bytes(&shape, &b->limits);
	return ww_memory_plan(&ask, b->dev, &b->memory, err);
}

static enum ww_rc open_all(struct bench *b, struct ww_err *err)
{
	struct ww_learner_opts o = {
		.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1, .max_tokens = b->context, .keep = b->memory.keep
	};
	struct ww_config critic = b->config;
	int dtype = (int)b->config.dtype;
	critic.critic = 1;
	WW_CHECK(ww_model_new(&b->config, b->dev, dtype, SEED, &b->policy_m, err));
	WW_CHECK(ww_model_new(&critic, b->dev, dtype, SEED + 1, &b->critic_m, err));
	WW_CHECK(ww_learner_new(b->policy_m, &o, &b->policy, err));
	o.host = b->policy;
	WW_CHECK(ww_learner_new(b->critic_m, &o, &b->critic, err));
	WW_CHECK(WW_NEW(b->t, b->episodes, err));
	WW_CHECK(WW_NEW(b->at, b->episodes, err));
	for (int64_t e = 0; e < b->episodes; e++)
		WW_CHECK(ww_trajectory_init(&b->t[e], b->context, err));
	return ww_infer_new(b->policy_m, &b->limits, &b->infer, err);
}

/* Tokens that are not the policy's, up to `end`. */
static void give(struct bench *b, int64_t e, int64_t end, struct ww_rng *rng)
{
	while (b->at[e] < end)
		b->t[e].ids[b->at[e]++] = (int32_t)ww_rng_below(rng, (uint64_t)b->config.vocab_size);
}

struct talk {
	struct bench *b;
	int64_t e;
};

static int take(void *arg, const struct ww_infer_event *x)
{
	struct talk *k = x->user;
	struct ww_trajectory *t = &k->b->t[k->e];
	int64_t at = k->b->at[k->e]++;
	(void)arg;
	t->ids[at] = x->sampled.token;
	ww_trajectory_mark(t, at, &x->sampled.logp, 1);
	return 0;
}

static enum ww_rc one_turn(struct bench *b, struct talk *talk, int64_t turn, struct ww_err *err)
{
	int64_t id, left = 1;
	for (int64_t e = 0; e < b->episodes; e++) {
		struct ww_request q = { .prompt = b->t[e].ids,
			.prompt_n = b->at[e],
			.max_new = b->own,
			.sampling = WW_SAMPLING_INIT,
			.seed = SEED,
			.stream = (uint64_t)(turn * b->episodes + e),
			.user = &talk[e] };
		WW_CHECK(ww_infer_submit(b->infer, &q, &id, err));
	}
	while (left)
		WW_CHECK(ww_infer_step(b->infer, take, NULL, &left, err));
	return WW_OK;
}

static enum ww_rc sample(struct bench *b, struct ww_err *err)
{
	int64_t prompt = b->context / 4 < PROMPT ? b->context / 4 : PROMPT,
			answer = (b->context - prompt - b->turns * b->own) / b->turns;
	uint64_t start = ww_now_ns();
	struct ww_rng rng;
	ww_auto_free struct talk *talk = calloc((size_t)b->episodes, sizeof(*talk));
	if (!talk)
		return ww_nomem(err);
	if (answer < 0)
		return ww_err_set(err, WW_ERR_USAGE, "%lld turns of %lld own tokens are more than the context holds",
			(long long)b->turns, (long long)b->own);
	ww_rng_init(&rng, SEED, 0);
	for (int64_t e = 0; e < b->episodes; e++) {
		talk[e] = (struct talk){ b, e };
		b->t[e].reward = e % 2 ? -1 : 3;
		give(b, e, prompt, &rng);
	}
	for (int64_t turn = 0; turn < b->turns; turn++) {
		WW_CHECK(one_turn(b, talk, turn, err));
		for (int64_t e = 0; e < b->episodes; e++)
			give(b, e, turn + 1 == b->turns ? b->context : b->at[e] + answer, &rng);
		if (turn % 10 == 9)
			fprintf(stderr, "turn %lld of %lld, %.1f s\n", (long long)turn + 1, (long long)b->turns,
				ww_seconds_since(start));
	}
	b->sampling_s = ww_seconds_since(start);
	return WW_OK;
}

static enum ww_rc learn(struct bench *b, struct ww_rl_step_result *r, struct ww_err *err)
{
	struct ww_rl_step_opts o = { .advantage = WW_RL_BY_CRITIC,
		.policy_gae = { 1, 0.95, 0 },
		.critic_gae = { 1, 0.95, 0 },
		.clip = { 0.2, 0.28, 0, 0, 0 },
		.epochs = 1,
		.lr = 3e-6,
		.critic_lr = 6e-6,
		.fresh = 1 };
	uint64_t start = ww_now_ns();
	ww_infer_rest(b->infer);
	enum ww_rc rc = ww_rl_step(&o, b->policy, b->critic, b->t, NULL, b->episodes, r, err);
	b->learning_s = ww_seconds_since(start);
	return rc;
}

static void print(const struct bench *b, const struct ww_rl_step_result *r)
{
	struct ww_infer_stats s = ww_infer_stats(b->infer);
	double tokens = (double)(b->episodes * b->context);
	json_auto_t *v = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f}",
		"device", b->dev->bits.device, "parameters", (json_int_t)ww_config_params(&b->config), "episodes",
		(json_int_t)b->episodes, "context", (json_int_t)b->context, "turns", (json_int_t)b->turns, "own_tokens",
		(json_int_t)r->own_tokens, "prompt_tokens", (json_int_t)s.prompt_tokens, "reused_tokens",
		(json_int_t)s.reused_tokens, "layers_kept", (json_int_t)b->memory.keep, "sampling_seconds", b->sampling_s,
		"own_tokens_per_second", (double)r->own_tokens / b->sampling_s, "learning_seconds", b->learning_s,
		"learning_tokens_per_second", tokens / b->learning_s, "predicted_bytes", (json_int_t)b->memory.total,
		"taken_bytes", (json_int_t)b->dev->peak_bytes, "ratio_min", r->ratios.ratio_min, "ratio_max",
		r->ratios.ratio_max);
	ww_auto_str line = WW_STR_INIT(1 << 12);
	ww_json_add(&line, v);
	puts(line.p);
}

static enum ww_rc run(struct bench *b, struct ww_err *err)
{
	struct ww_rl_step_result r;
	WW_CHECK(ww_config_read(b->config_path, &b->config, err));
	if (b->context > b->config.max_position)
		return ww_err_set(err, WW_ERR_USAGE, "the model has %lld positions", (long long)b->config.max_position);
	WW_CHECK(ww_dev_open(b->device, 1, &b->dev, err));
	WW_CHECK(plan(b, err));
	fprintf(stderr, "%.1f GB predicted, %lld of %lld layers keep their activations\n", (double)b->memory.total / 1e9,
		(long long)b->memory.keep, (long long)b->memory.layers);
	WW_CHECK(open_all(b, err));
	WW_CHECK(sample(b, err));
	WW_CHECK(learn(b, &r, err));
	print(b, &r);
	return WW_OK;
}

int main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct bench b = { .config_path = argc > 1 ? argv[1] : NULL,
		.episodes = number(argc, argv, 2, 2),
		.context = number(argc, argv, 3, 131072),
		.turns = number(argc, argv, 4, 150),
		.own = number(argc, argv, 5, 400),
		.device = argc > 6 ? argv[6] : "cuda",
		.gigabytes = argc > 7 ? atof(argv[7]) : 0 };
	if (argc < 2 || b.episodes < 1 || b.turns < 1 || b.own < 1 || b.context < 8) {
		fputs("usage: bench-long-step CONFIG.json [EPISODES [CONTEXT [TURNS [OWN [DEVICE [GB]]]]]]\n", stderr);
		return 2;
	}
	enum ww_rc rc = run(&b, &err);
	if (rc != WW_OK)
		fprintf(stderr, "bench-long-step: %s\n", err.msg);
	for (int64_t e = 0; b.t && e < b.episodes; e++)
		ww_trajectory_release(&b.t[e]);
	free(b.t);
	free(b.at);
	ww_infer_free(b.infer);
	ww_learner_free(b.critic);
	ww_learner_free(b.policy);
	ww_model_free(b.critic_m);
	ww_model_free(b.policy_m);
	ww_dev_close(b.dev);
	return rc == WW_OK ? 0 : rc == WW_ERR_ROOM ? 3 : 1;
}
