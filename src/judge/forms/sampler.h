/* sampler.h - cpu: whose code computes in a process that nobody trusts?  Seen by where its threads stand.
 *
 * Problem.  The operators that a call asks PyTorch for are seen by a dispatch mode in the candidate's own process. What
 * goes past the dispatcher is not: functions of libtorch or of a BLAS by ctypes, numpy's product, a graph of
 * torch.compile, another thread.  So the judge stops the process at random moments of a call (SIGSTOP, as it does at
 * its end), reads where each thread would go on (/proc/PID/task/TID/syscall), and looks up whose file is mapped there.
 *
 *     own       extensions that were built of the solution's sources (/tmp/build), which the judge has stored
 *     made      other files of the process's own /tmp, and memory without a file: code made at run time
 *     library   every other file: PyTorch, numpy, a BLAS
 *     (none)    the interpreter, the C and C++ libraries, libm, OpenMP's waiting, threads in system calls
 *
 * What it misses: a library's machine code that the solution brings along (copied into its own /tmp, or linked into its
 * extension), and work of another process that it starts within a call. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum ww_code { WW_CODE_OWN, WW_CODE_MADE, WW_CODE_LIBRARY, WW_CODE_OTHER, WW_CODE_KINDS };

struct ww_code_range {
	uint64_t start, end;
	enum ww_code kind;
};
struct ww_sampler {
	struct ww_code_range *ranges; /* executable mappings, by address */
	int n, max;
	int stops;               /* how often it looked */
	int seen[WW_CODE_KINDS]; /* threads that would have gone on there, all stops together */
};

/* One look at process `pid`, which stands.  What cannot be read is not counted. */
void ww_sampler_look(struct ww_sampler *x, pid_t pid);
/* Whose is code of a mapping: `path` as /proc/PID/maps has it ("" without a file), `private` where it lies on the
 * process's own /tmp. */
enum ww_code ww_sampler_kind(const char *path, int private);
void ww_sampler_release(struct ww_sampler *x);
