#include "cmd/summary.h"

#include "base/json.h"
#include "judge/profile/explain.h"

#include <math.h>
#include <string.h>

int ww_summary_won(const struct ww_summary *s)
{
	const struct ww_verdict *v = &s->result->best;
	int won = s->result->has_best && v->correct && !v->degenerate;
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (s->baselines >> b & 1)
			won &= ww_verdict_beats(v, (enum ww_baseline)b);
	return won;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void add_number(struct ww_str *out, double us)
{
	if (isnan(us))
		ww_str_addf(out, " %12s", "-");
	else
		ww_str_addf(out, " %12.1f", us);
}

static void add_row(struct ww_str *out, const char *name, const struct ww_times *t, const struct ww_ratio *device,
	const struct ww_ratio *speedup)
{
	ww_auto_str interval = WW_STR_INIT(64), ratio = WW_STR_INIT(64);
	if (device && !isnan(device->lo))
		ww_str_addf(&interval, "[%.1f, %.1f]", device->lo, device->hi);
	if (speedup && !isnan(speedup->mid))
		ww_str_addf(&ratio, "%.2fx [%.2f, %.2f]", speedup->mid, speedup->lo, speedup->hi);
	ww_str_addf(out, "  %-9s", name);
	add_number(out, t->device_us);
	ww_str_addf(out, "  %-20s", interval.p);
	add_number(out, t->call_us);
	ww_str_addf(out, "  %s\n", ratio.p);
}

static void add_table(const struct ww_verdict *v, struct ww_str *out)
{
	ww_str_addf(
		out, "\n  %-9s %12s  %-20s %12s  %s\n", "", "device us", "95% interval", "call us", "ours is faster by");
	for (int b = 0; b < WW_BASE_COUNT; b++)
		if (v->baseline_measured[b])
			add_row(out, ww_baseline_name((enum ww_baseline)b), &v->baselines[b], NULL, &v->speedup[b]);
	add_row(out, "ours", &v->time, &v->time_device, NULL);
}

static const char *beats(const struct ww_verdict *v, enum ww_baseline b)
{
	return !v->baseline_measured[b] ? "not measured" : ww_verdict_beats(v, b) ? "yes" : "no";
}

/* The reward, and why no more could be earned where a baseline was left out. */
static void add_reward(const struct ww_summary *s, const struct ww_verdict *v, struct ww_str *out)
{
	const int eager = s->baselines >> WW_BASE_EAGER & 1, compile = s->baselines >> WW_BASE_COMPILE & 1;
	ww_str_addf(out, "  more than 5%% faster than eager: %s, than compile: %s; reward %g", beats(v, WW_BASE_EAGER),
		beats(v, WW_BASE_COMPILE), v->reward);
	if (!eager || !compile)
		ww_str_addf(out, " of at most %d without %s as a baseline", eager ? 2 : 1, eager ? "compile" : "eager");
	ww_str_addc(out, '\n');
}

static void add_verdict(const struct ww_summary *s, const struct ww_verdict *v, struct ww_str *out)
{
	ww_str_addf(out, "\n  correct by rule %s: ", ww_rule_name(v->rule));
	ww_verdict_add_errors(v, out);
	ww_str_addc(out, '\n');
	add_reward(s, v, out);
	ww_verdict_add_flags(v, "  ", out);
}

static void add_files(const struct ww_summary *s, struct ww_str *out)
{
	if (s->result->has_best)
		ww_str_addf(out, "\n  %s/solution       the best solution\n", s->dir);
	else
		ww_str_adds(out, "\n");
	if (s->has_verdict)
		ww_str_addf(out, "  %s/verdict.json   what the judge measured\n", s->dir);
	if (s->has_report)
		ww_str_addf(out, "  %s/report.html    the run as a page for a browser\n", s->dir);
	if (s->parallel)
		ww_str_addf(out, "  %s/episodes       the whole run, episode by episode\n", s->dir);
	else
		ww_str_addf(out, "  %s/episode.jsonl  the whole run\n", s->dir);
	for (int i = 0; i < s->n_exports; i++)
		if (*s->exports[i].path)
			ww_str_addf(out, "  %s   checked in a fresh process\n", s->exports[i].path);
		else
			ww_str_addf(out, "  export %s was not made: %s\n", s->exports[i].format, s->exports[i].why);
}

static void add_parallel(const struct ww_summary *s, struct ww_str *out)
{
	ww_str_adds(out, "\n");
	for (int i = 0; i < s->n_parallel; i++) {
		const struct ww_agent_result *r = &s->parallel[i];
		ww_str_addf(out, "  episode %-3d %3d turns  ", i + 1, r->turns);
		if (r->ended)
			ww_str_addf(out, "%s, reward %g (best %g)", r->end.reason, r->end.reward_final, r->end.reward_best);
		else
			ww_str_adds(out, "not ended");
		if (r->has_best && !isnan(r->best.time.device_us))
			ww_str_addf(out, ", %.1f us", r->best.time.device_us);
		ww_str_adds(out, r == s->result ? "  (chosen)\n" : "\n");
	}
}

static void add_used(const struct ww_summary *s, struct ww_str *out)
{
	ww_auto_str used = WW_STR_INIT(256);
	if (s->budget)
		ww_budget_text(s->budget, &used);
	if (used.len)
		ww_str_addf(out, "\n  used: %s\n", used.p);
}

static json_t *parallel_json(const struct ww_summary *s)
{
	json_t *list = json_array();
	for (int i = 0; i < s->n_parallel; i++) {
		const struct ww_agent_result *r = &s->parallel[i];
		json_t *o = json_pack("{s:i, s:i, s:b}", "episode", i + 1, "turns", r->turns, "chosen", r == s->result);
		json_object_set_new(o, "reason", r->ended ? json_string(r->end.reason) : json_null());
		json_object_set_new(o, "reward_final", r->ended ? ww_json_real(r->end.reward_final) : json_null());
		json_object_set_new(o, "reward_best", r->ended ? ww_json_real(r->end.reward_best) : json_null());
		json_array_append_new(list, o);
	}
	return list;
}

/* Why an episode without a correct solution ended, and what to change. */
static const char *why_ended(const struct ww_agent_result *r)
{
	static const char *const words[][2] = { { "submitted", "the policy submitted one that is not correct" },
		{ "stopped", "the policy stopped calling tools" }, { "turns", "its turns are used up (--max-turns)" },
		{ "seconds", "its time is used up (--max-seconds)" }, { "usd", "its money is used up (--max-usd)" },
		{ "tokens", "its tokens are used up (--max-tokens)" },
		{ "gpu_seconds", "its time on the device is used up (--max-gpu-seconds)" },
		{ "context",
			"the conversation does not fit the policy's context; --context-tokens allows more where the model does" },
		{ "malformed", "the policy's tool calls were not valid, several times in a row" },
		{ "length",
			"a reply ended at --max-reply-tokens or at the end of the model's context before it called a tool" },
		{ "refusal", "the policy refused" } };
	for (size_t i = 0; r->ended && i < WW_ARRAY_LEN(words); i++)
		if (!strcmp(r->end.reason, words[i][0]))
			return words[i][1];
	return NULL;
}

void ww_summary_text(const struct ww_summary *s, struct ww_str *out)
{
	const struct ww_agent_result *r = s->result;
	ww_str_addf(out, "\n%s on %s (%s), rule %s, policy %s: %d turns, %.1f s%s\n", s->task, s->target, s->device,
		s->rule, s->policy, r->turns, r->seconds, s->interrupted ? ", interrupted" : "");
	if (r->has_best) {
		add_table(&r->best, out);
		add_verdict(s, &r->best, out);
		ww_explain_slower(s->explained, out);
		if (s->explain && s->explained)
			ww_explain_text(s->explained, out);
	} else {
		const char *why = why_ended(r), *refusal = s->last_refusal ? s->last_refusal : "";
		ww_str_addf(out, "\n  no correct solution was found%s%s%s\n", s->interrupted ? " before the interruption" : "",
			why ? ": " : "", why ? why : "");
		if (s->last_text && *s->last_text) {
			ww_str_addf(out, "  the policy's last words: ");
			ww_str_add_bounded(out, s->last_text, strlen(s->last_text), 1000);
			ww_str_addc(out, '\n');
		}
		if (*refusal)
			ww_str_addf(out, "  the judge's last words: %s\n", refusal);
	}
	if (s->parallel)
		add_parallel(s, out);
	add_used(s, out);
	add_files(s, out);
	if (s->interrupted)
		ww_str_addf(out, "\n  go on with the same command and -o %s\n", s->dir);
}

/* ---- The object -------------------------------------------------------------------------------------------------- */

json_t *ww_summary_json(const struct ww_summary *s)
{
	const struct ww_agent_result *r = s->result;
	json_t *exports = json_object();
	for (int i = 0; i < s->n_exports; i++)
		json_object_set_new(exports, s->exports[i].format,
			*s->exports[i].path ? json_pack("{s:s}", "path", s->exports[i].path)
								: json_pack("{s:s}", "error", s->exports[i].why));
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:b, s:b}", "task", s->task, "target", s->target,
		"device", s->device, "rule", s->rule, "policy", s->policy, "dir", s->dir, "turns", r->turns, "seconds",
		r->seconds, "interrupted", s->interrupted, "won", ww_summary_won(s));
	json_object_set_new(o, "reason", r->ended ? json_string(r->end.reason) : json_null());
	json_object_set_new(o, "reward_final", r->ended ? ww_json_real(r->end.reward_final) : json_null());
	json_object_set_new(o, "reward_best", r->ended ? ww_json_real(r->end.reward_best) : json_null());
	json_object_set_new(o, "solution", r->has_best ? json_string(r->best_id) : json_null());
	json_object_set_new(o, "verdict", r->has_best ? ww_verdict_to_json(&r->best) : json_null());
	json_object_set_new(o, "exports", exports);
	if (s->explained)
		json_object_set(o, "explain", (json_t *)s->explained);
	if (s->parallel)
		json_object_set_new(o, "episodes", parallel_json(s));
	if (s->budget) {
		struct ww_budget_use u = ww_budget_used(s->budget);
		json_object_set_new(o, "used",
			json_pack("{s:f, s:I, s:f}", "usd", u.usd, "tokens", (json_int_t)u.tokens, "gpu_seconds", u.gpu_s));
	}
	return o;
}
