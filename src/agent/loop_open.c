/* loop_open.c - an episode begins, or goes on from what its record holds. */
#include "agent/best.h"
#include "agent/compact.h"
#include "agent/loop.h"
#include "agent/prompt.h"

#include "base/fs.h"
#include "base/json.h"
#include "task/signature.h"

#include <stdio.h>
#include <string.h>

static enum ww_rc same(const char *what, const char *was, const char *is, const char *dir, struct ww_err *err)
{
	if (!strcmp(was, is))
		return WW_OK;
	return ww_err_set(
		err, WW_ERR_USAGE, "%s holds a run with another %s (%s, not %s); choose another -o", dir, what, was, is);
}

static enum ww_rc check_same_run(const struct ww_agent_loop *l, struct ww_err *err)
{
	const struct ww_episode_header *was = &l->past.header, *is = l->opts->header;
	if (strcmp(was->task_id, is->task_id))
		return ww_err_set(
			err, WW_ERR_USAGE, "%s holds a run of another task (%s); choose another -o", l->opts->dir, was->task_path);
	WW_CHECK(same("target", was->target, is->target, l->opts->dir, err));
	WW_CHECK(same("device", was->device, is->device, l->opts->dir, err));
	WW_CHECK(same("rule", was->rule, is->rule, l->opts->dir, err));
	WW_CHECK(same("form", was->form, ww_form_name(l->opts->form), l->opts->dir, err));
	WW_CHECK(same("loop", was->loop, ww_loop_name(l->opts->loop), l->opts->dir, err));
	WW_CHECK(same("prompt", was->prompt, ww_prompt_name(l->opts->prompt), l->opts->dir, err));
	return same("policy", was->policy, is->policy, l->opts->dir, err);
}

/* Repeat what the answered calls did to files and shell; their answers are not recorded again. */
static enum ww_rc rebuild_workspace(struct ww_agent_loop *l, struct ww_err *err)
{
	const struct ww_message *asked = NULL;
	for (size_t i = 0, k = 0; i < l->n_msgs; i++) {
		const struct ww_message *m = &l->msgs[i];
		if (m->role == WW_ROLE_ASSISTANT) {
			asked = m;
			k = 0;
			WW_CHECK(ww_loop_take_answer(l, m, err));
		}
		if (m->role != WW_ROLE_TOOL || !asked || k >= asked->n_calls)
			continue;
		const struct ww_tool_call *call = &asked->calls[k++];
		if (!m->is_error)
			WW_CHECK(ww_tools_redo(&l->env, call, m->data, err));
	}
	return WW_OK;
}

/* The best solution that the episode records; solution/ is written again where a kill left an older one. */
static enum ww_rc rebuild_best(struct ww_agent_loop *l, struct ww_err *err)
{
	const json_t *data = NULL;
	enum ww_rc rc = WW_OK;
	for (size_t i = 0; i < l->past.n_verdicts && rc == WW_OK; i++) {
		const struct ww_episode_verdict *e = &l->past.verdicts[i];
		WW_AUTO(ww_verdict_release) struct ww_verdict v;
		ww_verdict_init(&v);
		if (!strcmp(e->depth, "compile") || !strncmp(e->call_id, "final", 5))
			continue;
		rc = ww_verdict_from_json(e->verdict, &v, err);
		if (rc == WW_OK && ww_best_improves(l->result, &v)) {
			data = e->verdict;
			rc = ww_best_note(l->result, e->solution, data, err);
		}
	}
	const struct ww_episode_solution *s = data ? ww_episode_find_solution(&l->past, l->result->best_id) : NULL;
	if (rc != WW_OK || !s)
		return rc;
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content c;
	ww_workspace_content_init(&c);
	WW_CHECK(ww_loop_content_of(l, s, &c, err));
	return ww_best_store(l->opts->dir, &c, data, err);
}

/* Compactions were recorded between the turn that they name and the next one. */
static enum ww_rc compact_again(struct ww_agent_loop *l, int turn, struct ww_err *err)
{
	for (size_t i = 0; i < l->past.n_compactions; i++)
		if (l->past.compactions[i].turn == turn)
			WW_CHECK(ww_context_apply(&l->context, l->msgs, l->n_msgs, &l->past.compactions[i], err));
	return WW_OK;
}

static enum ww_rc take_past_message(struct ww_agent_loop *l, struct ww_reply *r, struct ww_err *err)
{
	int said = r->message.role == WW_ROLE_ASSISTANT;
	if (said) {
		WW_CHECK(compact_again(l, l->turn, err));
		l->last_finish = r->finish;
	}
	WW_CHECK(ww_loop_keep(l, &r->message, err));
	if (said)
		ww_context_note(&l->context, r, l->n_msgs);
	return WW_OK;
}

