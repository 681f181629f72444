/* sampler.h - cpu: whose code computes in an untrusted process, by sampling where its threads run.
 *
 * Problem.  The operators that a call asks PyTorch for are seen by a dispatch mode in the candidate's own process. What
 * goes past the dispatcher is not: functions of libtorch or of a BLAS by ctypes, numpy's product, a graph of
 * torch.compile, another thread.  And a solution may recognise a call that is traced, stopped or repeated, do its own
 * work in it, and call a library in all others.  So the kernel samples every call, timed ones too, all the same way
 * (perf_event_open: every WW_SAMPLE_US of a thread's processor time, whatever thread or process was started by whom),
 * and the judge looks up whose file the code lies in:
 *
 *     own       files of the process's own /tmp: extensions, and what a compiler wrote there; but for torch.compile's
 *     library   every other file (PyTorch, numpy, a BLAS), and memory without a file, named or not: PyTorch's own
 *               generators of code (oneDNN, FBGEMM) write there; whatever runs in another process, of which nothing is
 *               left to be looked at
 *     other     the interpreter, the C and C++ libraries, libm, OpenMP's waiting, where the pages are the file's still
 *
 * A thread's own code does not count while another thread is in a library's: being busy beside a library costs no time.
 * Since threads are sampled by their own time, a busy machine changes nothing.
 *
 * What code is is its bytes, which are looked at when the call has ended.  A solution can exchange them before that (it
 * writes its files as it likes, and maps others at their addresses), so in some calls they are also read at a random
 * moment, from beside.
 *
 * Rejected: stopping the process at random moments and reading its threads' registers.  On a busy machine the judge
 * comes too late, and a stopped call is seen by the gap in its time, so that its time cannot count.  More samples: one
 * takes up to 30 us in a virtual machine (an interrupt of its timer), so that a call is an eighth longer at 250 us, a
 * third at 100 and twice as long at 50. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum { WW_SAMPLE_US = 250 };
enum ww_code { WW_CODE_OWN, WW_CODE_LIBRARY, WW_CODE_OTHER, WW_CODE_KINDS };

/* Samples of calls: each stands for WW_SAMPLE_US of one thread.  Of those in own code a few were held against the code
 * of libraries (copies.h). */
struct ww_seen {
	int calls, n[WW_CODE_KINDS];
	int checked, copied;
	int looked, found; /* the same, while calls were under way */
	double scatter;    /* ww_seen_total(): one standard deviation of a library's samples less own ones */
};
/* The share of own code that is a copy of a library's. */
double ww_seen_copied(const struct ww_seen *x);
/* Samples of own code and of libraries', copies being the latter's. */
int ww_seen_own(const struct ww_seen *x);
int ww_seen_library(const struct ww_seen *x);
void ww_seen_add(struct ww_seen *sum, const struct ww_seen *x);

/* The last calls, each by itself. */
struct ww_seen_calls {
	struct ww_seen last[1024];
	int n;
};
void ww_seen_note(struct ww_seen_calls *c, const struct ww_seen *x);
/* All of them together.  A call of more samples than the one in the middle counts as that one: own code that is busy
 * for long in a few calls costs nothing, and would outweigh a library in all others. */
void ww_seen_total(const struct ww_seen_calls *c, struct ww_seen *sum);

struct ww_copies;
struct ww_sampler;
/* Of process `pid`, which has one thread, and of all that it starts.  NULL where this system does not allow it
 * (kernel.perf_event_paranoid above 2, or a container that forbids the call).  All others take NULL for nothing.
 * `copies` is borrowed; NULL: nothing is a copy. */
struct ww_sampler *ww_sampler_open(pid_t pid, const struct ww_copies *copies);
/* The same of a runner (run/client.h): own is the plan's binary, a library's what a library node calls, other the
 * rest. */
struct ww_sampler *ww_sampler_open_runner(pid_t pid);
void ww_sampler_close(struct ww_sampler *x);
/* Around a call; in a long one, take() at least every 50 ms.  At the end the process stands. */
void ww_sampler_begin(struct ww_sampler *x);
/* When to call look(), of a call that has begun: it may be once, at a random moment.  0: not in this call. */
uint64_t ww_sampler_look_ns(const struct ww_sampler *x);
void ww_sampler_look(struct ww_sampler *x);
void ww_sampler_take(struct ww_sampler *x);
void ww_sampler_end(struct ww_sampler *x, struct ww_seen *seen);
/* Whether the process, which stands, has mapped code of its own. */
int ww_sampler_has_own(struct ww_sampler *x);
/* Whose is code of a mapping: `path` as /proc/PID/maps has it ("" without a file), `private` where it lies on the
 * process's own /tmp. */
enum ww_code ww_sampler_kind(const char *path, int private);
enum ww_code ww_sampler_kind_in_runner(const char *path);
/* Of a total: whether libraries took longer than the solution's own code and `excused_us` together, for each call.  Two
 * standard deviations are left to chance.  Samples at even distances scatter less than chance has it, half as much in
 * calls of a millisecond, so where the calls themselves differ less, that counts. */
int ww_seen_is_library(const struct ww_seen *x, double excused_us);
