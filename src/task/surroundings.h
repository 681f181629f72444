/* surroundings.h - the visible files and the environment of a process that runs untrusted PyTorch.
 *
 * The reference worker (confined.h) and the processes of the PyTorch forms (judge/forms/launch.c) start from the same
 * list: /usr, /bin, /lib*, /opt, what PATH and LD_LIBRARY_PATH name, /etc's linker files, the interpreter's
 * directories, CUDA's, our bridge, all read-only; a few devices; /sys where the driver and PyTorch look the hardware
 * up.  No home directory, no cache of the judge, nothing of other users.
 */
#pragma once

#include "base/err.h"
#include "sandbox/sandbox.h"

enum { WW_SURROUNDINGS_MAX = 120 };

struct ww_surroundings {
	struct ww_sandbox_bind b[WW_SURROUNDINGS_MAX]; /* paths are never freed: the process execs soon */
	int n;
};

/* Show a path; one that is missing or below a visible directory of the same flags adds nothing. */
void ww_surroundings_add(struct ww_surroundings *s, const char *path, int flags);
/* The directories of a list with ':' between; NULL is an empty one. */
void ww_surroundings_add_list(struct ww_surroundings *s, const char *list, int flags);
/* The system, CUDA where cuda is 1, and for a Python (NULL: another program) its own directories, which it is asked for
 * in a process of its own (20 ms).  Before any untrusted input is read.  WW_ERR_MISSING where it gives no answer. */
enum ww_rc ww_surroundings_add_program(
	struct ww_surroundings *s, const char *python, int cuda, struct ww_err *err) WW_MUST_CHECK;

/* Show this process nothing but s and a private /tmp and /proc, and leave the system-call filter for what it forks at
 * filter_fd.  It keeps its capabilities over its own namespaces, so that each child gets some of its own.  shm_bytes:
 * of /dev/shm, 0: none.  WW_ERR_MISSING where it has no namespaces of its own. */
enum ww_rc ww_surroundings_enter(
	const struct ww_surroundings *s, int cuda, int64_t shm_bytes, int filter_fd, struct ww_err *err) WW_MUST_CHECK;

/* Replace this process's environment by one made from nothing: how to find programs, libraries and the GPU; HOME and
 * TMPDIR are `tmp`.  What could change PyTorch's behaviour (PYTHON*, TORCH_*, OMP_*) and keys stay outside. */
void ww_surroundings_environment(const char *tmp, int cuda);

/* Become this Python, which reads its modules' bytecode from `code` ("": from nowhere), with `args` (ends with NULL)
 * behind its own options. */
void ww_surroundings_python(const char *python, const char *code, const char *const *args) __attribute__((noreturn));
/* Say why the process ends before that: its exit code. */
int ww_surroundings_fail(const struct ww_err *err);
