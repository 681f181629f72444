/* shell.h - a shell for a policy, in one sandbox per episode.
 *
 * The worker `warpwright __shell` lives in namespaces of its own (user, mount, pid, network, ipc, uts): an empty root,
 * the system's programs and libraries read-only, a few harmless devices, no /proc, no network, and /workspace, a file
 * system in memory with limits on bytes and entries.  A filter forbids sockets, tracing, mounts and hidden memory;
 * limits hold processes, memory, file sizes, processor and wall time.  Outside the sandbox its user has no rights.  It
 * inherits one descriptor, its channel, and none of its commands has that.  Namespaces are required: where the system
 * does not allow them, ww_shell_open() says so and there is no shell.
 *
 * The skill is read-only under /skill, to which /workspace/skill is a link.  `verify`, `profile`, `compile` and
 * `inspect` are commands (calls.h): their calls go to `on_call`, one at a time, while a command of the policy runs.
 *
 * While anything is measured on the machine, everything in the sandbox is stopped (host/pause.h).  Nothing there can
 * continue a stopped process: signals that do, and what sends signals by itself at a later time, are filtered out.
 *
 * A shell that persists is one bash process a command, which begins with the directory and the exported variables that
 * the one before it ended with.  That is all its state, it is in the record, and a shell that is started again after a
 * kill begins with it like any other command.
 */
#pragma once

#include "agent/skill.h"
#include "agent/workspace.h"
#include "base/err.h"
#include "base/str.h"
#include "host/pause.h"
#include "sandbox/proc.h"

enum {
	WW_SHELL_CALL_TEXT_MAX = 30 << 10,
	WW_SHELL_FILE_BYTES = 32 << 20, /* a file, a command's output */
	WW_SHELL_MEMORY_MIB = 1024      /* of all processes together, and address space of each */
};

struct ww_shell {
	struct ww_proc proc;
	struct ww_pausable pause;
	int control, pidfd;           /* pause's */
	struct ww_workspace tree;     /* /workspace as its processes see it; to read */
	struct ww_str state;          /* directory, exported variables: each with a NUL */
	unsigned last_id;             /* of jobs */
	const struct ww_skill *skill; /* what it shows; NULL: none.  Set before it is opened */
	/* Run a tool for a process in the sandbox.  `words` are separated by tabs and not trusted; *text gets what the
	 * command prints (at most WW_SHELL_CALL_TEXT_MAX bytes), *code its exit code.  An error return ends the command and
	 * the sandbox.  NULL: there are no tools. */
	enum ww_rc (*on_call)(void *ctx, const char *words, struct ww_str *text, unsigned *code, struct ww_err *err);
	void *on_call_ctx;
	const volatile int *interrupted; /* ends a wait with WW_ERR_INTERRUPTED and the sandbox with it; may be NULL */
};

struct ww_shell_answer {
	int exists; /* the job exists */
	int running, timed_out;
	int status;               /* as waitpid(2) has it, unless running */
	struct ww_str out;        /* bounded: head and tail */
	unsigned long long total; /* bytes of output */
	/* Memory of all processes when they were killed for it, 0 where they were not; of the largest, and its name. */
	unsigned long long used_bytes, most_bytes;
	char most[16];
};

void ww_shell_init(struct ww_shell *s);
int ww_shell_is_open(const struct ww_shell *s);
/* WW_ERR_MISSING where this system allows no such sandbox, or has no bash. */
enum ww_rc ww_shell_open(struct ww_shell *s, enum ww_target target, struct ww_err *err) WW_MUST_CHECK;
/* End its processes; `state` is kept for the next open. */
void ww_shell_stop(struct ww_shell *s);
void ww_shell_close(struct ww_shell *s);

/* Run a command to its end, at most timeout_s; calls of tools and pauses for measurements (host/pause.h) do not count.
 * Processes left in its process group are killed.  WW_ERR_LIMIT and WW_ERR_WORKER: the sandbox used too much memory or
 * broke, and is closed; the next open begins with `state`. */
enum ww_rc ww_shell_run(struct ww_shell *s, const char *command, double timeout_s, struct ww_shell_answer *a,
	struct ww_err *err) WW_MUST_CHECK;
/* Start a job that goes on; its number is s->last_id. */
enum ww_rc ww_shell_start(
	struct ww_shell *s, const char *command, struct ww_shell_answer *a, struct ww_err *err) WW_MUST_CHECK;
/* What a job wrote so far; a finished one is forgotten then. */
enum ww_rc ww_shell_look(struct ww_shell *s, unsigned id, struct ww_shell_answer *a, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_shell_kill(struct ww_shell *s, unsigned id, struct ww_shell_answer *a, struct ww_err *err) WW_MUST_CHECK;
/* Put a file into the tree; what does not fit is not put, and `why` says so. */
enum ww_rc ww_shell_put(struct ww_shell *s, const char *path, const char *text, size_t n, struct ww_str *why,
	struct ww_err *err) WW_MUST_CHECK;
void ww_shell_answer_release(struct ww_shell_answer *a);

/* `warpwright __shell`: the worker. */
int ww_shell_main(int argc, char **argv);
