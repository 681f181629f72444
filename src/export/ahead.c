/* ahead.c - Python processes that import PyTorch before they are needed, and the protocol with them.
 *
 * Importing PyTorch takes 2 to 5 s of one processor, without the device.  A closing judgement needs a Python of its own
 * (the exported call, confined), and so do the checks of exports.  A caller that knows early that it will need them
 * starts both; they wait for a line on standard input while other solutions are measured.  One that has died meanwhile
 * is replaced. */
#include "export/parts.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/time.h"
#include "export/embed.h"
#include "task/bytecode.h"
#include "task/ref.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 600 };

/* ---- One process ------------------------------------------------------------------------------------------------- */

static void child_exec(char *const *argv, const char *dir, int in, int out)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	if (chdir(dir) < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	/* what is imported here must not leave __pycache__ in an export */
	setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
	execv(argv[0], argv);
	_exit(127);
}

static enum ww_rc spawn(struct ww_export_python *p, char *const *argv, const char *dir, struct ww_err *err)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 };
	enum ww_rc rc = WW_OK;
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "pipe");
	pid_t pid = rc == WW_OK ? fork() : -1;
	if (pid == 0)
		child_exec(argv, dir, in[0], out[1]);
	if (rc == WW_OK && pid < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "fork");
	ww_fd_close(&in[0]);
	ww_fd_close(&out[1]);
	p->pid = pid > 0 ? pid : 0;
	p->in = in[1];
	p->out = out[0];
	return rc;
}

static enum ww_rc start(struct ww_export_python *p, enum ww_export_use use, struct ww_err *err)
{
	enum { PYTHON_AT = 7, MOST = 16 };
	char self[PATH_MAX], python[PATH_MAX], private[PATH_MAX], code[PATH_MAX], option[PATH_MAX + 32];
	char *all = (char *)ww_embedded_find("src/export/templates/run_all.py")->bytes;
	char *one = (char *)ww_embedded_find("src/export/templates/run_one.py")->bytes;
	char *argv[MOST] = { self, "__confined", private, p->dir.path, code, "cuda", "0", python, "-s", "-X",
		WW_JUDGE_EXPORTED };
	int n = PYTHON_AT + 4;
	*p = (struct ww_export_python)WW_EXPORT_PYTHON_NONE;
	WW_CHECK(ww_ref_find_python(python, err));
	ww_bytecode_dir(python, code);
	n += ww_bytecode_args(code, (const char **)&argv[n], option);
	argv[n] = "-c";
	argv[n + 1] = use == WW_EXPORT_CHECKS ? all : one;
	if (use == WW_EXPORT_CHECKS) /* -c puts the working directory on the path: no task's file may lie there */
		return spawn(p, argv + PYTHON_AT, "/", err);
	WW_CHECK(ww_fs_program(self, err));
	WW_CHECK(ww_tmpdir_new(&p->dir, "call", err));
	WW_CHECK(ww_fs_join(private, p->dir.path, "private", err));
	WW_CHECK(ww_fs_mkdirs(private, err));
	return spawn(p, argv, "/", err);
}

void ww_export_python_end(struct ww_export_python *p)
{
	if (p->pid) {
		kill(-p->pid, SIGKILL);
		kill(p->pid, SIGKILL);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	p->pid = 0;
	ww_fd_close(&p->in);
	ww_fd_close(&p->out);
	ww_tmpdir_remove(&p->dir);
}

/* ---- Ahead ------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ww_export_python spares[WW_EXPORT_USES] = { WW_EXPORT_PYTHON_NONE, WW_EXPORT_PYTHON_NONE };

void ww_export_ahead(int checks)
{
	struct ww_err ignored = WW_ERR_INIT; /* the caller that takes it starts another, and reports the error */
	WW_LOCKED(&lock);
	for (int use = 0; use < (checks ? WW_EXPORT_USES : WW_EXPORT_CHECKS); use++)
		if (!spares[use].pid && start(&spares[use], use, &ignored) != WW_OK)
			ww_export_python_end(&spares[use]);
}

void ww_export_ahead_end(void)
{
	WW_LOCKED(&lock);
	for (int use = 0; use < WW_EXPORT_USES; use++)
		ww_export_python_end(&spares[use]);
}

enum ww_rc ww_export_python_take(struct ww_export_python *p, enum ww_export_use use, struct ww_err *err)
{
	pthread_mutex_lock(&lock);
	*p = spares[use];
	spares[use] = (struct ww_export_python)WW_EXPORT_PYTHON_NONE;
	pthread_mutex_unlock(&lock);
	if (p->pid && kill(p->pid, 0) == 0 && waitpid(p->pid, NULL, WNOHANG) == 0)
		return WW_OK;
	p->pid = 0;
	ww_export_python_end(p);
	return start(p, use, err);
}

