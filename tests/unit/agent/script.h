/* script.h - a scripted policy, a scripted judge and the options of a run, for tests of the loop. */
#ifndef WW_TESTS_AGENT_SCRIPT_H
#define WW_TESTS_AGENT_SCRIPT_H

#include "unit.h"

#include "agent/agent.h"
#include "base/fs.h"
#include "base/json.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

/* ---- Where runs are written: in memory where the system has such a directory, for thousands of synced writes ----- */

static char dir[64];
static json_t *graph;

static inline int script_setup(void **state)
{
	(void)state;
	strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/ww-script-XXXXXX" : "/tmp/ww-script-XXXXXX");
	graph = json_pack("{s:[]}", "nodes");
	return mkdtemp(dir) ? 0 : -1;
}

static inline int script_teardown(void **state)
{
	struct ww_err err;
	(void)state;
	json_decref(graph);
	return ww_fs_remove_tree(dir, &err);
}

/* ---- A policy that says a list of messages ----------------------------------------------------------------------- */

struct line {
	const char *text, *tool[3], *args[3];
};
struct scripted {
	struct ww_policy base;
	const struct line *lines;
	int n;
	enum ww_finish last;
	double usd, most_usd; /* what a reply costs, and could have cost */
	int64_t usage;        /* tokens that a reply reports, beside those of the prompt */
	int64_t largest;      /* prompt so far, in tokens */
};

static int64_t scripted_count(struct ww_policy *self, const struct ww_message *msgs, size_t n)
{
	int64_t sum = 0;
	(void)self;
	for (size_t i = 0; i < n; i++)
		sum += (int64_t)strlen(msgs[i].text) / 3 + 1;
	return sum;
}

static inline int scripted_next(
	struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	struct scripted *s = (struct scripted *)self;
	const struct ww_message *msgs = ask->msgs;
	size_t n = ask->n, n_tools = ask->n_tools;
	int said = 0;
	(void)err;
	assert_true(n_tools >= 15 || !n_tools || ask->tools_are_told);
	assert_int_equal(msgs[0].role, WW_ROLE_SYSTEM);
	assert_true(strstr(msgs[1].text, "class Model") || ask->tools_are_told);
	if (s->most_usd > 0 && ask->meter && ask->meter->begin(ask->meter->ctx, s->most_usd, 0, err) != WW_OK)
		return err->rc;
	for (size_t i = 0; i < n; i++)
		said += msgs[i].role == WW_ROLE_ASSISTANT;
	out->usd = s->usd;
	if (s->usage) {
		int64_t prompt = scripted_count(self, msgs, n);
		s->largest = prompt > s->largest ? prompt : s->largest;
		out->prompt_tokens = prompt;
		out->completion_tokens = s->usage;
	}
	const struct line *l = said < s->n ? &s->lines[said] : NULL;
	out->message.text = strdup(l ? l->text : "done");
	out->finish = l && l->tool[0] ? WW_FINISH_TOOL_CALLS : s->last;
	out->message.calls = calloc(3, sizeof(*out->message.calls));
	for (int i = 0; l && i < 3 && l->tool[i]; i++)
		out->message.calls[out->message.n_calls++] = (struct ww_tool_call){ strdup("x"), strdup(l->tool[i]),
			strdup(l->args[i]) };
	return WW_OK;
}

static const struct ww_policy_ops scripted_ops __attribute__((unused)) = { .name = "scripted", .next = scripted_next };
static const struct ww_policy_ops counting_ops
	__attribute__((unused)) = { .name = "scripted", .next = scripted_next, .count_tokens = scripted_count };

/* ---- A judge that reads its verdict in the kernel: "us=120" is correct and takes 120 us; eager 200, compile 150 ----
 */

struct script_judge {
	int calls, fail_at, pause_us;
	int disturbed; /* so many closing judgements, which then prove nothing */
	double gpu_s;
};

