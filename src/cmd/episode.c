/* episode.c - `warpwright episode`: show, count and export the records of runs. */
#include "base/fs.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "episode/view.h"
#include "task/held_out.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
	int json, full, html, no_tokens;
	const char *output, *arguments, *held_out;
	double min_reward;
};

static const struct ww_opt opts[] = { { "full", 0, WW_OPT_FLAG, offsetof(struct values, full), NULL, NULL, 0, 0,
										  "show: shorten nothing, and show the prompt" },
	{ "html", 0, WW_OPT_FLAG, offsetof(struct values, html), NULL, NULL, 0, 0, "show: one self-contained HTML page" },
	{ "min-reward", 0, WW_OPT_NUM, offsetof(struct values, min_reward), "R", "-1", -1, 3,
		"export: only episodes whose solution at the end has at least this reward" },
	{ "arguments", 0, WW_OPT_CHOICE, offsetof(struct values, arguments), "object|text", "object", 0, 0,
		"export: arguments of tool calls as objects (TRL, chat templates) or as JSON text (chat completions)" },
	{ "held-out", 0, WW_OPT_STR, offsetof(struct values, held_out), "SETS", NULL, 0, 0,
		"export: leave out episodes about a task of these sets, commas between them, by signature; of a set with splits "
		"all rows but those of train count" },
	{ "no-tokens", 0, WW_OPT_FLAG, offsetof(struct values, no_tokens), NULL, NULL, 0, 0,
		"export: leave out the tokens that the policy sampled, to train a model with another tokenizer" },
	{ "output", 'o', WW_OPT_STR, offsetof(struct values, output), "FILE", NULL, 0, 0,
		"show --html, export: write here instead of to standard output" },
	WW_OPT_JSON(struct values, json), WW_OPT_END };

/* The action on each episode found. */
struct visit {
	const struct values *v;
	enum ww_rc (*each)(struct visit *w, const char *path, const struct ww_episode *e, struct ww_err *err);
	struct ww_episode_stats *stats;
	FILE *to;
	struct ww_held_out *held;
	int64_t found, written, left_out, held_out; /* held_out: of these left out for their task */
	int64_t unreadable;
};

static enum ww_rc visit_file(struct visit *w, const char *path, struct ww_err *err)
{
	WW_AUTO(ww_episode_release) struct ww_episode e;
	WW_CHECK((enum ww_rc)ww_episode_read(path, &e, err));
	w->found++;
	return w->each(w, path, &e, err);
}

/* Below a directory a damaged file is named and passed over: one of thousands does not end the command. */
static enum ww_rc visit_found(void *ctx, const char *path, struct ww_err *err)
{
	struct visit *w = ctx;
	WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
	struct ww_err damage = WW_ERR_INIT;
	if (strcmp(strrchr(path, '/'), "/episode.jsonl"))
		return WW_OK;
	enum ww_rc rc = (enum ww_rc)ww_episode_read(path, &e, &damage);
	if (rc == WW_ERR_USAGE || rc == WW_ERR_PROTOCOL) {
		w->unreadable++;
		ww_err_wrap(&damage, "passed over");
		(void)ww_cmd_say(&damage);
		return WW_OK;
	}
	if (rc != WW_OK)
		return ww_err_set(err, rc, "%s", damage.msg);
	w->found++;
	return w->each(w, path, &e, err);
}

static enum ww_rc visit_all(struct visit *w, char **paths, int n, struct ww_err *err)
{
	for (int i = 0; i < n; i++)
		WW_CHECK(ww_fs_is_dir(paths[i]) ? ww_fs_walk(paths[i], visit_found, w, err) : visit_file(w, paths[i], err));
	if (!w->found && w->unreadable)
		return ww_err_set(err, WW_ERR_USAGE, "no episode below %s can be read", paths[0]);
	if (!w->found)
		return ww_err_set(err, WW_ERR_USAGE, "no episode.jsonl below %s; name the output of a run", paths[0]);
	return WW_OK;
}

