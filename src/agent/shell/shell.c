/* shell.c - the episode's side of shell.h. */
#include "agent/shell/shell.h"
#include "agent/shell/calls.h"
#include "agent/shell/wire.h"

#include "base/fdpass.h"
#include "base/fs.h"
#include "base/time.h"
#include "sandbox/sandbox.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const double start_limit_s = 20, slack_s = 10;
static const uint64_t end_limit_ns = 5000000000;
/* The worker is killed above this, where its own limit on its processes has failed. */
static const uint64_t max_resident_bytes = UINT64_C(3) << 30;
static const uint64_t group_bytes = (uint64_t)(WW_SHELL_MEMORY_MIB + 256) << 20; /* their files are in memory too */

/* The state of a new shell. */
static const char first_state[] =
	"/workspace\0PATH=/usr/local/bin:/usr/bin:/bin\0HOME=/workspace\0TMPDIR=/workspace/.tmp\0"
	"LANG=C.UTF-8\0TERM=dumb";

void ww_shell_init(struct ww_shell *s)
{
	s->proc = (struct ww_proc)WW_PROC_INIT;
	s->control = s->pidfd = -1;
	s->tree = (struct ww_workspace){ .dirfd = -1 };
	s->last_id = 0;
	s->skill = NULL;
	s->on_call = NULL;
	s->interrupted = NULL;
	ww_str_init(&s->state, WW_SHELL_STATE_MAX);
	ww_str_add(&s->state, first_state, sizeof(first_state));
}

int ww_shell_is_open(const struct ww_shell *s) { return s->tree.dirfd >= 0; }

void ww_shell_stop(struct ww_shell *s)
{
	ww_pausable_remove(&s->pause);
	ww_proc_kill(&s->proc);
	ww_fd_close(&s->control);
	ww_fd_close(&s->pidfd);
	ww_fd_close(&s->tree.dirfd);
}

void ww_shell_close(struct ww_shell *s)
{
	ww_shell_stop(s);
	ww_str_release(&s->state);
}

/* The worker's first message: the descriptor, or why there is none. */
static enum ww_rc take_tree(struct ww_shell *s, struct ww_err *err)
{
	char line[256] = "";
	int got = 0;
	if (ww_fd_wait(s->proc.fd, POLLIN, ww_deadline_ns(start_limit_s), err) != WW_OK ||
		ww_fdpass_receive(s->proc.fd, line, sizeof(line), &s->tree.dirfd, 1, &got, 0) != (ssize_t)sizeof(line))
		return ww_err_set(err, WW_ERR_WORKER, "the shell's sandbox did not start");
	line[sizeof(line) - 1] = 0;
	return got ? WW_OK : ww_err_set(err, WW_ERR_MISSING, "%s", line);
}