static inline enum ww_rc judge_run(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	struct script_judge *j = ctx;
	const char *code = s->form == WW_FORM_PLAN ? s->device_source : s->files[0].text, *us = strstr(code, "us=");
	if (__atomic_add_fetch(&j->calls, 1, __ATOMIC_RELAXED) == j->fail_at)
		return ww_err_set(err, WW_ERR_WORKER, "the reference worker died");
	v->status = us ? WW_STATUS_OK : strstr(code, "wrong") ? WW_STATUS_MISMATCH : WW_STATUS_COMPILE_FAILED;
	v->correct = us && depth != WW_JUDGE_COMPILE;
	if (v->correct && depth >= WW_JUDGE_FULL) {
		double t = atof(us + 3), base[2] = { 200, 150 };
		v->time = (struct ww_times){ t, t + 1 };
		v->time_device = (struct ww_ratio){ t, t, t };
		for (int b = 0; b < 2; b++) {
			v->baseline_measured[b] = 1;
			v->baselines[b] = (struct ww_times){ base[b], base[b] };
			v->speedup[b] = (struct ww_ratio){ base[b] / t, base[b] / t, base[b] / t };
		}
	}
	if (v->correct && depth == WW_JUDGE_CALL && j->disturbed > 0) {
		j->disturbed--;
		v->disturbed = 1;
		v->speedup[0].lo = v->speedup[1].lo = 0.5;
	}
	v->reward = ww_verdict_reward(v);
	v->seconds.time = depth >= WW_JUDGE_FULL ? j->gpu_s : 0;
	if (j->pause_us)
		usleep((useconds_t)j->pause_us);
	v->diagnostics = strdup(us ? "" : "line 1: error");
	return WW_OK;
}

/* A profile that names what was asked for. */
static inline enum ww_rc judge_profile(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	(void)ctx, (void)err;
	*out = s ? json_pack("{s:s, s:s, s:s}", "what", "solution", "status", "crashed", "diagnostics", s->device_source)
			 : json_pack(
				   "{s:s, s:s, s:{s:f}, s:[]}", "what", "reference", "status", "ok", "totals", "us", 12.5, "operators");
	return WW_OK;
}

/* ---- The options of a run ---------------------------------------------------------------------------------------- */

struct fixture {
	struct scripted policy;
	struct script_judge judge;
	struct ww_device device;
	struct ww_episode_header header;
	struct ww_agent_opts opts;
	struct ww_agent_result result;
	struct ww_err err;
};

static inline void prepare(struct fixture *f, const char *where, const struct line *lines, int n)
{
	memset(f, 0, sizeof(*f));
	f->policy = (struct scripted){ .base = { &scripted_ops }, .lines = lines, .n = n, .last = WW_FINISH_STOP };
	f->device.target = WW_TARGET_CPU;
	f->header = (struct ww_episode_header){ .task_path = (char *)"t.py",
		.task_id = "task1",
		.target = (char *)"cpu",
		.device = (char *)"test",
		.policy = (char *)"scripted",
		.rule = (char *)"strict",
		.started = "now",
		.versions = json_object() };
	f->opts = (struct ww_agent_opts){ .policy = &f->policy.base,
		.judge = { &f->judge, judge_run, judge_profile, 0, graph, &f->device, "test" },
		.dir = where,
		.task_source = "class Model: pass",
		.target = WW_TARGET_CPU,
		.max_turns = 50,
		.max_seconds = 1000,
		.closing_seconds = 1000,
		.header = &f->header };
}

static inline void finish(struct fixture *f)
{
	ww_agent_result_release(&f->result);
	json_decref(f->header.versions);
}

/* The episode without its clock. */
static inline void normal_form(const char *where, struct ww_str *out)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(16 << 20);
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, where, "episode.jsonl", &err), WW_OK);
	assert_int_equal(ww_fs_read(path, 16 << 20, &text, &err), WW_OK);
	for (char *p = text.p, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
		json_t *o = json_loadb(p, (size_t)(nl - p), 0, NULL);
		assert_non_null(o);
		char again[64];
		snprintf(again, sizeof(again), "\"call_id\":\"%s\"", ww_json_str(o, "call_id", ""));
		if (strstr(again, "\"final") && strstr(nl, again)) { /* a closing judgement that was made again */
			json_decref(o);
			continue;
		}
		json_object_del(o, "t");
		json_object_del(o, "seconds");
		ww_json_add(out, o);
		ww_str_addc(out, '\n');
		json_decref(o);
	}
	ww_str_release(&text);
}

#define KERNEL(us) { "try " us, { "write", "write", "verify" }, { "{\"path\":\"kernels.c\",\"text\":\"us=" us "\"}", \
	"{\"path\":\"plan.c\",\"text\":\"plan " us "\"}", "{\"time\": true}" } }

static const struct line story[] __attribute__((unused)) = { { "look", { "inspect" }, { "{}" } }, KERNEL("180"),
	{ "break it", { "write", "compile", "verify" }, { "{\"path\":\"kernels.c\",\"text\":\"wrong\"}", "{}", "{}" } },
	KERNEL("120"),
	{ "edit", { "edit", "verify", "read" },
		{ "{\"path\":\"kernels.c\",\"old\":\"us=120\",\"new\":\"us=148 // slower\"}", "",
			"{\"path\":\"kernels.c\"}" } },
	{ "hand in", { "submit" }, { "{}" } } };

#endif