/* A file that is whole or not there; standard output where none is named. */
static enum ww_rc put_text(const char *path, const struct ww_str *text, struct ww_err *err)
{
	if (text->cut)
		return ww_err_set(err, WW_ERR_LIMIT, "the output would be larger than %zu bytes", text->max);
	if (path)
		return ww_fs_write(path, text->p, text->len, err);
	fwrite(text->p, 1, text->len, stdout);
	return WW_OK;
}

/* ---- show -------------------------------------------------------------------------------------------------------- */

static json_t *summary_json(const struct ww_episode *e)
{
	struct ww_episode_use u = ww_episode_use_of(e);
	json_t *o = ww_episode_to_chat(e, 0);
	json_object_del(o, "messages");
	json_object_del(o, "tools");
	json_object_update_new(o,
		json_pack("{s:f, s:f, s:f, s:I, s:I}", "seconds", e->seconds, "gpu_seconds", u.gpu_s, "usd", u.usd,
			"prompt_tokens", (json_int_t)u.prompt_tokens, "completion_tokens", (json_int_t)u.completion_tokens));
	return o;
}

static enum ww_rc show_one(struct visit *w, const char *path, const struct ww_episode *e, struct ww_err *err)
{
	const struct values *v = w->v;
	ww_auto_str text = WW_STR_INIT((size_t)1 << 30);
	struct ww_episode_show how = { isatty(STDOUT_FILENO) && !getenv("NO_COLOR"), v->full };
	if (v->json) {
		json_auto_t *o = summary_json(e);
		ww_json_add_pretty(&text, o);
		ww_str_addc(&text, '\n');
	} else if (v->html) {
		ww_episode_html(e, &text);
	} else {
		ww_episode_text(e, &how, &text);
	}
	return put_text(v->html && !v->json ? v->output : NULL, &text, err);
}

static enum ww_rc only_one(struct visit *w, const char *path, const struct ww_episode *e, struct ww_err *err)
{
	return w->found > 1 ? ww_err_set(err, WW_ERR_USAGE, "there is more than one episode (%s); name one of them", path)
						: WW_OK;
}

