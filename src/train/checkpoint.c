/* checkpoint.c - saving and finding the state of a run.
 *
 * A checkpoint is written into a directory whose name begins with a dot, synced, and renamed: every directory that is
 * called "step-..." is complete.  To remove one, it is renamed to a dotted name first, so a kill in the middle leaves a
 * dotted directory, which the next run removes, and never half a checkpoint.  The weights are in Hugging Face's format
 * with the rest beside them, so other programs load every checkpoint.
 */
#include "train/checkpoint.h"
#include "base/fs.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_MAX = 64 << 20, FORMAT = 1 };         /* a curriculum of 10,000 tasks takes a MiB */
static const int64_t COUNT_MAX = (int64_t)1 << 53; /* leaves room to add steps */

static enum ww_rc sync_dir(const char *path, struct ww_err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int bad = fd < 0 || fsync(fd) < 0;
	enum ww_rc rc = bad ? ww_err_errno(err, WW_ERR_IO, "cannot sync %s", path) : WW_OK;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* ---- state.json */

static enum ww_rc write_state(const char *dir, const struct ww_train_state *s, struct ww_err *err)
{
	json_t *losses = json_array();
	int64_t n = s->guard.seen < WW_GUARD_STEPS ? s->guard.seen : WW_GUARD_STEPS;
	for (int64_t i = 0; i < n; i++)
		json_array_append_new(losses, json_real(s->guard.losses[i]));
	json_auto_t *v = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O?, s:{s:I, s:I, s:I, s:o}}", "format",
		FORMAT, "step", (json_int_t)s->step, "updates", (json_int_t)s->updates, "critic_updates",
		(json_int_t)s->critic_updates, "epoch", (json_int_t)s->epoch, "row", (json_int_t)s->row, "total_tokens",
		(json_int_t)s->total_tokens, "log_bytes", (json_int_t)s->log_bytes, "stage", s->stage, "guard", "seen",
		(json_int_t)s->guard.seen, "skipped", (json_int_t)s->guard.skipped, "skipped_in_row",
		(json_int_t)s->guard.skipped_in_row, "losses", losses);
	return ww_json_write_file(dir, "state.json", STATE_MAX, v, err);
}

static enum ww_rc read_guard(const json_t *v, const char *what, struct ww_guard *g, struct ww_err *err)
{
	json_t *losses = NULL, *x;
	size_t i;
	WW_CHECK(ww_json_get_int(v, "seen", what, &g->seen, err));
	WW_CHECK(ww_json_get_int(v, "skipped", what, &g->skipped, err));
	WW_CHECK(ww_json_get_int(v, "skipped_in_row", what, &g->skipped_in_row, err));
	WW_CHECK(ww_json_get_array(v, "losses", what, &losses, err));
	if (g->seen < 0 || g->seen > COUNT_MAX || g->skipped < 0 || g->skipped_in_row < 0)
		return ww_err_set(err, WW_ERR_USAGE, "%s: the guard's counters are out of range", what);
	if ((int64_t)json_array_size(losses) != (g->seen < WW_GUARD_STEPS ? g->seen : WW_GUARD_STEPS))
		return ww_err_set(err, WW_ERR_USAGE, "%s: the guard's counters do not agree with its list of losses", what);
	json_array_foreach(losses, i, x)
		g->losses[i] = json_number_value(x);
	return WW_OK;
}

