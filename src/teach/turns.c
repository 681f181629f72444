/* turns.c - conversations about a task, from its solutions.
 *
 * Nothing is timed here, so verify's answer to a correct solution is drawn: its time, and how much slower PyTorch and
 * torch.compile are.  Of two solutions the first gets the slower time.  A model thus learns when to replace a solution,
 * not which text is faster. */
#include "agent/tools.h"
#include "base/target.h"
#include "teach/teach.h"
#include "judge/solution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum form { SUBMITTED, SINGLE, CHECKED, IMPROVED, MENDED, MENDED_TWICE };

enum { TWICE_ONE_IN = 4, TURNS = 3 }; /* one in so many MENDED has two mistakes; turns of the longest form */

enum ww_rc ww_teach_forms_read(const char *text, int64_t turns, struct ww_teach_forms *out, struct ww_err *err)
{
	double *const share[] = { &out->single, &out->checked, &out->improved, &out->mended }, sum = 0;
	const char *at = text;
	*out = (struct ww_teach_forms){ 0 };
	for (size_t i = 0; text && i < WW_ARRAY_LEN(share); i++) {
		char *end;
		*share[i] = strtod(at, &end);
		sum += *share[i];
		if (end == at || !(*share[i] >= 0) || *end != (i + 1 < WW_ARRAY_LEN(share) ? ':' : 0))
			sum = 2;
		at = *end ? end + 1 : end;
	}
	if (out->improved + out->mended > 0 && turns < TURNS)
		return ww_err_set(err, WW_ERR_USAGE,
			"--forms: improved and mended conversations take %d turns, and --turns is %lld; give both shares as 0, or more turns",
			TURNS, (long long)turns);
	return sum <= 1.000001
		? WW_OK
		: ww_err_set(err, WW_ERR_USAGE,
			  "--forms %s: give four shares whose sum is at most 1, SINGLE:CHECKED:IMPROVED:MENDED (0.2:0.2:0.15:0.3)",
			  text);
}

/* ---- What verify says of a correct solution ---------------------------------------------------------------------- */

/* Times of a task: of the solution, and of the baselines. */
struct drawn {
	double us, baseline_us[WW_BASE_COUNT], floor_us, err_rel, err_abs;
	double narrow; /* half an interval's width, relative to its middle */
};

/* Log-uniform in [lo, hi]. */
static double spread(struct ww_rng *rng, double lo, double hi) { return lo * pow(hi / lo, ww_rng_uniform(rng)); }

static void draw_times(struct ww_rng *rng, struct drawn *d)
{
	d->us = spread(rng, 4, 1000);
	d->baseline_us[WW_BASE_EAGER] = d->us * spread(rng, 0.9, 8);
	d->baseline_us[WW_BASE_COMPILE] = d->us * spread(rng, 0.7, 2);
	d->floor_us = ww_rng_below(rng, 2) ? d->us * ww_rng_uniform(rng) * 0.3 : 0; /* 0: the task fits into L2 */
	d->narrow = spread(rng, 0.002, 0.05);
	d->err_rel = spread(rng, 1e-8, 1e-6);
	d->err_abs = spread(rng, 1e-8, 1e-2);
}

static struct ww_ratio ratio_of(const struct drawn *d, double mid)
{
	return (struct ww_ratio){ mid * (1 - d->narrow), mid, mid * (1 + d->narrow) };
}

