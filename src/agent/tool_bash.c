/* tool_bash.c - bash, bash_output, kill_bash: commands in the episode's sandbox, and their changes of the workspace.
 *
 * Two trees hold the same files: the workspace, which the judge, the file tools and the user see, and the one in memory
 * that commands see.  A tool that writes a file writes both; after each call of the three tools here, the changes of
 * the second are copied to the first, by content and under the workspace's limits.  So no command can reach the
 * workspace itself, and a full or hostile tree harms the sandbox only.
 *
 * What a call changed, and the directory and variables that it ended with, are its answer's data.  The state of an
 * episode thus remains a function of its lines: a resumed one applies the data of the calls that were answered, a call
 * whose answer was not recorded has left nothing, and the next command starts a shell from that state.
 *
 * Rejected: a snapshot beside the record (the two can differ after a kill), and binding the workspace into the sandbox
 * (its limits would be those of the user's disk).
 */
#include "agent/tool_bash.h"
#include "agent/tool_call.h"

#include "base/json.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { TIMEOUT_S = 120 };

/* ---- The two trees ----------------------------------------------------------------------------------------------- */

void ww_tool_bash_put(
	struct ww_tool_env *env, const char *path, const char *text, size_t n, struct ww_str *refused, struct ww_str *note)
{
	struct ww_err err = WW_ERR_INIT;
	if (env->shell && ww_shell_is_open(env->shell) && ww_shell_put(env->shell, path, text, n, refused, &err) != WW_OK)
		ww_str_addf(
			note, "\n[the shell broke (%s); the next command starts a new one with the workspace's files]", err.msg);
}

/* Text as itself, other bytes as {"hex"}. */
static json_t *content_json(const struct ww_str *s)
{
	static const char digits[] = "0123456789abcdef";
	json_t *text = memchr(s->p, 0, s->len) ? NULL : json_stringn(s->p, s->len);
	ww_auto_str hex = WW_STR_INIT(2 * WW_WORKSPACE_FILE_BYTES);
	if (text)
		return text;
	for (size_t i = 0; i < s->len; i++) {
		ww_str_addc(&hex, digits[(unsigned char)s->p[i] >> 4]);
		ww_str_addc(&hex, digits[s->p[i] & 15]);
	}
	return json_pack("{s:s}", "hex", hex.p);
}

static void content_of_json(const json_t *j, struct ww_str *out)
{
	static const char digits[] = "0123456789abcdef";
	const char *hex = ww_json_str(j, "hex", "");
	if (json_is_string(j))
		ww_str_add(out, json_string_value(j), json_string_length(j));
	for (; hex[0] && hex[1]; hex += 2) {
		const char *hi = strchr(digits, hex[0]), *lo = strchr(digits, hex[1]);
		ww_str_addc(out, (char)((hi ? hi - digits : 0) << 4 | (lo ? lo - digits : 0)));
	}
}

struct sync {
	struct ww_tool_env *env;
	json_t *files; /* path: content, or null where it is gone */
	struct ww_str shell_file, file, why;
	struct ww_str left_out; /* paths that the workspace did not take */
};

static enum ww_rc read_both(struct sync *s, const char *path, int *in_shell, int *in_workspace, struct ww_err *err)
{
	ww_str_reset(&s->shell_file), ww_str_reset(&s->file), ww_str_reset(&s->why);
	s->shell_file.cut = s->file.cut = 0;
	WW_CHECK(ww_workspace_read(&s->env->shell->tree, path, &s->shell_file, in_shell, &s->why, err));
	return ww_workspace_read(s->env->workspace, path, &s->file, in_workspace, &s->why, err);
}

static enum ww_rc bring_one(struct sync *s, const char *path, struct ww_err *err)
{
	int in_shell, in_workspace;
	WW_CHECK(read_both(s, path, &in_shell, &in_workspace, err));
	if (in_shell && in_workspace && s->shell_file.len == s->file.len &&
		!memcmp(s->shell_file.p, s->file.p, s->file.len))
		return WW_OK;
	ww_str_reset(&s->why);
	if (in_shell)
		WW_CHECK(ww_workspace_write(s->env->workspace, path, s->shell_file.p, s->shell_file.len, &s->why, err));
	else if (in_workspace)
		WW_CHECK(ww_workspace_remove(s->env->workspace, path, err));
	if (!in_shell || s->why.len)
		ww_str_addf(&s->left_out, "%s%s", s->left_out.len ? ", " : "", path);
	if ((in_shell || in_workspace) && !s->why.len)
		json_object_set_new(s->files, path, in_shell ? content_json(&s->shell_file) : json_null());
	return WW_OK;
}