enum ww_rc ww_checkpoint_state(const char *dir, struct ww_train_state *s, struct ww_err *err)
{
	static const struct {
		const char *key;
		size_t offset;
	} fields[] = { { "step", offsetof(struct ww_train_state, step) },
		{ "updates", offsetof(struct ww_train_state, updates) },
		{ "critic_updates", offsetof(struct ww_train_state, critic_updates) },
		{ "epoch", offsetof(struct ww_train_state, epoch) }, { "row", offsetof(struct ww_train_state, row) },
		{ "total_tokens", offsetof(struct ww_train_state, total_tokens) },
		{ "log_bytes", offsetof(struct ww_train_state, log_bytes) } };
	char path[PATH_MAX];
	json_auto_t *v = NULL;
	json_t *guard;
	int64_t format, *field;
	memset(s, 0, sizeof(*s));
	WW_CHECK(ww_fs_join(path, dir, "state.json", err));
	WW_CHECK(ww_json_read_file(path, STATE_MAX, &v, err));
	WW_CHECK(ww_json_get_int(v, "format", path, &format, err));
	if (format != FORMAT)
		return ww_err_set(err, WW_ERR_USAGE, "%s: format %" PRId64 ", this program writes %d", path, format, FORMAT);
	for (size_t i = 0; i < WW_ARRAY_LEN(fields); i++) {
		field = (int64_t *)(void *)((char *)s + fields[i].offset);
		WW_CHECK(ww_json_get_int(v, fields[i].key, path, field, err));
		if (*field < 0 || *field > COUNT_MAX)
			return ww_err_set(err, WW_ERR_USAGE, "%s: \"%s\" is negative, or larger than any run", path, fields[i].key);
	}
	WW_CHECK(ww_json_get_object(v, "guard", path, &guard, err));
	WW_CHECK(read_guard(guard, path, &s->guard, err));
	s->stage = json_incref(json_object_get(v, "stage"));
	return WW_OK;
}

/* ---- the directory of checkpoints */

static int64_t step_of(const char *name)
{
	char *end;
	if (strncmp(name, "step-", 5))
		return -1;
	long long n = strtoll(name + 5, &end, 10);
	return *end || end == name + 5 || n < 0 ? -1 : n;
}

static int is_entry(const struct dirent *e) { return strcmp(e->d_name, ".") && strcmp(e->d_name, ".."); }

static int newest_first(const struct dirent **a, const struct dirent **b)
{
	int64_t x = step_of((*a)->d_name), y = step_of((*b)->d_name);
	return (x < y) - (x > y);
}