static enum ww_rc take_part(struct ww_shell *s, struct ww_err *err)
{
	s->pidfd = (int)syscall(SYS_pidfd_open, s->proc.pid, 0);
	if (s->pidfd < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot watch the shell's sandbox");
	return ww_pausable_add(&s->pause, s->control, s->pidfd, err);
}

enum ww_rc ww_shell_open(struct ww_shell *s, enum ww_target target, struct ww_err *err)
{
	static const char *const with_skill[] = { "skill", NULL };
	int pair[2], fds[] = { -1, s->skill ? s->skill->pack_fd : -1 }, n_fds = fds[1] >= 0 ? 2 : 1;
	struct ww_proc_opts o = { .worker = "shell",
		.namespaces = 1,
		.nobody = 1,
		.memory_bytes = group_bytes,
		.err_mode = WW_STDERR_NULL,
		.args = n_fds > 1 ? with_skill : NULL,
		.extra_fds = fds,
		.n_extra_fds = n_fds };
	enum ww_rc rc;
	if (ww_sandbox_probe() != WW_SANDBOX_NAMESPACES)
		return ww_err_set(err, WW_ERR_MISSING,
			"this system does not allow the namespaces that the shell's sandbox needs (see warpwright doctor)");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a channel for the shell");
	s->control = pair[0];
	fds[0] = pair[1];
	s->tree.target = target;
	WW_TRY(ww_proc_spawn(&s->proc, &o, err));
	WW_TRY(take_tree(s, err));
	rc = take_part(s, err);
out:
	ww_fd_close(&pair[1]);
	if (rc != WW_OK)
		ww_shell_stop(s);
	return rc;
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

/* Wait for a reply or for the deadline, which moves by the time for which the sandbox is stopped. */
static enum ww_rc wait_for_reply(struct ww_shell *s, uint64_t *deadline, struct ww_err *err)
{
	struct pollfd pf = { s->proc.fd, POLLIN, 0 };
	uint64_t before = ww_pausable_stopped_ns(&s->pause);
	while (poll(&pf, 1, 50) == 0 && ww_now_ns() < *deadline + ww_pausable_stopped_ns(&s->pause) - before)
		if (s->interrupted && *s->interrupted)
			return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	*deadline += ww_pausable_stopped_ns(&s->pause) - before;
	return WW_OK;
}

static enum ww_rc take_head(struct ww_shell *s, uint64_t *deadline, struct ww_shell_reply *r, struct ww_err *err)
{
	WW_CHECK(wait_for_reply(s, deadline, err));
	WW_CHECK(ww_proc_read(&s->proc, r, sizeof(*r), *deadline, max_resident_bytes, err));
	if (r->n_out > (r->call ? WW_SHELL_CALL_MAX - 1 : WW_SHELL_OUT_MAX) || r->n_state > WW_SHELL_STATE_MAX ||
		r->total < r->n_out)
		return ww_err_set(err, WW_ERR_WORKER, "the shell's sandbox sent a malformed answer");
	return WW_OK;
}

static enum ww_rc answer_call(struct ww_shell *s, size_t n, uint64_t deadline, struct ww_err *err)
{
	char words[WW_SHELL_CALL_MAX] = "";
	ww_auto_str text = WW_STR_INIT(WW_SHELL_CALL_TEXT_MAX);
	unsigned code = 3;
	WW_CHECK(ww_proc_read(&s->proc, words, n, deadline, max_resident_bytes, err));
	if (s->on_call)
		WW_CHECK(s->on_call(s->on_call_ctx, words, &text, &code, err));
	struct ww_shell_ask q = { WW_SHELL_ANSWER, code, 0, (uint32_t)text.len };
	deadline = ww_deadline_ns(slack_s);
	WW_CHECK(ww_fd_write(s->proc.fd, &q, sizeof(q), deadline, err));
	return ww_fd_write(s->proc.fd, text.p, text.len, deadline, err);
}

static enum ww_rc take_reply(struct ww_shell *s, uint64_t deadline, struct ww_shell_answer *a, struct ww_err *err)
{
	struct ww_shell_reply r;
	for (;;) {
		WW_CHECK(take_head(s, &deadline, &r, err));
		if (!r.call)
			break;
		uint64_t start = ww_now_ns();
		WW_CHECK(answer_call(s, r.n_out, deadline, err));
		deadline += ww_now_ns() - start;
	}
	ww_auto_free char *bytes = malloc(r.n_out + r.n_state + 1);
	if (!bytes)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a command's output");
	WW_CHECK(ww_proc_read(&s->proc, bytes, r.n_out + r.n_state, deadline, max_resident_bytes, err));
	a->exists = r.exists != 0, a->running = r.running != 0, a->timed_out = r.timed_out != 0;
	a->status = r.status, a->total = r.total;
	a->used_bytes = r.used_bytes, a->most_bytes = r.most_bytes;
	for (size_t i = 0; i + 1 < sizeof(a->most) && r.most[i]; i++)
		a->most[i] = r.most[i] > ' ' && r.most[i] <= '~' ? r.most[i] : '?';
	size_t head = r.total > r.n_out ? r.n_out / 2 : r.n_out;
	ww_str_add(&a->out, bytes, head);
	if (head < r.n_out) {
		ww_str_addf(&a->out, "\n[... %llu bytes cut ...]\n", (unsigned long long)(r.total - r.n_out));
		ww_str_add(&a->out, bytes + head, r.n_out - head);
	}
	if (r.n_state && bytes[r.n_out] == '/' && !bytes[r.n_out + r.n_state - 1]) {
		ww_str_reset(&s->state);
		ww_str_add(&s->state, bytes + r.n_out, r.n_state);
	}
	return WW_OK;
}

/* How process 1 of the sandbox ended, if it did. */
static void add_end(struct ww_shell *s, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(128);
	struct ww_err ignored = WW_ERR_INIT;
	int status;
	if (ww_proc_wait(&s->proc, ww_now_ns() + end_limit_ns, &status, &ignored) == WW_OK) {
		ww_proc_status_text(status, &text);
		ww_err_wrap(err, "process 1 of its sandbox: %s", text.p);
	}
}

static enum ww_rc ask(struct ww_shell *s, enum ww_shell_op op, unsigned id, const struct ww_str *text, double timeout_s,
	struct ww_shell_answer *a, struct ww_err *err)
{
	uint64_t deadline = ww_deadline_ns(timeout_s + slack_s);
	enum ww_rc rc;
	memset(a, 0, sizeof(*a));
	ww_str_init(&a->out, WW_SHELL_OUT_MAX + 256);
	struct ww_shell_ask q = { op, id, (uint32_t)(timeout_s * 1000), text ? (uint32_t)text->len : 0 };
	WW_TRY(ww_fd_write(s->proc.fd, &q, sizeof(q), deadline, err));
	if (text)
		WW_TRY(ww_fd_write(s->proc.fd, text->p, text->len, deadline, err));
	WW_TRY(take_reply(s, deadline, a, err));
out:
	if (rc == WW_ERR_WORKER || rc == WW_ERR_IO)
		add_end(s, err);
	if (rc != WW_OK)
		ww_shell_stop(s);
	return rc;
}

static enum ww_rc ask_command(struct ww_shell *s, enum ww_shell_op op, const char *command, double timeout_s,
	struct ww_shell_answer *a, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_SHELL_COMMAND_MAX + WW_SHELL_STATE_MAX);
	ww_str_add(&text, command, strlen(command) + 1);
	ww_str_add(&text, s->state.p, s->state.len);
	return ask(s, op, ++s->last_id, &text, timeout_s, a, err);
}

enum ww_rc ww_shell_run(
	struct ww_shell *s, const char *command, double timeout_s, struct ww_shell_answer *a, struct ww_err *err)
{
	return ask_command(s, WW_SHELL_RUN, command, timeout_s, a, err);
}

enum ww_rc ww_shell_start(struct ww_shell *s, const char *command, struct ww_shell_answer *a, struct ww_err *err)
{
	return ask_command(s, WW_SHELL_START, command, 0, a, err);
}

enum ww_rc ww_shell_look(struct ww_shell *s, unsigned id, struct ww_shell_answer *a, struct ww_err *err)
{
	return ask(s, WW_SHELL_LOOK, id, NULL, 0, a, err);
}

enum ww_rc ww_shell_kill(struct ww_shell *s, unsigned id, struct ww_shell_answer *a, struct ww_err *err)
{
	return ask(s, WW_SHELL_KILL, id, NULL, 0, a, err);
}

enum ww_rc ww_shell_put(
	struct ww_shell *s, const char *path, const char *text, size_t n, struct ww_str *why, struct ww_err *err)
{
	ww_auto_str both = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES + WW_WORKSPACE_PATH_BYTES + 1);
	WW_AUTO(ww_shell_answer_release) struct ww_shell_answer a;
	ww_str_add(&both, path, strlen(path) + 1);
	ww_str_add(&both, text, n);
	WW_CHECK(ask(s, WW_SHELL_PUT, 0, &both, 0, &a, err));
	ww_str_adds(why, a.out.p);
	return WW_OK;
}

void ww_shell_answer_release(struct ww_shell_answer *a) { ww_str_release(&a->out); }
