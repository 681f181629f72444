/* ref.h - the reference worker: the process that holds PyTorch, seen from C.
 *
 * One struct ww_ref is one child process (bridge/worker.py) that serves one task at a time: load it, read its graph,
 * share its buffers, draw inputs, run the references, compare what a candidate wrote, time the baselines.  The wire
 * format is docs/formats/bridge.md; every function below is one request and one reply, with a deadline.  A worker
 * that misses its deadline, dies, outgrows its memory or breaks the protocol is killed with its whole process group
 * and the ww_ref is dead: every later call returns WW_ERR_WORKER at once, and the caller opens another one.  Several
 * workers may live at once; one ww_ref belongs to one thread at a time.
 *
 * Return codes, besides WW_OK:
 *   WW_ERR_ROOM      the device's memory has no room for it now; the worker lives on
 *   WW_ERR_TASK      the task cannot be used, and why; the worker lives on (unless the task ended it: then it is dead)
 *   WW_ERR_TIMEOUT   a deadline passed (killed)        WW_ERR_LIMIT     resident memory beyond the limit (killed)
 *   WW_ERR_WORKER    it died; the message has its last log line    WW_ERR_PROTOCOL  it sent nonsense (killed)
 *   WW_ERR_DEVICE    CUDA failed                       WW_ERR_MISSING   no Python, no PyTorch or no GPU
 *   WW_ERR_INTERRUPTED   opts.interrupted was set (killed)
 * During ww_ref_load() a time-out, an exit or too much memory are the task's doing and come back as WW_ERR_TASK.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "task/task.h"

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>
#include <ww/plan.h>
#include "task/rule.h"

struct ww_ref;

struct ww_forker;
struct ww_ref_opts {
	enum ww_target target;
	int device;                  /* cuda ordinal */
	int threads;                 /* cpu: PyTorch's threads; 0: all cores of this process's affinity */
	const char *cache_dir;       /* torch.compile's caches; NULL: a private directory, removed with the worker */
	uint64_t max_resident_bytes; /* 0: four fifths of the machine's; looked at every 50 ms while a request is running */
	int text_only;               /* skip hello: only for requests that work without it (set_parquet.c, outline.c) */
	int waits;               /* ww_ref_begin() leaves the hello, at which the device is started, to ww_ref_ready() */
	int one_compiler;        /* torch.compile compiles in the worker, without processes beside it */
	int warm_calls;          /* of a baseline before it is captured or timed; 0: three */
	int examines;            /* tasks are examined (ww_ref_examine()), which runs another draw: loading does not */
	int connections;         /* cuda: CUDA_DEVICE_MAX_CONNECTIONS of the worker; 0: the driver's own number */
	uint64_t max_disk_bytes; /* below cache_dir; 0: 4 GiB; looked at twice a second */
	int bandwidth;           /* measure the memory bandwidth at the start (0.4 s); else it is 0 in the device's facts */
	uint64_t pool_bytes;     /* for references of draws that come again (struct ww_ref_draw) */
	double pool_share;       /* the same as a share of all memory of the device, where pool_bytes is 0 */
	double max_request_s;    /* any one request; 0: 300 s.  Start-up has 120 s of its own */
	double max_load_s;       /* 0: 120 s */
	double max_compile_s;    /* preparing one baseline; 0: 600 s */
	const struct ww_task *first; /* checked before PyTorch is imported, so that a file that cannot be a task is refused
	                                at once (WW_ERR_TASK); may be NULL */
	const struct ww_task *visible;   /* its roots can be read, as those of `first`; may be NULL */
	const volatile int *interrupted; /* may be NULL */
	const char *python;              /* NULL: $WW_PYTHON, then .venv/bin/python beside the bridge, then python3 */
	const char *worker;              /* NULL: bridge/worker.py of this program (tests give others) */
	struct ww_forker *forker;        /* that the worker is forked from, for this target (forker.h); NULL: none */
};

/* Start a worker and say hello.  Takes 2 to 4 s (import torch, CUDA start).  It ends with this process. */
enum ww_rc ww_ref_open(struct ww_ref **out, const struct ww_ref_opts *opts, struct ww_err *err) WW_MUST_CHECK;
/* The same without waiting for the import: call ww_ref_ready() before any other request; it reports why a worker could
 * not be started. */