/* ---- Talking to it ----------------------------------------------------------------------------------------------- */

/* Whether the output so far ends with this line. */
static int ends_with(const struct ww_str *s, const char *line)
{
	size_t n = strlen(line);
	return s->len >= n && !memcmp(s->p + s->len - n, line, n) && (s->len == n || s->p[s->len - n - 1] == '\n');
}

/* Wait for the device, then let the program go on: its time limit is extended by the wait, its output so far dropped.
 */
static enum ww_rc begin_turn(
	const struct ww_judge_use *use, int in, struct ww_str *said, uint64_t *end, struct ww_err *err)
{
	uint64_t asked = ww_now_ns();
	ww_str_reset(said);
	enum ww_rc rc = use->take(use->ctx, err);
	*end += ww_now_ns() - asked;
	return rc == WW_OK ? ww_fd_write(in, "\n", 1, *end, err) : rc;
}

static void end_turn(const struct ww_judge_use *use, struct ww_str *said)
{
	ww_str_reset(said);
	use->rest(use->ctx);
}

/* Read the program's output until it ends, granting its turns; output before a turn is dropped. */
static enum ww_rc read_all(struct ww_export_python *p, const struct ww_judge_use *use, const volatile int *interrupted,
	struct ww_str *s, struct ww_err *err)
{
	uint64_t end = ww_deadline_ns(LIMIT_S);
	for (;;) {
		char byte;
		enum ww_rc rc = ww_fd_read(p->out, &byte, 1, ww_now_ns() + 200000000u, err);
		if (rc == WW_OK) {
			ww_str_addc(s, byte);
			if (use && ends_with(s, "ready\n"))
				rc = begin_turn(use, p->in, s, &end, err);
			else if (use && use->rest && ends_with(s, "rest\n"))
				end_turn(use, s);
		}
		if (rc == WW_OK || (rc == WW_ERR_TIMEOUT && ww_now_ns() < end && !(interrupted && *interrupted)))
			continue;
		if (rc == WW_ERR_WORKER)
			return WW_OK; /* end of file: it has ended */
		if (rc != WW_ERR_TIMEOUT)
			return rc;
		return interrupted && *interrupted ? ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted while checking an export")
										   : ww_err_set(err, rc, "the check of an export took more than %d s", LIMIT_S);
	}
}

void ww_export_python_tell(struct ww_export_python *p, const char *line)
{
	struct ww_err ended = WW_ERR_INIT; /* then its output says why */
	(void)!ww_fd_write(p->in, line, strlen(line), ww_deadline_ns(LIMIT_S), &ended);
}

enum ww_rc ww_export_python_finish(struct ww_export_python *p, const struct ww_judge_use *use,
	const volatile int *interrupted, struct ww_str *out, int *status, struct ww_err *err)
{
	*status = 0;
	WW_CHECK(read_all(p, use, interrupted, out, err));
	while (waitpid(p->pid, status, 0) < 0 && errno == EINTR)
		;
	p->pid = 0;
	return WW_OK;
}

/* The last line of what the check printed that is a JSON object. */
static json_t *last_report(struct ww_str *s)
{
	json_t *report = NULL;
	for (char *line = s->p; line && *line && !report;) {
		char *last = strrchr(line, '\n');
		char *text = last ? last + 1 : line;
		if (*text == '{')
			report = json_loads(text, 0, NULL);
		if (!last)
			break;
		*last = 0;
	}
	return report;
}

json_t *ww_export_report(struct ww_str *out, struct ww_str *tail)
{
	ww_str_add_bounded(tail, out->len > 400 ? out->p + out->len - 400 : out->p, out->len > 400 ? 400 : out->len, 400);
	return last_report(out);
}

/* The amount behind these words, in GiB: "1024.00 MiB"; 0 where they are not there. */
static double gib_behind(const char *text, const char *words)
{
	static const struct {
		const char *unit;
		double gib;
	} units[] = { { " GiB", 1 }, { " MiB", 1.0 / 1024 }, { " KiB", 1.0 / (1 << 20) } };
	const char *at = strstr(text, words);
	char *end;
	if (!at)
		return 0;
	double n = strtod(at + strlen(words), &end);
	for (size_t i = 0; i < WW_ARRAY_LEN(units); i++)
		if (n > 0 && !strncmp(end, units[i].unit, strlen(units[i].unit)))
			return n * units[i].gib;
	return 0;
}

int ww_export_lacks_memory(const char *why, double *gib)
{
	static const char *const said[] = { "out of memory", "OutOfMemoryError", "can't allocate memory",
		"CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED" };
	int lacks = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(said); i++)
		lacks |= strstr(why, said[i]) != NULL;
	*gib = lacks ? gib_behind(why, "Tried to allocate ") + gib_behind(why, "this process has ") : 0;
	return lacks;
}
