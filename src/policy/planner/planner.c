/* planner.c - the rule-based policy: messages in, the next message out.
 *
 * It works through the same tools as any model and keeps no state between calls.  Each call replays the conversation:
 * the answer of `inspect` gives the graph; every message that wrote files and asked for `verify` was one trial, and its
 * verdict feeds the search; what the search wants next is built from the graph and becomes the next message.  A build
 * is a few milliseconds, so nothing is cached between calls but the parsed graph.
 *
 * With a model (`planner+MODEL`) the first message is the model's answer, and its files are the first trial: the search
 * goes on from there (proposal.h).
 *
 * The seed is the model's: the planner takes the first of equal choices. */
#include "policy/planner/proposal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include "policy/policy.h"

struct planner {
	struct ww_policy base;
	struct ww_policy *model; /* what proposes; NULL: nothing does */
	struct pl_options options;
	/* What the search made of the answer `placed_of`, kept from call to call: the same conversation gives the same. */
	char *placed_of;
	struct trial nearest;
	int exact;
};

static const struct ww_message *find_inspect(const struct ww_message *msgs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (msgs[i].role == WW_ROLE_TOOL && msgs[i].tool && !strcmp(msgs[i].tool, "inspect") && msgs[i].data &&
			!msgs[i].is_error)
			return &msgs[i];
	return NULL;
}

static enum ww_rc set_text(struct ww_reply *out, const char *text, struct ww_err *err)
{
	out->message.role = WW_ROLE_ASSISTANT;
	out->message.text = strdup(text);
	return out->message.text ? WW_OK : ww_err_set(err, WW_ERR_NOMEM, "out of memory for a message");
}

/* Append a call; takes `args`. */
static enum ww_rc add_call(struct ww_reply *out, size_t turn, const char *name, json_t *args, struct ww_err *err)
{
	struct ww_tool_call *c = realloc(out->message.calls, (out->message.n_calls + 1) * sizeof(*c));
	enum ww_rc rc = WW_OK;
	char id[48];

	if (!c || !args) {
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory for a tool call");
		goto out;
	}
	out->message.calls = c;
	c += out->message.n_calls;
	memset(c, 0, sizeof(*c));
	snprintf(id, sizeof(id), "call_%zu_%zu", turn, out->message.n_calls);
	out->message.n_calls++;
	c->id = strdup(id);
	c->name = strdup(name);
	c->arguments = json_dumps(args, JSON_COMPACT);
	out->finish = WW_FINISH_TOOL_CALLS;
	if (!c->id || !c->name || !c->arguments)
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory for a tool call");
out:
	json_decref(args);
	return rc;
}

static enum ww_rc add_files(struct ww_reply *out, size_t turn, const struct pl_result *r, int cuda, struct ww_err *err)
{
	enum ww_rc rc;

	WW_TRY(add_call(out, turn, "write",
		json_pack("{s:s, s:s}", "path", cuda ? "kernels.cu" : "kernels.c", "text", r->device_text), err));
	WW_TRY(add_call(out, turn, "write", json_pack("{s:s, s:s}", "path", "plan.c", "text", r->plan_text), err));
out:
	return rc;
}

/* What the conversation says so far. */
struct replay {
	const struct pl_options *options;
	json_t *inspect;
	const json_t *graph, *device;
	const char *target;
	int cuda;
	struct pl_result first; /* of the default knobs */
	struct pl_result last;  /* with convolutions channels-last */
	struct search search;
	struct pl_proposal proposal;
	size_t turn; /* assistant messages so far */
};

static void build_trial(const struct replay *r, const struct trial *t, struct pl_result *out)
{
	if (t->proposal) {
		*out = (struct pl_result){ .device_text = strdup(r->proposal.device_text),
			.plan_text = strdup(r->proposal.plan_text) };
		out->ok = out->device_text && out->plan_text;
		return;
	}
	struct pl_options options = *r->options;
	ww_auto_free char *left = t->left ? pl_search_left(&r->search, t) : NULL;
	options.left = left;
	ww_pl_build(r->graph, r->device, r->target, t->knobs, SEARCH_KERNELS, &options, out);
}

static void build_for_search(const void *replay, const struct trial *t, struct pl_result *out)
{
	build_trial(replay, t, out);
}