static void free_list(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

/* Remove unfinished checkpoints and those beyond the newest `keep`; the newest one's name into newest (may be NULL).
 */
static enum ww_rc sweep(const char *dir, int64_t keep, char *newest, struct ww_err *err)
{
	struct dirent **list = NULL;
	char path[PATH_MAX], gone[PATH_MAX];
	int64_t seen = 0;
	int n = scandir(dir, &list, is_entry, newest_first);
	enum ww_rc rc = n < 0 && errno != ENOENT ? ww_err_errno(err, WW_ERR_IO, "cannot read %s", dir) : WW_OK;
	for (int i = 0; rc == WW_OK && i < n; i++) {
		const char *name = list[i]->d_name;
		int is_step = step_of(name) >= 0;
		rc = ww_fs_join(path, dir, name, err);
		if (rc == WW_OK && is_step && !seen++ && newest)
			snprintf(newest, PATH_MAX, "%s", path);
		if (rc == WW_OK && is_step && seen > keep) {
			rc = snprintf(gone, PATH_MAX, "%s/.old-%s", dir, name) < PATH_MAX
				? WW_OK
				: ww_err_set(err, WW_ERR_LIMIT, "path too long");
			if (rc == WW_OK && rename(path, gone) < 0)
				rc = ww_err_errno(err, WW_ERR_IO, "cannot remove %s", path);
			if (rc == WW_OK)
				rc = ww_fs_remove_tree(gone, err);
		} else if (rc == WW_OK && (!strncmp(name, ".new", 4) || !strncmp(name, ".old-step-", 10))) {
			/* .new.tmp-XXXXXX: ww_model_save() was killed before .new was complete */
			rc = ww_fs_remove_tree(path, err);
		}
	}
	free_list(list, n);
	return rc;
}

/* Replaces an earlier link in one step. */
static enum ww_rc point_model(const char *run, const char *name, struct ww_err *err)
{
	char link_path[PATH_MAX], tmp[PATH_MAX], target[PATH_MAX];
	WW_CHECK(ww_fs_join(link_path, run, "model", err));
	WW_CHECK(ww_fs_join(tmp, run, ".model", err));
	WW_CHECK(ww_fs_join(target, "checkpoints", name, err));
	unlink(tmp);
	if (symlink(target, tmp) < 0 || rename(tmp, link_path) < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot link %s", link_path);
	return WW_OK;
}

enum ww_rc ww_checkpoint_find(const char *run, int64_t keep, char *path, struct ww_err *err)
{
	char dir[PATH_MAX];
	struct stat st;
	path[0] = 0;
	WW_CHECK(ww_fs_join(dir, run, "checkpoints", err));
	if (!lstat(dir, &st) && !S_ISDIR(st.st_mode)) /* what is removed below would be another directory's */
		return ww_err_set(err, WW_ERR_USAGE, "%s is a link or a file; put the directory itself there", dir);
	WW_CHECK(sweep(dir, keep, path, err));
	if (path[0])
		WW_CHECK(point_model(run, strrchr(path, '/') + 1, err));
	return WW_OK;
}

/* A model and its optimizer as directory `dir`. */
static enum ww_rc write_learner(struct ww_learner *l, const char *dir, const char *tokenizer_dir, struct ww_err *err)
{
	char optim[PATH_MAX];
	WW_CHECK(ww_model_save(ww_learner_model(l), dir, tokenizer_dir, err));
	WW_CHECK(ww_fs_join(optim, dir, "optimizer", err));
	WW_CHECK(ww_fs_mkdirs(optim, err));
	WW_CHECK(ww_learner_save(l, optim, err));
	WW_CHECK(sync_dir(optim, err));
	return sync_dir(dir, err);
}

enum ww_rc ww_checkpoint_critic(const char *path, char *dir, struct ww_err *err)
{
	return ww_fs_join(dir, path, "critic", err);
}

static enum ww_rc write_all(
	const char *tmp, const struct ww_trained *t, const struct ww_train_state *s, struct ww_err *err)
{
	char critic[PATH_MAX];
	WW_CHECK(write_learner(t->policy, tmp, t->tokenizer_dir, err));
	if (t->settings.prompt[0])
		WW_CHECK(ww_settings_write(tmp, &t->settings, err));
	WW_CHECK(ww_checkpoint_critic(tmp, critic, err));
	if (t->critic)
		WW_CHECK(write_learner(t->critic, critic, NULL, err));
	WW_CHECK(write_state(tmp, s, err));
	return sync_dir(tmp, err);
}

static void name_of(int64_t step, char *out, size_t size) { snprintf(out, size, "step-%08" PRId64, step); }

void ww_checkpoint_path(const char *run, int64_t step, char *out)
{
	char name[32];
	name_of(step, name, sizeof(name));
	snprintf(out, PATH_MAX, "%.4000s/checkpoints/%s", run, name);
}

enum ww_rc ww_checkpoint_save(
	const char *run, const struct ww_trained *t, const struct ww_train_state *s, int64_t keep, struct ww_err *err)
{
	char dir[PATH_MAX], tmp[PATH_MAX], final[PATH_MAX], name[32];
	struct ww_err ignored;
	name_of(s->step, name, sizeof(name));
	WW_CHECK(ww_fs_join(dir, run, "checkpoints", err));
	WW_CHECK(ww_fs_mkdirs(dir, err));
	WW_CHECK(ww_fs_join(tmp, dir, ".new", err));
	WW_CHECK(ww_fs_join(final, dir, name, err));
	enum ww_rc rc = write_all(tmp, t, s, err);
	if (rc == WW_OK && rename(tmp, final) < 0)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot create %s", final);
	if (rc != WW_OK) {
		enum ww_rc swept = sweep(dir, INT64_MAX, NULL, &ignored);
		(void)swept; /* the next run removes what is left */
		return rc;
	}
	WW_CHECK(sync_dir(dir, err));
	WW_CHECK(point_model(run, name, err));
	return sweep(dir, keep, NULL, err);
}

enum ww_rc ww_checkpoint_load(
	const char *path, const struct ww_trained *t, const struct ww_train_state *s, struct ww_err *err)
{
	char critic[PATH_MAX], optim[PATH_MAX];
	WW_CHECK(ww_fs_join(optim, path, "optimizer", err));
	WW_CHECK(ww_learner_load(t->policy, optim, s->updates, err));
	if (!t->critic)
		return WW_OK;
	WW_CHECK(ww_checkpoint_critic(path, critic, err));
	WW_CHECK(ww_fs_join(optim, critic, "optimizer", err));
	return ww_learner_load(t->critic, optim, s->critic_updates, err);
}