/* Nothing is printed before it is known that there is one. */
static enum ww_rc run_show(struct visit *w, char **paths, struct ww_err *err)
{
	w->each = only_one;
	WW_CHECK(visit_all(w, paths, 1, err));
	w->each = show_one;
	return visit_all(w, paths, 1, err);
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

static enum ww_rc count_one(struct visit *w, const char *path, const struct ww_episode *e, struct ww_err *err)
{
	return (enum ww_rc)ww_episode_stats_add(w->stats, e, err);
}

static enum ww_rc run_stats(struct visit *w, char **paths, int n, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(16 << 20);
	w->each = count_one;
	if (!(w->stats = ww_episode_stats_new()))
		return ww_nomem(err);
	enum ww_rc rc = visit_all(w, paths, n, err);
	if (rc == WW_OK && w->v->json) {
		json_auto_t *o = ww_episode_stats_json(w->stats);
		ww_json_add_pretty(&text, o);
		ww_str_addc(&text, '\n');
	} else if (rc == WW_OK) {
		ww_episode_stats_text(w->stats, &text);
	}
	if (rc == WW_OK)
		rc = put_text(NULL, &text, err);
	ww_episode_stats_free(w->stats);
	return rc;
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

static enum ww_rc export_one(struct visit *w, const char *path, const struct ww_episode *e, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT((size_t)1 << 30);
	if (w->held && ww_held_out_find(w->held, e->header.task_signature, e->header.task_id)) {
		w->left_out++;
		w->held_out++;
		return WW_OK;
	}
	if (!e->ended || e->end.reward_final < w->v->min_reward) {
		w->left_out++;
		return WW_OK;
	}
	json_t *o = ww_episode_to_chat(e,
		(strcmp(w->v->arguments, "text") ? 0 : WW_EPISODE_TEXT_ARGUMENTS) |
			(w->v->no_tokens ? WW_EPISODE_NO_TOKENS : 0));
	json_object_set_new(o, "episode", json_string(path));
	ww_json_add(&line, o);
	ww_str_addc(&line, '\n');
	json_decref(o);
	int ok = !line.cut && line.len > 2 && fwrite(line.p, 1, line.len, w->to) == line.len;
	w->written++;
	return ok ? WW_OK : ww_err_errno(err, WW_ERR_IO, "cannot write the conversation of %s", path);
}

static enum ww_rc run_export(struct visit *w, char **paths, int n, struct ww_err *err)
{
	char tmp[PATH_MAX] = "";
	const char *to = w->v->output;
	enum ww_rc rc;
	w->each = export_one;
	w->to = stdout;
	if (w->v->held_out) {
		struct ww_progress *p = ww_progress_new(stderr);
		ww_progress_stage(p, "reading the held-out sets");
		rc = ww_held_out_open(&w->held, w->v->held_out, &ww_cmd_interrupted, err);
		ww_progress_free(p);
		WW_CHECK(rc);
	}
	if (to && (size_t)snprintf(tmp, sizeof(tmp), "%s.new-%d", to, (int)getpid()) >= sizeof(tmp))
		return ww_err_set(err, WW_ERR_USAGE, "path too long: %s", to);
	if (to && !(w->to = fopen(tmp, "wxe")))
		return ww_err_errno(err, WW_ERR_IO, "cannot create %s", to);
	rc = visit_all(w, paths, n, err);
	if (to && (fflush(w->to) || fsync(fileno(w->to)) || fclose(w->to)) && rc == WW_OK)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write %s", to);
	if (to && rc == WW_OK && rename(tmp, to) < 0)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot create %s", to);
	if (to && rc != WW_OK)
		unlink(tmp);
	if (rc == WW_OK && to && w->v->json)
		printf("{\"written\": %lld, \"left_out\": %lld, \"held_out\": %lld}\n", (long long)w->written,
			(long long)w->left_out, (long long)w->held_out);
	else if (rc == WW_OK && to)
		printf("conversations in %s: %lld; episodes left out: %lld, %lld of them about held-out tasks\n", to,
			(long long)w->written, (long long)w->left_out, (long long)w->held_out);
	else if (rc == WW_OK && w->left_out)
		fprintf(stderr,
			"warpwright: episodes left out: %lld (not ended, with a reward below %g, or about a held-out task)\n",
			(long long)w->left_out, w->v->min_reward);
	return rc;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct visit w = { .v = values };
	enum ww_rc rc;
	if (!strcmp(argv[0], "show"))
		rc = argc == 2
			? run_show(&w, argv + 1, &err)
			: ww_err_set(&err, WW_ERR_USAGE, "episode show takes one episode; warpwright episode -h explains it");
	else if (!strcmp(argv[0], "stats"))
		rc = run_stats(&w, argv + 1, argc - 1, &err);
	else if (!strcmp(argv[0], "export"))
		rc = run_export(&w, argv + 1, argc - 1, &err);
	else
		return ww_cmd_no_subcommand(cmd, argv[0]);
	ww_held_out_free(w.held);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_episode = { .name = "episode",
	.args = "show|stats|export PATH...",
	.summary = "show, count and export the records of runs",
	.details = "  episode show PATH         one episode on the terminal, or as a page (--html -o FILE)\n"
			   "  episode stats PATH...     rewards, turns, tokens, cost of many, by policy and target\n"
			   "  episode export PATH...    one conversation a line, as train and TRL read it\n\n"
			   "PATH is an episode.jsonl, or a directory: everything of that name below it. "
			   "docs/formats/episode.md has both forms.",
	.opts = opts,
	.values_size = sizeof(struct values),
	.min_args = 2,
	.max_args = -1,
	.run = run };