static int is_verdict(const struct ww_message *m)
{
	return m->role == WW_ROLE_TOOL && m->tool && !strcmp(m->tool, "verify");
}

static enum ww_rc read_inspect(struct replay *r, const struct ww_message *in, struct ww_err *err)
{
	WW_CHECK(ww_json_parse(in->data, strlen(in->data), "answer of inspect", &r->inspect, err));
	r->graph = json_object_get(r->inspect, "graph");
	r->device = json_object_get(r->inspect, "device");
	r->target = ww_json_str(r->inspect, "target", "cuda");
	r->cuda = !strcmp(r->target, "cuda");
	return WW_OK;
}

static void replay_verdicts(struct replay *r, const struct ww_message *msgs, size_t n)
{
	for (size_t i = 0; i < n && !r->search.done; i++) {
		json_error_t e;
		json_t *v;

		if (!is_verdict(&msgs[i]))
			continue;
		v = msgs[i].data ? json_loads(msgs[i].data, 0, &e) : NULL;
		pl_search_feed(&r->search, v);
		json_decref(v);
	}
}

/* ---- A model's answer -------------------------------------------------------------------------------------------- */

static const struct ww_message *first_said(const struct ww_message *msgs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (msgs[i].role == WW_ROLE_ASSISTANT)
			return &msgs[i];
	return NULL;
}

static int calls(const struct ww_message *m, const char *tool)
{
	for (size_t i = 0; i < m->n_calls; i++)
		if (!strcmp(m->calls[i].name, tool))
			return 1;
	return 0;
}

/* The knobs whose text is the nearest to the proposal's: the search itself, with the distance of the texts in place of
 * a time. */
static enum ww_rc find_nearest(struct replay *r, const struct pl_result *last, struct ww_err *err)
{
	struct pl_proposal *p = &r->proposal;
	struct search s;

	pl_search_init(&s, &r->first, last, r->cuda, NULL);
	while (!s.done && !p->exact) {
		WW_AUTO(ww_pl_result_release) struct pl_result built = { 0 };
		int device = 0, plan = 0;
		build_trial(r, &s.now, &built);
		if (built.ok) {
			WW_CHECK(pl_text_distance(built.device_text, p->device_text, &device, err));
			WW_CHECK(pl_text_distance(built.plan_text, p->plan_text, &plan, err));
		}
		json_auto_t *v = json_pack(
			"{s:b, s:i, s:{s:f}}", "correct", built.ok, "reward", built.ok, "time", "device_us", device + plan + 1.0);
		p->exact = built.ok && !device && !plan;
		pl_search_feed(&s, v);
	}
	p->nearest = s.top;
	return WW_OK;
}

/* The answer that the conversation begins with, where it was a trial: a planner alone begins with `inspect`. */
static enum ww_rc take_proposal(
	struct planner *p, struct replay *r, const struct pl_result *last, const struct ww_message *m, struct ww_err *err)
{
	if (!m || !calls(m, "verify"))
		return WW_OK;
	pl_proposal_read(&r->proposal, m->text, r->cuda);
	if (!r->proposal.plan_text)
		return WW_OK;
	if (!p->placed_of || strcmp(p->placed_of, m->text)) {
		WW_CHECK(find_nearest(r, last, err));
		free(p->placed_of);
		p->placed_of = strdup(m->text);
		p->nearest = r->proposal.nearest;
		p->exact = r->proposal.exact;
	}
	pl_search_propose(&r->search, &p->nearest, p->exact);
	return WW_OK;
}

/* The model's answer, and in place of its calls those of the first trial.  Its tokens are not handed on: the message is
 * not the model's alone. */
static enum ww_rc propose(struct planner *p, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	WW_AUTO(ww_reply_release) struct ww_reply said = { .usd = 0 };
	struct pl_proposal files[2] = { { 0 } };

	WW_CHECK((enum ww_rc)p->model->ops->next(p->model, ask, &said, err));
	out->usd = said.usd;
	out->prompt_tokens = said.prompt_tokens;
	out->completion_tokens = said.completion_tokens;
	WW_CHECK(set_text(out, said.message.text, err));
	WW_CHECK(add_call(out, 0, "inspect", json_object(), err));
	for (int cuda = 0; cuda < 2; cuda++) /* the target is not known before inspect answers */
		pl_proposal_read(&files[cuda], said.message.text, cuda);
	int whole = files[0].plan_text || files[1].plan_text;
	pl_proposal_release(&files[0]);
	pl_proposal_release(&files[1]);
	return whole ? add_call(out, 0, "verify", json_pack("{s:b, s:b}", "time", 1, "brief", 1), err) : WW_OK;
}

