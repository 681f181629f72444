/* best.c - the best solution of a run, in memory and in the output directory.
 *
 * Both files of a solution belong together, so the new solution/ is written under a temporary name and exchanged with
 * the old one in one system call (renameat2 with RENAME_EXCHANGE); where the file system cannot do that, two renames
 * follow each other and a kill between them leaves the new directory under its temporary name, from which the episode's
 * next start repairs it. verdict.json comes after: it names the solution by id, so a kill between the two is seen.
 */
#include "agent/best.h"

#include "base/fs.h"
#include "base/json.h"
#include "judge/solution.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>

int ww_agent_better(const struct ww_verdict *a, const struct ww_verdict *b)
{
	int timed_a = !isnan(a->time.device_us), timed_b = !isnan(b->time.device_us);
	if (a->correct != b->correct)
		return a->correct > b->correct;
	if (a->reward != b->reward)
		return a->reward > b->reward;
	if (timed_a != timed_b)
		return timed_a > timed_b;
	return timed_a && a->time.device_us < b->time.device_us;
}

int ww_best_improves(const struct ww_agent_result *r, const struct ww_verdict *v)
{
	return v->correct && (!r->has_best || ww_agent_better(v, &r->best));
}

enum ww_rc ww_best_note(struct ww_agent_result *r, const char *id, const json_t *data, struct ww_err *err)
{
	ww_verdict_release(&r->best);
	ww_verdict_init(&r->best);
	r->has_best = 1;
	snprintf(r->best_id, sizeof(r->best_id), "%s", id);
	return ww_verdict_from_json(data, &r->best, err);
}

/* ---- In the directory -------------------------------------------------------------------------------------------- */

static enum ww_rc write_in(const char *dir, const char *name, const char *text, size_t n, struct ww_err *err)
{
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, dir, name, err));
	return ww_fs_write(path, text, n, err);
}

static enum ww_rc swap_in(const char *fresh, const char *dir_now, struct ww_err *err)
{
	if (rename(fresh, dir_now) == 0)
		return WW_OK;
	if (renameat2(AT_FDCWD, fresh, AT_FDCWD, dir_now, RENAME_EXCHANGE) == 0)
		return ww_fs_remove_tree(fresh, err);
	char old[PATH_MAX];
	if ((size_t)snprintf(old, sizeof(old), "%s.old", dir_now) >= sizeof(old))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", dir_now);
	enum ww_rc rc = ww_fs_remove_tree(old, err);
	if (rc == WW_OK && (rename(dir_now, old) < 0 || rename(fresh, dir_now) < 0))
		rc = ww_err_errno(err, WW_ERR_IO, "cannot replace %s", dir_now);
	return rc == WW_OK ? ww_fs_remove_tree(old, err) : rc;
}

static enum ww_rc store_solution(const char *dir, const struct ww_workspace_content *c, struct ww_err *err)
{
	char fresh[PATH_MAX], solution[PATH_MAX], kernels[PATH_MAX];
	const char *name, *text;
	WW_CHECK(ww_fs_join(fresh, dir, ".solution.new", err));
	WW_CHECK(ww_fs_join(solution, dir, "solution", err));
	WW_CHECK(ww_fs_join(kernels, fresh, "kernels", err));
	WW_CHECK(ww_fs_remove_tree(fresh, err));
	WW_CHECK(ww_fs_mkdirs(c->files.solution.form == WW_FORM_CUDA_AGENT ? kernels : fresh, err));
	for (int k = 0; (name = ww_solution_file(&c->files, k, &text)); k++)
		WW_CHECK(write_in(fresh, name, text, strlen(text), err));
	return swap_in(fresh, solution, err);
}

enum ww_rc ww_best_store(const char *dir, const struct ww_workspace_content *c, const json_t *data, struct ww_err *err)
{
	if (c)
		WW_CHECK(store_solution(dir, c, err));
	return ww_json_write_file(dir, "verdict.json", 16 << 20, data, err);
}

enum ww_rc ww_best_load(const char *dir, enum ww_target target, const char *id, struct ww_workspace_content *c,
	int *found, struct ww_err *err)
{
	char solution[PATH_MAX];
	WW_CHECK(ww_fs_join(solution, dir, "solution", err));
	ww_solution_files_release(&c->files);
	enum ww_rc rc = ww_solution_load(&c->files, solution, target, err);
	*found = rc == WW_OK;
	if (*found) {
		ww_solution_id(&c->files.solution, c->id);
		*found = !strcmp(c->id, id);
	}
	return rc == WW_ERR_USAGE ? WW_OK : rc;
}

/* ---- From a record ----------------------------------------------------------------------------------------------- */

void ww_agent_result_release(struct ww_agent_result *r) { ww_verdict_release(&r->best); }

/* In an ended episode the closing judgement is about `end.best`, and is the newest verdict about it. */
static const struct ww_episode_verdict *closing_verdict(const struct ww_episode *e)
{
	for (size_t i = e->n_verdicts; i-- > 0;)
		if (!strcmp(e->verdicts[i].solution, e->end.best) && !strcmp(e->verdicts[i].depth, "full"))
			return &e->verdicts[i];
	return NULL;
}

enum ww_rc ww_agent_result_of(const struct ww_episode *e, struct ww_agent_result *out, struct ww_err *err)
{
	memset(out, 0, sizeof(*out));
	ww_verdict_init(&out->best);
	out->ended = e->ended;
	out->end = e->end;
	out->seconds = e->seconds;
	for (size_t i = 0; i < e->n_messages; i++)
		out->turns += e->messages[i].reply.message.role == WW_ROLE_ASSISTANT;
	if (e->ended) {
		const struct ww_episode_verdict *v = *e->end.best ? closing_verdict(e) : NULL;
		return v ? ww_best_note(out, v->solution, v->verdict, err) : WW_OK;
	}
	for (size_t i = 0; i < e->n_verdicts; i++) {
		WW_AUTO(ww_verdict_release) struct ww_verdict v;
		ww_verdict_init(&v);
		WW_CHECK(ww_verdict_from_json(e->verdicts[i].verdict, &v, err));
		if (strcmp(e->verdicts[i].depth, "compile") && ww_best_improves(out, &v))
			WW_CHECK(ww_best_note(out, e->verdicts[i].solution, e->verdicts[i].verdict, err));
	}
	return WW_OK;
}