static enum ww_rc bring_listed(struct sync *s, const struct ww_workspace_list *l, struct ww_err *err)
{
	for (size_t i = 0; i < l->n; i++)
		if (!l->entries[i].is_dir)
			WW_CHECK(bring_one(s, l->entries[i].path, err));
	return WW_OK;
}

/* Files that commands removed are removed first, which makes room for new ones. */
static enum ww_rc bring_all(struct sync *s, struct ww_err *err)
{
	WW_AUTO(ww_workspace_list_release) struct ww_workspace_list in_shell = { 0 }, in_workspace = { 0 };
	WW_CHECK(ww_workspace_list(s->env->workspace, &in_workspace, err));
	WW_CHECK(ww_workspace_list(&s->env->shell->tree, &in_shell, err));
	WW_CHECK(bring_listed(s, &in_workspace, err));
	ww_str_reset(&s->left_out);
	return bring_listed(s, &in_shell, err);
}

/* Directory and variables, as a list of strings; one that is not text is left out. */
static json_t *state_json(const struct ww_str *state)
{
	json_t *list = json_array();
	for (size_t at = 0; at < state->len; at += strlen(state->p + at) + 1) {
		json_t *one = json_string(state->p + at);
		if (one)
			json_array_append_new(list, one);
	}
	return list;
}

static enum ww_rc record(
	struct ww_tool_env *env, const struct ww_tool_calls *calls, struct ww_tool_result *r, struct ww_err *err)
{
	struct sync s = { .env = env, .files = json_object() };
	ww_str_init(&s.shell_file, WW_WORKSPACE_FILE_BYTES);
	ww_str_init(&s.file, WW_WORKSPACE_FILE_BYTES);
	ww_str_init(&s.why, 512);
	ww_str_init(&s.left_out, 512);
	enum ww_rc rc = bring_all(&s, err);
	if (rc == WW_OK && s.left_out.len)
		ww_str_addf(&r->text, "\n[the shell alone has, beyond the limits of the workspace: %s]", s.left_out.p);
	if (rc == WW_OK)
		r->data = json_pack("{s:o, s:i, s:O}", "state", state_json(&env->shell->state), "jobs",
			(int)env->shell->last_id, "files", s.files);
	if (rc == WW_OK && calls->list)
		json_object_set(r->data, "calls", calls->list);
	json_decref(s.files);
	ww_str_release(&s.shell_file);
	ww_str_release(&s.file);
	ww_str_release(&s.why);
	ww_str_release(&s.left_out);
	return rc;
}

static enum ww_rc redo_files(struct ww_tool_env *env, json_t *files, int gone, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES), why = WW_STR_INIT(512);
	enum ww_rc rc = WW_OK;
	const char *path;
	json_t *v;
	json_object_foreach(files, path, v) {
		if (json_is_null(v) != gone || !ww_workspace_is_path(path, &why))
			continue;
		ww_str_reset(&text);
		content_of_json(v, &text);
		rc = gone ? ww_workspace_remove(env->workspace, path, err)
				  : ww_workspace_write(env->workspace, path, text.p, text.len, &why, err);
		if (rc != WW_OK)
			break;
	}
	return rc;
}

static enum ww_rc bash_redo(struct ww_tool_env *env, const json_t *data, struct ww_err *err)
{
	json_t *files = json_object_get(data, "files"), *state = json_object_get(data, "state"), *one;
	size_t i;
	enum ww_rc rc = redo_files(env, files, 1, err);
	if (rc == WW_OK)
		rc = redo_files(env, files, 0, err);
	if (rc == WW_OK && env->shell)
		env->shell->last_id = (unsigned)ww_json_int(data, "jobs", 0);
	if (rc == WW_OK && env->shell && json_array_size(state)) {
		ww_str_reset(&env->shell->state);
		json_array_foreach(state, i, one)
			ww_str_add(&env->shell->state, json_string_value(one), json_string_length(one) + 1);
	}
	return rc;
}