/* A question that leaves the model no room is the planner's alone. */
static int has_room(const struct planner *p, const struct ww_ask *ask)
{
	int64_t context = p->model->ops->context_tokens(p->model);

	return p->model->ops->count_tokens(p->model, ask->msgs, ask->n) < context;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static enum ww_rc give_up(struct ww_reply *out, const char *why, struct ww_err *err)
{
	out->finish = WW_FINISH_STOP;
	return set_text(out, why, err);
}

static int is_same(const struct trial *a, const struct trial *b)
{
	return a->proposal == b->proposal && a->left == b->left && !memcmp(a->knobs, b->knobs, sizeof(a->knobs));
}

static enum ww_rc finish(struct replay *r, struct ww_reply *out, struct ww_err *err)
{
	struct pl_result best = { 0 };
	char text[700];
	enum ww_rc rc;

	if (!r->search.have_top) {
		snprintf(text, sizeof(text), "the planner's solution does not hold: %s", r->search.failure);
		return give_up(out, text, err);
	}
	snprintf(text, sizeof(text), "nothing better found in %d trials; submit the best (%.150s)", r->search.n_trials,
		r->search.top.text);
	WW_TRY(set_text(out, text, err));
	if (!is_same(&r->search.now, &r->search.top)) {
		build_trial(r, &r->search.top, &best);
		if (!best.ok) {
			rc = ww_err_set(err, WW_ERR_SYSTEM, "planner: the best solution cannot be built again: %s", best.why);
			goto out;
		}
		WW_TRY(add_files(out, r->turn, &best, r->cuda, err));
	}
	WW_TRY(add_call(out, r->turn, "submit", json_object(), err));
out:
	ww_pl_result_release(&best);
	return rc;
}

static enum ww_rc next_trial(struct replay *r, struct ww_reply *out, struct ww_err *err)
{
	struct pl_result built = { 0 };
	enum ww_rc rc;

	build_trial(r, &r->search.now, &built);
	if (!built.ok) {
		rc = r->search.have_top ? finish(r, out, err) : give_up(out, built.why, err);
		goto out;
	}
	WW_TRY(set_text(out, r->search.now.text, err));
	WW_TRY(add_files(out, r->turn, &built, r->cuda, err));
	WW_TRY(add_call(out, r->turn, "verify", json_pack("{s:b, s:b}", "time", 1, "brief", 1), err));
out:
	ww_pl_result_release(&built);
	return rc;
}

static int planner_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	const struct ww_message *msgs = ask->msgs;
	size_t n = ask->n;
	const struct ww_message *in = find_inspect(msgs, n);
	struct planner *p = (struct planner *)(void *)self;
	struct replay r = { .options = &p->options };
	enum ww_rc rc = WW_OK;

	for (size_t i = 0; i < n; i++)
		r.turn += msgs[i].role == WW_ROLE_ASSISTANT;
	if (p->model && !r.turn && has_room(p, ask))
		return (int)propose(p, ask, out, err);
	if (!in) {
		if (r.turn > 1)
			return give_up(out, "inspect gave no graph", err);
		WW_TRY(set_text(out, "look at the graph and the device", err));
		WW_TRY(add_call(out, r.turn, "inspect", json_object(), err));
		goto out;
	}
	WW_TRY(read_inspect(&r, in, err));
	ww_pl_build(r.graph, r.device, r.target, NULL, 0, r.options, &r.first);
	if (!r.first.ok) {
		rc = give_up(out, r.first.why, err);
		goto out;
	}
	const struct pl_result *last = pl_build_last(r.graph, r.device, r.target, r.options, &r.first, &r.last);
	pl_search_init(&r.search, &r.first, last, r.cuda, &(struct search_build){ build_for_search, &r });
	WW_TRY(take_proposal(p, &r, last, first_said(msgs, n), err));
	replay_verdicts(&r, msgs, n);
	rc = r.search.done ? finish(&r, out, err) : next_trial(&r, out, err);
out:
	pl_search_release(&r.search);
	pl_proposal_release(&r.proposal);
	ww_pl_result_release(&r.first);
	ww_pl_result_release(&r.last);
	json_decref(r.inspect);
	return (int)rc;
}