static char *passed_text(const struct ww_teacher *t, const struct drawn *d)
{
	ww_auto_str text = WW_STR_INIT(1 << 16);
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	ww_verdict_init(&v);
	v.correct = 1;
	v.err_rel = d->err_rel;
	v.err_abs = d->err_abs;
	v.time.device_us = d->us;
	v.time.call_us = t->prompt.target == WW_TARGET_CPU ? d->us : NAN; /* on cuda, verify does not time calls */
	v.floor_us = d->floor_us;
	v.time_device = ratio_of(d, d->us);
	for (int b = 0; b < WW_BASE_COUNT; b++) {
		v.baseline_measured[b] = t->prompt.baselines >> b & 1;
		v.baselines[b].device_us = d->baseline_us[b];
		if (v.baseline_measured[b])
			v.speedup[b] = ratio_of(d, d->baseline_us[b] / d->us);
	}
	v.reward = ww_verdict_reward(&v);
	ww_tool_verdict_text(&v, WW_JUDGE_FULL, &text);
	return ww_compact_output(text.p, text.len);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static char *answer_of(const struct ww_teacher *t, const struct ww_teach_solution *s)
{
	ww_auto_str a = WW_STR_INIT(32 << 20);
	ww_str_addf(&a, "```plan.c\n%s```\n```%s\n%s```\n", s->plan, ww_solution_device_file(t->prompt.target), s->device);
	return a.cut ? NULL : ww_str_take(&a);
}

static void add(json_t *list, const char *role, const char *text)
{
	json_array_append_new(list, json_pack("{s:s, s:s}", "role", role, "content", text));
}

/* An assistant message with a call of `tool`; NULL: without a call. */
static void add_assistant(json_t *list, const char *text, const char *tool, int learn)
{
	json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", text);
	json_auto_t *id = json_sprintf("call_%d_0", (int)json_array_size(list) / 2 - 1);
	if (m && tool)
		json_object_set_new(m, "tool_calls",
			json_pack(
				"[{s:O, s:s, s:{s:s, s:{}}}]", "id", id, "type", "function", "function", "name", tool, "arguments"));
	if (m && !learn)
		json_object_set_new(m, "learn", json_false());
	json_array_append_new(list, m);
}

/* An assistant message that calls verify, and the tool's answer `said`, which is freed. */
static void add_verified(json_t *list, const char *text, int learn, char *said)
{
	add_assistant(list, text, "verify", learn);
	json_array_append_new(list,
		json_pack("{s:s, s:o, s:s}", "role", "tool", "tool_call_id",
			json_sprintf("call_%d_0", (int)json_array_size(list) / 2 - 1), "content", said));
	free(said);
}

/* Whether the conversation is within `longest`; with two or three solutions within twice as many bytes. */
static int fits(const struct ww_teacher *t, const json_t *list)
{
	const json_t *m;
	size_t i, bytes = 0, most = (size_t)t->longest * (json_array_size(list) > 5 ? 2 : 1);
	json_array_foreach(list, i, m)
		bytes += strlen(json_string_value(json_object_get(m, "content")));
	return !t->longest || bytes <= most;
}

static json_t *first_messages(const struct ww_teacher *t, enum form form, const char *user)
{
	struct ww_compact c = t->prompt;
	c.loop = form == SINGLE ? WW_LOOP_SINGLE : c.loop;
	ww_auto_free char *system = ww_compact_system(&c);
	json_t *list = json_array();
	if (!system || !list)
		return list;
	add(list, "system", system);
	add(list, "user", user);
	return list;
}

/* ---- Forms ------------------------------------------------------------------------------------------------------- */

static enum form draw_form(const struct ww_teacher *t, const struct ww_teach_solutions *s, struct ww_rng *rng)
{
	const struct ww_teach_forms *f = &t->forms;
	double at = ww_rng_uniform(rng);
	if (at < f->single)
		return SINGLE;
	if ((at -= f->single) < f->checked)
		return CHECKED;
	if ((at -= f->checked) < f->improved)
		return s->n > 1 ? IMPROVED : CHECKED;
	if (at - f->improved >= f->mended)
		return SUBMITTED;
	return ww_rng_below(rng, TWICE_ONE_IN) ? MENDED : MENDED_TWICE;
}

/* Another solution, verified at about torch.compile's time or more; *d gets the faster time of the one that follows. */
static enum ww_rc add_slower(const struct ww_teacher *t, const struct ww_teach_solutions *s, int which,
	struct ww_rng *rng, struct drawn *d, json_t *list, struct ww_err *err)
{
	int other = (which + 1 + (int)ww_rng_below(rng, (uint64_t)s->n - 1)) % s->n;
	ww_auto_free char *text = answer_of(t, &s->s[other]);
	struct drawn slow = *d;
	slow.us = d->baseline_us[WW_BASE_COMPILE] * spread(rng, 0.97, 1.6);
	d->us = slow.us * spread(rng, 0.5, 0.95);
	char *said = passed_text(t, &slow);
	if (!text || !said) {
		free(said);
		return ww_nomem(err);
	}
	add_verified(list, text, 1, said);
	return WW_OK;
}

static enum ww_rc add_mistake(const struct ww_teacher *t, const struct ww_facts *facts,
	const struct ww_teach_solution *right, const char *own, struct ww_rng *rng, json_t *list, struct ww_err *err)
{
	WW_AUTO(ww_teach_fault_release) struct ww_teach_fault f = { .verify_text = NULL };
	if (own)
		WW_CHECK(ww_teach_own_fault(&t->tools, facts, own, &f, err));
	if (!f.verify_text)
		WW_CHECK(ww_teach_fault(&t->tools, facts, right, rng, &f, err));
	if (!f.verify_text)
		return WW_OK;
	ww_auto_free char *text = answer_of(t, &f.wrong);
	if (!text)
		return ww_nomem(err);
	add_verified(list, text, 0, f.verify_text);
	f.verify_text = NULL;
	return WW_OK;
}

static enum ww_rc add_end(const struct ww_teacher *t, enum form form, const char *answer, const struct drawn *d,
	json_t *list, struct ww_err *err)
{
	if (t->prompt.loop == WW_LOOP_SINGLE || form == SINGLE) {
		add(list, "assistant", answer);
	} else if (form == SUBMITTED || (form == MENDED_TWICE && json_array_size(list) > 5)) { /* no turn is left */
		add_assistant(list, answer, "submit", 1);
	} else {
		char *said = passed_text(t, d);
		if (!said)
			return ww_nomem(err);
		add_verified(list, answer, 1, said);
		add_assistant(list, "", "submit", 1);
	}
	return WW_OK;
}

static enum ww_rc in_form(const struct ww_teacher *t, enum form form, const char *user, const struct ww_facts *facts,
	const struct ww_teach_solutions *s, int which, const char *own, struct ww_rng *rng, json_t **out,
	struct ww_err *err)
{
	ww_auto_free char *answer = answer_of(t, &s->s[which]);
	json_auto_t *list = first_messages(t, form, user);
	struct drawn d;
	if (!answer || !list)
		return ww_nomem(err);
	draw_times(rng, &d);
	if (form == IMPROVED)
		WW_CHECK(add_slower(t, s, which, rng, &d, list, err));
	for (int i = 0; i < (form == MENDED_TWICE ? 2 : form == MENDED); i++)
		WW_CHECK(add_mistake(t, facts, &s->s[which], i ? NULL : own, rng, list, err));
	WW_CHECK(add_end(t, form, answer, &d, list, err));
	*out = fits(t, list) ? json_incref(list) : NULL;
	return WW_OK;
}

enum ww_rc ww_teach_messages(const struct ww_teacher *t, const char *user, const struct ww_facts *facts,
	const struct ww_teach_solutions *s, int which, const char *own, struct ww_rng *rng, json_t **messages,
	struct ww_err *err)
{
	enum form form = draw_form(t, s, rng);
	*messages = NULL;
	WW_CHECK(in_form(t, form, user, facts, s, which, own, rng, messages, err));
	if (!*messages && form >= IMPROVED)
		return in_form(t, CHECKED, user, facts, s, which, NULL, rng, messages, err);
	return WW_OK;
}