enum ww_rc ww_ref_begin(struct ww_ref **out, const struct ww_ref_opts *opts, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_ready(struct ww_ref *r, struct ww_err *err) WW_MUST_CHECK;
/* Ask it to quit, kill its process group, reap it, remove its private directory.  NULL is fine. */
void ww_ref_close(struct ww_ref *r);
int ww_ref_alive(const struct ww_ref *r);
pid_t ww_ref_pid(const struct ww_ref *r);
/* The last 64 KiB of what the worker and the task printed; valid until the next call on r. */
const char *ww_ref_log(struct ww_ref *r);
/* The interpreter that ww_ref_open() would use, into out (PATH_MAX bytes), without starting it; doctor asks. */
enum ww_rc ww_ref_find_python(char *out, struct ww_err *err) WW_MUST_CHECK;
/* The command that installs a Python with PyTorch for this program, in a checkout or in a distribution. */
void ww_ref_python_command(struct ww_str *out);
#define WW_REF_TORCH "2.11.0"		/* the version that tools/setup installs and that everything is tested with */

/* What hello answered.  Texts are "" where unknown. */
struct ww_ref_info {
	char python[32], torch[48], cuda[32], cudnn[32], cublas[32], driver[48];
	char device_name[96], device_uuid[64];
	struct ww_device device; /* cpu: shared_per_block_bytes is the bridge's guess; the runner knows better */
};
const struct ww_ref_info *ww_ref_info(const struct ww_ref *r);
/* Everything that hello answered, as JSON; borrowed. */
const json_t *ww_ref_hello(const struct ww_ref *r);

/* The facts of a device in the form that hello and the tool inspect have them. */
void ww_ref_device(const json_t *o, enum ww_target target, struct ww_device *out);

/* Measured now, about 0.3 s: arithmetic peaks by large matrix products; 0 where the target has no such unit. */
struct ww_ref_peaks {
	double fp32_flops, tf32_flops, fp16_flops, bf16_flops, memory_bytes_per_s;
};
enum ww_rc ww_ref_peaks(struct ww_ref *r, struct ww_ref_peaks *out, struct ww_err *err) WW_MUST_CHECK;

/* Load a task: build the model and a first draw of inputs from `seed`, run it, check that it can be judged.  A worker
 * serves one task: a second load drops the first. */
enum ww_rc ww_ref_load(struct ww_ref *r, const struct ww_task *task, uint64_t seed, struct ww_err *err) WW_MUST_CHECK;

/* The same with a graph that an earlier worker of the same PyTorch made of this task (NULL: none).  *used: the graph
 * describes the loaded module and replaces the one that ww_ref_graph() would need seconds to make. */
enum ww_rc ww_ref_load_with_graph(struct ww_ref *r, const struct ww_task *task, uint64_t seed, json_t *graph, int *used,
	struct ww_err *err) WW_MUST_CHECK;

/* The task's ATen graph (docs/formats/bridge.md, "graph"); a new reference for the caller.  WW_ERR_TASK where PyTorch
 * does not make such graphs (graph/check.h): a task has taken its worker over. */
enum ww_rc ww_ref_graph(struct ww_ref *r, json_t **out, struct ww_err *err) WW_MUST_CHECK;

/* Set `tf32` of the nodes of that graph that are convolutions of fp32: does PyTorch compute it in TF32 on this device?
 * Each is run there.  *all: none was left out, as for lack of memory. */
enum ww_rc ww_ref_tf32(struct ww_ref *r, json_t *graph, int *all, struct ww_err *err) WW_MUST_CHECK;

/* The tensors and scalars of a graph in plan.h's form, buffer handles assigned: inputs, then parameters, then outputs.
 */
struct ww_ref_shapes {
	struct ww_tensor *inputs, *params, *outputs;
	int n_inputs, n_params, n_outputs;
	struct ww_scalar *scalars;
	int n_scalars;
	json_t *owner; /* keeps the names alive */
};
enum ww_rc ww_ref_shapes(const json_t *graph, struct ww_ref_shapes *out, struct ww_err *err) WW_MUST_CHECK;
void ww_ref_shapes_release(struct ww_ref_shapes *s);

/* The shared buffers, one allocation each, in the order and with the handles of ww_ref_shapes().  A descriptor is a
 * memfd (cpu; inputs and parameters can only be mapped read-only by anybody but the worker) or a CUDA allocation of
 * handle type POSIX file descriptor (cuda).  A tensor without elements still has an allocation of the smallest size. */
struct ww_ref_buffer {
	int fd;               /* owned by the struct */
	uint64_t bytes;       /* what the tensor spans */
	uint64_t alloc_bytes; /* what is allocated: a multiple of the page or of CUDA's granularity */
	int apart; /* an output that the task makes in memory of its own: no input's, state's or other output's */
};
struct ww_ref_buffers {
	struct ww_ref_buffer *b;
	int n;
};
enum ww_rc ww_ref_buffers(struct ww_ref *r, struct ww_ref_buffers *out, struct ww_err *err) WW_MUST_CHECK;
void ww_ref_buffers_release(struct ww_ref_buffers *b);

/* A draw: inputs (and parameters) made from a seed, written into the model and into the shared buffers.  Ends the
 * reference of the draw before.  Same seed, scale, shift: same bits. */
enum ww_ref_params {
	WW_REF_PARAMS_REDRAW, /* new values, nothing at its default (docs/design/rules.md, section 4) */
	WW_REF_PARAMS_INIT,   /* as the module was created */
	WW_REF_PARAMS_KEEP    /* leave them (timed calls) */
};
/* In an uneven draw a few elements of the inputs are much larger than the rest (uneven.py).  Of NONE it is not asked
 * whether the task has such draws. */
enum ww_ref_lot { WW_REF_LOT_NONE, WW_REF_LOT_PLAIN, WW_REF_LOT_UNEVEN };
struct ww_ref_draw {
	uint64_t seed;       /* below 2^63 */
	double scale, shift; /* floating inputs become x * scale + shift; 1 and 0 leave them */
	enum ww_ref_params params;
	int keep;          /* this draw will come again: keep its references for then, as far as pool_bytes goes */
	enum ww_rule rule; /* by which it will be compared */
	int values;        /* with keep: keep what it writes, too */
	int later;         /* the buffers get it when it is published */
	enum ww_ref_lot lot;
};
enum ww_rc ww_ref_draw(struct ww_ref *r, const struct ww_ref_draw *d, struct ww_err *err) WW_MUST_CHECK;
/* Whether uneven draws of the loaded task differ from plain ones, as the last draw with a lot has found; before: -1. */
int ww_ref_has_uneven(const struct ww_ref *r);

/* Compare the shared output buffers (the candidate has finished and synchronised) with the references of the current
 * draw, which are computed now: the task in fp64 and PyTorch's own default run. */
struct ww_ref_diff {
	int pass;
	double err_rel, err_abs;     /* the candidate's: norm-wise relative, largest absolute over finite pairs */
	double e_rel, e_max, rms;    /* PyTorch's own, and the reference's size */
	double limit_rel, limit_abs; /* what the rule allows; paper: NAN and the tolerance at the worst element */
	int64_t numel, violations;   /* elements beyond the elementwise limit, non-finite mismatches among them */
	int64_t nonfinite;           /* NaN or Inf where none belongs, or the wrong kind */
	int rank;
	int64_t first[WW_MAX_RANK], worst[WW_MAX_RANK]; /* index tuples; meaningful with violations */
	double first_expected, first_found, worst_expected, worst_found;
	char pattern[24]; /* where: "", "all", "tail", "row ends", "strided", "single", "scattered"; "accuracy" */
	char looks[16];   /* what the wrong elements hold: "", "nan", "unwritten", "zero", "shifted" */
	char part[96];    /* "", or the part that all of this is about, where the whole is right: "row 18" */
};
/* Runs of the task with other roundings, which decide near ties (bridge/wwbridge/ties.py), and seconds of a processor
 * for them. */
struct ww_ref_ties {
	int64_t runs;
	double seconds;
};
struct ww_ref_compare {
	int pass;
	int fp64;                /* 0: the reference did not fit in fp64, fp32 with TF32 off was used */
	int finite;              /* every output of both runs is finite */
	int drawn;               /* `next` was made */
	struct ww_ref_ties ties; /* what was spent */
	int ties_short;          /* 1: not all near ties were looked for, since no more may be spent */
	int n_outputs;
	struct ww_ref_diff outputs[WW_MAX_OUTPUTS];
};
/* if_finite: references that are not finite are not compared with; then pass is 1 and n_outputs 0.  next (NULL: none):
 * where the outputs were compared and are right, this draw is made behind that, in the same request.  may: what near
 * ties may cost (never more than 32 runs and 60 s, 150 s by the clock, and the run begun last); behind that the rule
 * decides without them. */
enum ww_rc ww_ref_compare(struct ww_ref *r, enum ww_rule rule, int if_finite, const struct ww_ref_draw *next,
	const struct ww_ref_ties *may, struct ww_ref_compare *out, struct ww_err *err) WW_MUST_CHECK;

/* Whether the task is degenerate under each rule: would the rule take an answer that ignores the input?  Draws twice
 * from the seeds (so the current draw is gone afterwards). */
struct ww_ref_degenerate {
	struct {
		int degenerate;  /* any of the three, for every output, or all timed draws are alike */
		int independent; /* the outputs of another draw would be taken */
		int constant;    /* one number for each output would be */
		int zero;        /* zeros would be */
	} rule[2];           /* by enum ww_rule */
};
enum ww_rc ww_ref_degenerate(struct ww_ref *r, uint64_t seed_a, uint64_t seed_b, struct ww_ref_degenerate *out,
	struct ww_err *err) WW_MUST_CHECK;

/* cuda: the worker locks these two files (opened by ww_share_open()) around its work on the device, so that the holder
 * of the device's lease measures alone.  Holds for the rest of the worker's life. */
enum ww_rc ww_ref_share(struct ww_ref *r, int gate_fd, int lock_fd, struct ww_err *err) WW_MUST_CHECK;

/* The checks that `synth` makes on a loaded task (bridge/wwbridge/examine.py): WW_EXAMINE_TEXT runs nothing and has
 * "tokens", WW_EXAMINE_EAGER needs no compiler, WW_EXAMINE_COMPILE, behind it, compares torch.compile with eager mode,
 * WW_EXAMINE_END drops the task with all of it, also one that could not be loaded.  The answer, a new reference for the
 * caller: {"reason": "" or a few words on what is wrong, "detail"}, of the two that run the task "shapes", on cuda
 * "peak_bytes" of all but the last and "left_bytes", which the worker still holds, of that.  compiler: "inductor",
 * which can then be timed, or another backend of torch.compile, which cannot; memory_bytes: of the device's memory,
 * that the module's own runs may take. */
enum ww_examine { WW_EXAMINE_TEXT, WW_EXAMINE_EAGER, WW_EXAMINE_COMPILE, WW_EXAMINE_END };
enum ww_rc ww_ref_examine(struct ww_ref *r, uint64_t seed, enum ww_examine stage, const char *compiler,
	double memory_bytes, json_t **out, struct ww_err *err) WW_MUST_CHECK;

/* What is installed, by introspection and trial (bridge/wwbridge/crawl.py); part: "torch", "functional", "nn",
 * "transformers" (WW_ERR_MISSING names the pip package).  Rows of a catalogue (docs/synth.md), a new reference for the
 * caller.  Needs no hello: of a worker opened with text_only. */
enum ww_rc ww_ref_crawl(struct ww_ref *r, const char *part, json_t **rows, struct ww_err *err) WW_MUST_CHECK;

/* Baselines.  Prepare compiles and warms one up; a failure is data (available = 0, reason). */
struct ww_ref_baseline {
	int available;
	char reason[256];
	char device_method[16]; /* "graph", "kernels"; "clock" on cpu */
	double seconds;         /* that preparing took */
	int several_streams;    /* cuda: a call uses several streams, or that is not known */
};
enum ww_rc ww_ref_baseline(
	struct ww_ref *r, enum ww_baseline which, struct ww_ref_baseline *out, struct ww_err *err) WW_MUST_CHECK;
/* cuda: begin to compile a baseline, without running anything on the device, and return at once.  ww_ref_baseline()
 * reports a failure later.  ww_ref_await() waits until it is done, and so does every other request. */
enum ww_rc ww_ref_compile_ahead(struct ww_ref *r, enum ww_baseline which, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_await(struct ww_ref *r, struct ww_err *err) WW_MUST_CHECK;
int ww_ref_compiling(const struct ww_ref *r);

/* cuda: n times in microseconds, on the inputs of the current draw, buffers restored before each; device: the captured
 * CUDA graph (or the sum of its kernels), call: events around the Python call. */
enum ww_ref_mode {
	WW_REF_DEVICE,
	WW_REF_CALL,
	WW_REF_CLOCK
}; /* CLOCK: as a solution in a PyTorch form, by no request here */
enum ww_rc ww_ref_time(struct ww_ref *r, enum ww_baseline which, enum ww_ref_mode mode, int n, int flush_l2, double *us,
	struct ww_err *err) WW_MUST_CHECK;

/* cpu: one call by the caller's clock.  ww_ref_arm() returns when the worker waits for the starting byte; the caller
 * makes sure that the machine is quiet (ww_ref_quiet), then ww_ref_fire() gives the byte and returns when the call is
 * done, with the time between by CLOCK_MONOTONIC, and the part of it spent waiting for processors (host/timed_call.h).
 * Every arm needs its fire. */
enum ww_rc ww_ref_arm(struct ww_ref *r, enum ww_baseline which, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_fire(struct ww_ref *r, uint64_t *elapsed_ns, double *waited_us, struct ww_err *err) WW_MUST_CHECK;
/* 1 when every thread of the worker sleeps (PyTorch's threads spin a little after a call). */
int ww_ref_quiet(const struct ww_ref *r);
/* Wait until they do, at most a second.  Looks every 50 us: looking without pause would keep a processor from the
 * threads. */
void ww_ref_settle(const struct ww_ref *r);

/* A worker without a task runs the operators that a plan leaves to PyTorch (judge/pytorch.h; docs/formats/bridge.md,
 * "beside").  ww_ref_beside() hands over the operators of a plan and their buffers (q is consumed, descriptors are
 * borrowed); cuda: the n_own allocations that the worker makes come back in `own`, and the caller closes their
 * descriptors.  ww_ref_beside_arm() gets ready for one call of plan `id`; ww_ref_beside_fire() runs its next part,
 * timed as above; after the last one us[i] is the device time of part i of all n (cuda; cpu: n is 0).
 * ww_ref_beside_drop() forgets plan `id`. */
struct ww_ref_memory {
	int fd;
	uint64_t alloc_bytes;
};
enum ww_rc ww_ref_beside(struct ww_ref *r, json_t *q, const int *fds, int n, struct ww_ref_memory *own, int n_own,
	struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_beside_arm(struct ww_ref *r, int id, int flush, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_beside_fire(struct ww_ref *r, int last, uint64_t *elapsed_ns, double *waited_us, double *us, int n,
	struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_beside_drop(struct ww_ref *r, int id, struct ww_err *err) WW_MUST_CHECK;

/* What each operator of the graph takes in eager mode, on the current draw (docs/formats/bridge.md, "profile"); a new
 * reference for the caller. */
enum ww_rc ww_ref_profile(struct ww_ref *r, json_t **out, struct ww_err *err) WW_MUST_CHECK;

/* Drop the references of the current draw, or with all = 1 kept ones, baselines and CUDA graphs too; the task stays
 * loaded. */
enum ww_rc ww_ref_free(struct ww_ref *r, int all, struct ww_err *err) WW_MUST_CHECK;
/* Drop a baseline with its CUDA graph, which holds the memory of a whole run; it can be prepared again. */
enum ww_rc ww_ref_free_baseline(struct ww_ref *r, enum ww_baseline which, struct ww_err *err) WW_MUST_CHECK;

/* For candidates of the PyTorch forms (docs/forms.md).  How the model was made: {"model_seed", "on_host"}; the ATen
 * operators that compute in one call: {"aten": [[name, calls]]}.  New references for the caller. */
enum ww_rc ww_ref_origin(struct ww_ref *r, json_t **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_trace(struct ww_ref *r, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* Fill the shared outputs with 0xff bytes; cuda: write twice the size of L2.  The outputs that ww_ref_keep() mapped are
 * filled with poison, here or before the next draw: *shares (may be NULL) says whether one of them, since the last
 * call, turned out to be the memory of an input or a parameter. */
enum ww_rc ww_ref_wipe(struct ww_ref *r, int poison, int flush, int *shares, struct ww_err *err) WW_MUST_CHECK;
/* cuda: write the present draw into the shared inputs and parameters again; *busy_us: what some milliseconds of work
 * take on the device now, which is more where it has others' work, too. */
enum ww_rc ww_ref_publish(struct ww_ref *r, double *busy_us, struct ww_err *err) WW_MUST_CHECK;
/* Take a copy of the outputs: until the next draw or wipe ww_ref_compare() compares it, and ww_ref_same() tells
 * whether the outputs still hold the same bytes.  `lent` (a new reference, consumed) has for each output null, where it
 * lies in the shared buffer, or its place in device memory that another process has exported (judge/forms/lent.h) by
 * descriptors, which stay the caller's; an empty array: all lie in the shared buffers.  *taken 0: that memory cannot be
 * mapped. */
enum ww_rc ww_ref_keep(
	struct ww_ref *r, json_t *lent, const int *fds, int n_fds, int *taken, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_ref_same(struct ww_ref *r, int *same, struct ww_err *err) WW_MUST_CHECK;
