/* write.c - writing an episode (format: docs/formats/episode.md).
 *
 * The invariant is that the file always consists of whole lines plus at most one cut line at its end, and that a
 * function which returned success left its line on the disk.  So each line goes out in one write(2) to a descriptor
 * opened with O_APPEND, then fdatasync(2).  A write that comes back short (full disk, quota, file-size limit) is
 * undone with ftruncate(2): the next process finds a clean file.  The lock (flock) is held as long as the writer
 * lives, because two loops that append to one episode would interleave two histories; it vanishes with the process,
 * so kill -9 leaves no stale lock, which a lock file would.
 *
 * Rejected: a journal beside the file, or SQLite.  A reader in any language takes one line at a time, and an episode
 * of 200 turns costs 200 syncs, which is little compared with 200 verdicts.
 */
#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "base/time.h"
#include "episode/line.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "episode/episode.h"
#include "episode/view.h"

enum { LINE_MAX_BYTES = 256 << 20 }; /* a message of a 131,072-token context with its tokens is far below */

struct ww_episode_writer {
	int fd;
	char *path;
	uint64_t opened_ns;
	double earlier_s;
};

double ww_episode_seconds(const struct ww_episode_writer *w) { return w->earlier_s + ww_seconds_since(w->opened_ns); }

void ww_episode_close(struct ww_episode_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	free(w->path);
	free(w);
}

/* ---- One line ---------------------------------------------------------------------------------------------------- */