/* 1 where the trial that the search is at wrote these files; its explanation to *out. */
static int explain_trial(struct replay *r, const char *device_text, const char *plan_text, json_t **out)
{
	struct pl_result built = { 0 };
	int found;

	build_trial(r, &r->search.now, &built);
	found = built.ok && !strcmp(built.device_text, device_text) && !strcmp(built.plan_text, plan_text);
	if (found)
		*out = json_incref(built.explained);
	ww_pl_result_release(&built);
	return found;
}

int ww_planner_explain(const char *how, const struct ww_message *msgs, size_t n, const char *device_text,
	const char *plan_text, json_t **out, struct ww_err *err)
{
	const struct pl_options options = { .no_algebra = how && !strcmp(how, "no-algebra"), .explain = 1 };
	const struct ww_message *in = find_inspect(msgs, n);
	struct planner fresh = { .model = NULL };
	struct replay r = { .options = &options };
	enum ww_rc rc = WW_OK;

	*out = NULL;
	if (!in)
		return WW_OK;
	WW_TRY(read_inspect(&r, in, err));
	ww_pl_build(r.graph, r.device, r.target, NULL, 0, r.options, &r.first);
	if (!r.first.ok)
		goto out;
	const struct pl_result *last = pl_build_last(r.graph, r.device, r.target, r.options, &r.first, &r.last);
	pl_search_init(&r.search, &r.first, last, r.cuda, &(struct search_build){ build_for_search, &r });
	WW_TRY(take_proposal(&fresh, &r, last, first_said(msgs, n), err));
	for (size_t i = 0; i < n && !r.search.done && !explain_trial(&r, device_text, plan_text, out); i++) {
		while (i < n && !is_verdict(&msgs[i]))
			i++;
		replay_verdicts(&r, &msgs[i], i < n);
	}
out:
	free(fresh.placed_of);
	pl_search_release(&r.search);
	pl_proposal_release(&r.proposal);
	ww_pl_result_release(&r.first);
	ww_pl_result_release(&r.last);
	json_decref(r.inspect);
	return (int)rc;
}

static int64_t planner_count(struct ww_policy *self, const struct ww_message *msgs, size_t n)
{
	(void)self, (void)msgs, (void)n;
	return 0;
}

static void planner_free(struct ww_policy *self)
{
	struct planner *p = (struct planner *)(void *)self;

	if (p->model)
		p->model->ops->free(p->model);
	free(p->placed_of);
	free(p);
}

static const char *planner_prompt(struct ww_policy *self)
{
	struct planner *p = (struct planner *)(void *)self;

	return p->model ? p->model->ops->prompt(p->model) : NULL;
}

static int planner_open(struct ww_policy *model, const char *how, struct ww_policy **out, struct ww_err *err)
{
	static const struct ww_policy_ops ops = { .name = "planner",
		.next = planner_next,
		.count_tokens = planner_count,
		.free = planner_free,
		.prompt = planner_prompt };
	struct planner *p;

	WW_CHECK(WW_NEW(p, 1, err));
	p->base.ops = &ops;
	p->model = model;
	p->options.no_algebra = how != NULL;
	*out = &p->base;
	return WW_OK;
}

int ww_planner_new(const char *how, struct ww_policy **out, struct ww_err *err)
{
	if (how && strcmp(how, "no-algebra"))
		return (int)ww_err_set(err, WW_ERR_USAGE, "the planner has no option \"%s\"; there is no-algebra", how);
	return planner_open(NULL, how, out, err);
}

int ww_planner_over(struct ww_policy *model, struct ww_policy **out, struct ww_err *err)
{
	const char *prompt = model->ops->prompt ? model->ops->prompt(model) : NULL;

	if (prompt && !strcmp(prompt, "compact"))
		return planner_open(model, NULL, out, err);
	return (int)ww_err_set(err, WW_ERR_USAGE,
		"the planner needs a whole solution in one answer; take a model that was trained with the compact prompt, as "
		"its warpwright.json says (docs/policies.md)");
}