/* ---- The tools --------------------------------------------------------------------------------------------------- */

/* The shell, with the workspace's files in it. */
static enum ww_rc open_shell(struct ww_tool_env *env, struct ww_err *err)
{
	WW_AUTO(ww_workspace_list_release) struct ww_workspace_list l = { 0 };
	ww_auto_str text = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES), why = WW_STR_INIT(512);
	int found;
	enum ww_rc rc = WW_OK;
	if (!env->shell)
		return ww_err_set(err, WW_ERR_MISSING, "there is no shell here");
	if (ww_shell_is_open(env->shell))
		return WW_OK;
	WW_TRY(ww_shell_open(env->shell, env->workspace->target, err));
	WW_TRY(ww_workspace_list(env->workspace, &l, err));
	for (size_t i = 0; i < l.n; i++) {
		if (l.entries[i].is_dir)
			continue;
		ww_str_reset(&text);
		WW_TRY(ww_workspace_read(env->workspace, l.entries[i].path, &text, &found, &why, err));
		if (found)
			WW_TRY(ww_shell_put(env->shell, l.entries[i].path, text.p, text.len, &why, err));
		if (why.len)
			WW_TRY(ww_err_set(err, WW_ERR_WORKER, "it did not take the workspace's %s", why.p));
	}
out:
	if (rc != WW_OK)
		ww_shell_stop(env->shell);
	return rc;
}

/* The command itself, or the last program that its bash waited for. */
static int ended_by(int status, int signal)
{
	return WIFSIGNALED(status) ? WTERMSIG(status) == signal : WEXITSTATUS(status) == 128 + signal;
}

static void describe(const struct ww_shell_answer *a, unsigned job, double timeout_s, struct ww_tool_result *r)
{
	ww_str_add_bounded(&r->text, a->out.p, a->out.len, WW_TOOL_TEXT_MAX_BYTES - 1024);
	if (r->text.len && r->text.p[r->text.len - 1] != '\n')
		ww_str_addc(&r->text, '\n');
	if (!a->exists)
		ww_str_adds(&r->text, "[no such job: it has ended and was reported, or the shell was started anew]");
	else if (a->running)
		ww_str_addf(&r->text, "[job %u runs]", job);
	else if (a->timed_out)
		ww_str_addf(&r->text, "[killed after %g seconds]", timeout_s);
	else if (a->total >= WW_SHELL_FILE_BYTES)
		ww_str_addf(&r->text, "[stopped: more output than the limit of %d MiB]", WW_SHELL_FILE_BYTES >> 20);
	else if (ended_by(a->status, SIGXFSZ))
		ww_str_addf(&r->text, "[stopped: a file beyond the limit of %d MiB]", WW_SHELL_FILE_BYTES >> 20);
	else if (a->used_bytes)
		ww_str_addf(&r->text,
			"[killed: all processes of the shell used %llu MiB of memory, %s most (%llu MiB); the limit is %d MiB]",
			a->used_bytes >> 20, a->most, a->most_bytes >> 20, WW_SHELL_MEMORY_MIB);
	else if (WIFSIGNALED(a->status))
		ww_str_addf(&r->text, "[killed by signal %d]", WTERMSIG(a->status));
	else
		ww_str_addf(&r->text, "[exit code %d]", WEXITSTATUS(a->status));
}

/* One call of a shell tool: open the shell, send the command, report the result.  A shell that cannot be opened, or
 * breaks, is an answer: the next command begins a new one with the recorded state.  A failure inside a tool that a
 * command calls is an error. */
struct work {
	struct ww_tool_env *env;
	struct ww_tool_calls calls;
	enum ww_rc call_rc;
	struct ww_shell_answer a;
};

static enum ww_rc called(void *ctx, const char *words, struct ww_str *text, unsigned *code, struct ww_err *err)
{
	struct work *w = ctx;
	return w->call_rc = ww_tool_call_run(&w->calls, words, text, code, err);
}

static enum ww_rc begin(struct work *w, struct ww_tool_env *env, struct ww_err *err)
{
	*w = (struct work){ .env = env, .calls = { .env = env } };
	ww_str_init(&w->a.out, 0);
	enum ww_rc rc = open_shell(env, err);
	if (rc == WW_OK) {
		env->shell->on_call = called;
		env->shell->on_call_ctx = w;
	}
	return rc;
}