static enum ww_rc write_line(struct ww_episode_writer *w, const struct ww_str *line, int sync, struct ww_err *err)
{
	struct stat st;
	if (fstat(w->fd, &st) < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot stat %s", w->path);
	if (ww_fd_write_all(w->fd, line->p, line->len) == 0 && (!sync || fdatasync(w->fd) == 0))
		return WW_OK;
	enum ww_rc rc = ww_err_errno(err, WW_ERR_IO, "cannot write %s", w->path);
	if (ftruncate(w->fd, st.st_size) < 0)
		ww_err_errno(err, rc, "cannot write %s, nor remove the cut line", w->path);
	return rc;
}

/* Takes `obj`.  Without `sync` the line reaches the disk with the next one that is synced. */
static enum ww_rc add_line(struct ww_episode_writer *w, json_t *obj, int sync, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(LINE_MAX_BYTES);
	if (!obj)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a line of %s", w->path);
	ww_json_add(&line, obj);
	ww_str_addc(&line, '\n');
	json_decref(obj);
	if (line.cut || line.len < 3)
		return ww_err_set(err, WW_ERR_LIMIT, "a line of %s would be longer than %d bytes", w->path, LINE_MAX_BYTES);
	return write_line(w, &line, sync, err);
}

static enum ww_rc add_object(struct ww_episode_writer *w, json_t *obj, struct ww_err *err)
{
	return add_line(w, obj, 1, err);
}

static json_t *new_line(const struct ww_episode_writer *w, const char *type, int turn)
{
	return json_pack(
		"{s:s, s:i, s:f}", "type", type, "turn", turn, "t", (double)(long long)(ww_episode_seconds(w) * 1e6) / 1e6);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static const double LOCK_S = 1;

/* A child of a killed writer may hold the lock for a moment. */
static int lock(int fd)
{
	uint64_t start = ww_now_ns();
	int status;
	while ((status = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && ww_seconds_since(start) < LOCK_S)
		usleep(10000);
	return status;
}

/* `path` names the writer in messages; the file that is opened may still have a temporary name. */
static enum ww_rc open_writer(
	const char *path, const char *file, int flags, struct ww_episode_writer **out, struct ww_err *err)
{
	struct ww_episode_writer *w = calloc(1, sizeof(*w));
	if (!w || !(w->path = strdup(path))) {
		free(w);
		return ww_nomem(err);
	}
	w->opened_ns = ww_now_ns();
	enum ww_rc rc = ww_fs_open_own(&w->fd, file, O_RDWR | O_APPEND | flags, err);
	if (rc == WW_OK && lock(w->fd) < 0)
		rc = ww_err_set(
			err, WW_ERR_USAGE, "%s is being written by another process; wait for it, or choose another -o", path);
	if (rc != WW_OK) {
		ww_episode_close(w);
		return rc;
	}
	*out = w;
	return WW_OK;
}

/* A new name is only durable once its directory is. */
static void sync_directory_of(const char *path)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof(copy), "%s", path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!fsync(fd);
		close(fd);
	}
}

/* The header goes into a file of another name, which is renamed only when it is whole on the disk: an episode without a
 * header never exists. */
static enum ww_rc publish(const struct ww_episode_writer *w, const char *tmp, struct ww_err *err)
{
	if (renameat2(AT_FDCWD, tmp, AT_FDCWD, w->path, RENAME_NOREPLACE) == 0)
		return WW_OK;
	if (errno == EINVAL && access(w->path, F_OK) < 0 && rename(tmp, w->path) == 0)
		return WW_OK;
	return ww_err_errno(err, errno == EEXIST ? WW_ERR_USAGE : WW_ERR_IO, "cannot create %s", w->path);
}

int ww_episode_create(
	const char *path, const struct ww_episode_header *h, struct ww_episode_writer **out, struct ww_err *err)
{
	struct ww_episode_writer *w;
	ww_auto_str tmp = WW_STR_INIT(PATH_MAX);
	ww_str_addf(&tmp, "%s.new-%d", path, (int)getpid());
	WW_CHECK(open_writer(path, tmp.p, O_CREAT | O_TRUNC, &w, err));
	json_t *o = json_pack(
		"{s:s, s:i, s:{s:s, s:s, s:s*}, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:I, s:s, s:O, s:s, s:O*, s:O*, s:O*}", "type",
		"header", "version", WW_EPISODE_VERSION, "task", "path", h->task_path, "id", h->task_id, "signature",
		*h->task_signature ? h->task_signature : NULL, "target", h->target, "device", h->device, "policy", h->policy,
		"form", h->form, "loop", h->loop, "prompt", h->prompt, "seed", (json_int_t)h->seed, "rule", h->rule, "versions",
		h->versions, "started", h->started, "command", h->command, "tools", h->tools, "limits", h->limits);
	enum ww_rc rc = add_object(w, o, err);
	if (rc == WW_OK)
		rc = publish(w, tmp.p, err);
	if (rc != WW_OK) {
		ww_episode_close(w);
		unlink(tmp.p);
		return rc;
	}
	sync_directory_of(path);
	*out = w;
	return WW_OK;
}

int ww_episode_append(const char *path, struct ww_episode *so_far, struct ww_episode_writer **out, struct ww_err *err)
{
	struct ww_episode_writer *w;
	enum ww_rc rc = open_writer(path, path, 0, &w, err);
	if (rc != WW_OK)
		return rc;
	rc = (enum ww_rc)ww_episode_read(path, so_far, err);
	if (rc == WW_OK && ftruncate(w->fd, so_far->whole_bytes) < 0)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot remove the cut last line of %s", path);
	if (rc != WW_OK) {
		ww_episode_close(w);
		return rc;
	}
	w->earlier_s = so_far->seconds;
	*out = w;
	return WW_OK;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static int add_calls(json_t *line, const struct ww_message *m)
{
	json_t *calls = json_array();
	for (size_t i = 0; i < m->n_calls; i++)
		json_array_append_new(calls,
			json_pack(
				"{s:s, s:s, s:s}", "id", m->calls[i].id, "name", m->calls[i].name, "arguments", m->calls[i].arguments));
	if (json_array_size(calls) != m->n_calls) {
		json_decref(calls);
		return 0;
	}
	return json_object_set_new(line, "calls", calls) == 0;
}

static int add_assistant(json_t *line, const struct ww_reply *r)
{
	const struct ww_message *m = &r->message;
	if (!add_calls(line, m))
		return 0;
	if (m->reasoning && json_object_set_new(line, "reasoning", json_string(m->reasoning)) < 0)
		return 0;
	if (m->native && json_object_set_new(line, "native", json_loads(m->native, 0, NULL)) < 0)
		return 0;
	json_object_set_new(line, "finish", json_string(ww_episode_finish_name(r->finish)));
	if (r->prompt_tokens || r->completion_tokens)
		json_object_set_new(line, "usage",
			json_pack("{s:I, s:I}", "prompt_tokens", (json_int_t)r->prompt_tokens, "completion_tokens",
				(json_int_t)r->completion_tokens));
	if (r->usd != 0)
		json_object_set_new(line, "usd", ww_json_real(r->usd));
	if (r->n_tokens && r->token_ids)
		json_object_set_new(line, "tokens", ww_episode_tokens(r));
	return 1;
}

static enum ww_rc add_tool(json_t *line, const struct ww_message *m, struct ww_err *err)
{
	json_object_set_new(line, "call_id", json_string(m->call_id ? m->call_id : ""));
	json_object_set_new(line, "tool", json_string(m->tool ? m->tool : ""));
	json_object_set_new(line, "is_error", json_boolean(m->is_error));
	if (!m->data)
		return WW_OK;
	json_t *data;
	WW_CHECK(ww_json_parse(m->data, strlen(m->data), "a tool's result", &data, err));
	json_object_set_new(line, "data", data);
	return WW_OK;
}

int ww_episode_add_message(struct ww_episode_writer *w, int turn, const struct ww_reply *r, struct ww_err *err)
{
	const struct ww_message *m = &r->message;
	json_t *line = new_line(w, "message", turn), *text = json_string(m->text);
	if (!line || !text) {
		json_decref(line);
		json_decref(text);
		return ww_err_set(err, WW_ERR_PROTOCOL, "a message of role %s is not valid UTF-8", ww_role_name(m->role));
	}
	json_object_set_new(line, "role", json_string(ww_role_name(m->role)));
	json_object_set_new(line, "text", text);
	enum ww_rc rc = WW_OK;
	if (m->role == WW_ROLE_ASSISTANT && !add_assistant(line, r))
		rc = ww_err_set(err, WW_ERR_PROTOCOL, "a tool call of turn %d is not valid UTF-8", turn);
	if (m->role == WW_ROLE_TOOL)
		rc = add_tool(line, m, err);
	if (rc != WW_OK) {
		json_decref(line);
		return rc;
	}
	return add_object(w, line, err);
}

int ww_episode_add_solution(struct ww_episode_writer *w, int turn, const char *id, const struct ww_episode_file *files,
	size_t n_files, struct ww_err *err)
{
	json_t *line = new_line(w, "solution", turn), *o = json_object();
	json_object_set_new(line, "id", json_string(id));
	for (size_t i = 0; i < n_files; i++) {
		if (json_object_set_new(o, files[i].path, json_string(files[i].text)) < 0) {
			json_decref(o);
			json_decref(line);
			return ww_err_set(err, WW_ERR_PROTOCOL, "%s is not valid UTF-8", files[i].path);
		}
	}
	json_object_set_new(line, "files", o);
	return add_line(w, line, 0, err);
}

int ww_episode_add_verdict(struct ww_episode_writer *w, int turn, const char *call_id, const char *solution_id,
	const char *depth, json_t *verdict, struct ww_err *err)
{
	json_t *line = new_line(w, "verdict", turn);
	json_object_update_new(line,
		json_pack(
			"{s:s, s:s, s:s, s:O}", "call_id", call_id, "solution", solution_id, "depth", depth, "verdict", verdict));
	return add_object(w, line, err);
}

int ww_episode_add_lost(struct ww_episode_writer *w, int turn, const struct ww_episode_lost *l, struct ww_err *err)
{
	json_t *line = new_line(w, "lost", turn);
	json_object_set_new(line, "usd", ww_json_real(l->usd));
	json_object_set_new(line, "prompt_tokens", json_integer(l->prompt_tokens));
	json_object_set_new(line, "completion_tokens", json_integer(l->completion_tokens));
	json_object_set_new(line, "why", json_string(l->why));
	return add_object(w, line, err);
}

int ww_episode_add_compaction(
	struct ww_episode_writer *w, int turn, const struct ww_episode_compaction *c, struct ww_err *err)
{
	json_t *line = new_line(w, "compaction", turn), *ids = json_array();
	for (size_t i = 0; i < c->n_calls; i++)
		json_array_append_new(ids, json_string(c->call_ids[i]));
	json_object_set_new(line, "call_ids", ids);
	json_object_set_new(line, "bytes", json_integer(c->bytes));
	return add_object(w, line, err);
}

int ww_episode_add_end(struct ww_episode_writer *w, int turn, const struct ww_episode_end *end, struct ww_err *err)
{
	json_t *line = new_line(w, "end", turn);
	json_object_update_new(line,
		json_pack("{s:s, s:o, s:o, s:s, s:o}", "reason", end->reason, "reward_final", ww_json_real(end->reward_final),
			"reward_best", ww_json_real(end->reward_best), "best", end->best, "seconds", ww_json_real(end->seconds)));
	return add_object(w, line, err);
}