static enum ww_rc take_past(struct ww_agent_loop *l, struct ww_err *err)
{
	WW_CHECK(check_same_run(l, err));
	for (size_t i = 0; i < l->past.n_messages; i++)
		WW_CHECK(take_past_message(l, &l->past.messages[i].reply, err));
	WW_CHECK(compact_again(l, l->turn, err));
	for (size_t i = 0; i < l->past.n_solutions; i++)
		WW_CHECK(ww_loop_note_recorded(l, l->past.solutions[i].id, err));
	WW_CHECK(rebuild_workspace(l, err));
	return rebuild_best(l, err);
}

/* Write the header, with the members that only the loop knows. */
static enum ww_rc create(struct ww_agent_loop *l, const char *path, struct ww_err *err)
{
	struct ww_episode_header h = *l->opts->header;
	WW_AUTO(ww_signature_release) struct ww_signature signature = { .operators = NULL };
	struct ww_err ignored = WW_ERR_INIT;
	enum ww_rc rc = WW_OK;
	if (ww_task_signature(l->opts->judge.graph, &signature, &ignored) == WW_OK)
		snprintf(h.task_signature, sizeof(h.task_signature), "%s", signature.text);
	h.tools = l->opts->prompt == WW_PROMPT_COMPACT ? NULL : ww_tools_json();
	h.prompt = (char *)(uintptr_t)ww_prompt_name(l->opts->prompt);
	h.form = (char *)(uintptr_t)ww_form_name(l->opts->form);
	h.loop = (char *)(uintptr_t)ww_loop_name(l->opts->loop);
	h.limits = ww_prompt_limits(l->opts);
	if ((!h.tools && l->opts->prompt == WW_PROMPT_FULL) || !h.limits)
		rc = ww_nomem(err);
	else
		rc = (enum ww_rc)ww_episode_create(path, &h, &l->episode, err);
	json_decref(h.tools);
	json_decref(h.limits);
	return rc;
}

/* CUDA Agent's working directory has the task in it. */
static enum ww_rc put_frozen_files(struct ww_agent_loop *l, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(512);
	const char *text = l->opts->task_source;
	if (l->opts->form != WW_FORM_CUDA_AGENT)
		return WW_OK;
	return ww_workspace_write(&l->workspace, "model.py", text, strlen(text), &why, err);
}

/* With recorded answers the task is not open, so what it computes is known from the record alone. */
static enum ww_rc repeat_prompt(struct ww_agent_loop *l, struct ww_err *err)
{
	const struct ww_episode *e = &l->answers;
	if (e->n_messages < 2)
		return ww_err_set(err, WW_ERR_USAGE, "%s holds no prompt", l->opts->answers);
	while (l->n_msgs < 2) {
		const struct ww_message *m = &e->messages[l->n_msgs].reply.message;
		WW_CHECK(ww_loop_say_text(l, m->role, strdup(m->text), err));
	}
	return WW_OK;
}

enum ww_rc ww_loop_open(struct ww_agent_loop *l, struct ww_err *err)
{
	char path[PATH_MAX], dir[PATH_MAX];
	WW_CHECK(ww_fs_join(path, l->opts->dir, "episode.jsonl", err));
	WW_CHECK(ww_fs_join(dir, l->opts->dir, "workspace", err));
	WW_CHECK(ww_fs_join(l->journal, l->opts->dir, "reply.journal", err));
	int exists = ww_fs_is_file(path);
	if (l->opts->answers) {
		WW_CHECK(ww_fs_join(dir, l->opts->answers, "episode.jsonl", err));
		WW_CHECK((enum ww_rc)ww_episode_read(dir, &l->answers, err));
		WW_CHECK(ww_fs_join(dir, l->opts->dir, "workspace", err));
	}
	if (exists)
		WW_CHECK((enum ww_rc)ww_episode_append(path, &l->past, &l->episode, err));
	if (l->past.ended)
		return ww_err_set(err, WW_ERR_USAGE, "the run in %s has ended; choose another -o", l->opts->dir);
	WW_CHECK(ww_workspace_open(&l->workspace, dir, l->opts->target, exists, err));
	l->workspace.form = l->opts->form;
	WW_CHECK(put_frozen_files(l, err));
	if (exists)
		WW_CHECK(take_past(l, err));
	else
		WW_CHECK(create(l, path, err));
	if (l->opts->answers)
		return repeat_prompt(l, err);
	if (l->n_msgs < 1)
		WW_CHECK(ww_loop_say_text(l, WW_ROLE_SYSTEM, ww_prompt_system(l->opts), err));
	if (l->n_msgs < 2)
		WW_CHECK(ww_loop_say_text(l, WW_ROLE_USER, ww_prompt_task(l->opts), err));
	return WW_OK;
}