static void end(struct work *w)
{
	if (w->env->shell)
		w->env->shell->on_call = NULL;
	json_decref(w->calls.list);
	ww_shell_answer_release(&w->a);
}

static enum ww_rc answer(
	struct work *w, enum ww_rc rc, double timeout_s, unsigned job, struct ww_tool_result *r, struct ww_err *err)
{
	if (rc == WW_OK) {
		describe(&w->a, job, timeout_s, r);
		return record(w->env, &w->calls, r, err);
	}
	if (rc == WW_ERR_NOMEM || rc == WW_ERR_INTERRUPTED || w->call_rc != WW_OK)
		return rc;
	ww_str_addf(&r->text,
		rc == WW_ERR_MISSING
			? "the shell is not available: %s"
			: "the shell broke: %s; what this command did is undone, and the next one starts a new shell",
		err->msg);
	r->is_error = 1;
	if (w->calls.list)
		r->data = json_pack("{s:O}", "calls", w->calls.list);
	*err = (struct ww_err)WW_ERR_INIT;
	return WW_OK;
}

static enum ww_rc bash_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *command = ww_json_str(args, "command", "");
	int64_t timeout_s = ww_json_int(args, "timeout", TIMEOUT_S);
	int background = ww_json_bool(args, "background", 0);
	struct work w;
	enum ww_rc rc = begin(&w, env, err);
	if (rc == WW_OK)
		rc = background ? ww_shell_start(env->shell, command, &w.a, err)
						: ww_shell_run(env->shell, command, (double)timeout_s, &w.a, err);
	if (rc == WW_OK && !w.a.exists) {
		ww_str_adds(&r->text, "there are too many jobs; look at those that have ended, or kill one");
		r->is_error = 1;
		goto out;
	}
	rc = answer(&w, rc, (double)timeout_s, env->shell ? env->shell->last_id : 0, r, err);
out:
	end(&w);
	return rc;
}

const struct ww_tool ww_tool_bash = {
	{ "bash",
		"Run a command in the workspace (bash, compilers, the usual programs; no network, no device, "
		"nothing of the judge's). "
		"Directory and exported variables stay for the next one. verify, profile, "
		"compile and inspect are commands there too (-h).",
		"{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"maxLength\":60000,\"description\":"
		"\"the command\"},\"timeout\":{"
		"\"type\":\"integer\",\"minimum\":1,\"maximum\":600,\"description\":\"seconds, 1 to 600; "
		"default 120\"},\"background\":{\"type\":\"boolean\","
		"\"description\":\"true: start it as a job and do not wait; default false\"}},\"required\":[\"command\"],"
		"\"additionalProperties\":false}" },
	.run = bash_run, .redo = bash_redo
};

static enum ww_rc job_run(
	struct ww_tool_env *env, const json_t *args, int is_kill, struct ww_tool_result *r, struct ww_err *err)
{
	int64_t job = ww_json_int(args, "job", 0);
	struct work w;
	enum ww_rc rc = begin(&w, env, err);
	if (rc == WW_OK)
		rc = is_kill ? ww_shell_kill(env->shell, (unsigned)job, &w.a, err)
					 : ww_shell_look(env->shell, (unsigned)job, &w.a, err);
	rc = answer(&w, rc, 0, (unsigned)job, r, err);
	end(&w);
	return rc;
}

static enum ww_rc output_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	return job_run(env, args, 0, r, err);
}

static enum ww_rc kill_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	return job_run(env, args, 1, r, err);
}

#define JOB_SCHEMA                                                                                                     \
	"{\"type\":\"object\",\"properties\":{\"job\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":2147483647,\"description\":\"the number that bash gave\"}},"                   \
	"\"required\":[\"job\"],\"additionalProperties\":false}"

const struct ww_tool ww_tool_bash_output = {
	{ "bash_output", "What a job that bash started has written so far, and whether it still runs.", JOB_SCHEMA },
	.run = output_run, .redo = bash_redo
};

const struct ww_tool ww_tool_kill_bash = { { "kill_bash", "Kill a job that bash started; what it wrote.", JOB_SCHEMA },
	.run = kill_run, .redo = bash_redo };
