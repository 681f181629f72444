/* internal.h - the judge's own structs, for the files of src/judge only. */
#pragma once

#include "host/lease.h"
#include "judge/cache/ref_cache.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "judge/forms/sampler.h"
#include "judge/judge.h"
#include "judge/pytorch.h"
#include "judge/cache/graphs.h"
#include "judge/cache/references.h"
#include "judge/run/client.h"
#include "judge/stats.h"
#include "judge/turns.h"
#include "store/store.h"
#include "task/ref.h"
#include "task/task.h"

#include <limits.h>
#include <pthread.h>

enum { WW_JUDGE_SPARES = 24 };

struct ww_judge {
	struct ww_judge_opts opts;
	struct ww_store *store; /* what earlier judges found out: images, binaries, graphs */
	struct ww_builder *builder;
	struct ww_compiler *compiler;
	struct ww_run_facts facts; /* of the device, measured bandwidth included */
	struct ww_ref_peaks peaks; /* the most that was seen; arithmetic: zeros until a task had it measured */
	uint64_t peaks_ns;         /* when it was last measured here, 0: never */
	char cache_dir[PATH_MAX];
	pthread_mutex_t lock; /* spares, peaks, room_waited_s */
	struct ww_runner
		*spares[WW_JUDGE_SPARES]; /* warm; as many as one verdict uses at once, a baseline solution's too */
	int n_spares, runners_out;    /* out: with candidates, or starting */
	int runners_taken;
	pthread_mutex_t forms_lock;       /* candidates; held while they are started */
	struct ww_candidates *candidates; /* started when the first solution in a PyTorch form comes */
	struct ww_ref *first;             /* of opts.first, begun ahead; NULL: none, or taken */
	struct ww_ref_cache first_cache;  /* its directory */
	pthread_mutex_t forker_lock;      /* forker, forker_roots; held while it is started */
	struct ww_forker *forker;         /* of reference workers, where several tasks are open; NULL: none, or not yet */
	char *forker_roots;               /* that it shows; NULL: it was not tried yet */
	char *flush; /* cpu: written before each call of a baseline, as runners do before a candidate's */
	size_t flush_bytes;
	double room_waited_s; /* for memory that other processes held */
};

/* One baseline of a task: what was measured, now or by an earlier judge. */
struct ww_base {
	int settled; /* measured, or found not to be available */
	int available;
	int prepared;  /* in the reference worker that lives now */
	int disturbed; /* while it was measured */
	int n, n_call;
	double us[WW_STATS_MAX_SAMPLES]; /* device times */
	double call_us[WW_STATS_MAX_SAMPLES];
	char method[16];
	char reason[256];
};

struct ww_judge_task {
	struct ww_judge *judge;
	enum ww_rule rule;   /* the judge's, unless ww_judge_task_rule() set another */
	struct ww_task task; /* our copy: a lost worker loads it again */
	struct ww_ref_opts ref_opts;
	struct ww_ref_cache ref_cache;
	pthread_mutex_t lock; /* everything below: one solution of a task is measured at a time */
	struct ww_turn turn;  /* of the judgement in progress */
	int heavy; /* it is not verified beside others: too large, or a PyTorch form, whose code may run at any time */
	struct ww_ref *ref;
	struct ww_ref *beside; /* runs operators that plans leave to PyTorch (pytorch.h); NULL: none did so far */
	int beside_plans;      /* ids of the plans that it was given so far */
	json_t *graph;
	struct ww_ref_shapes shapes;
	struct ww_facts facts;
	char torch_version[48];
	struct ww_ref_buffers buffers;
	struct ww_pool *pool;   /* draws whose references are kept; NULL: every draw is a new one */
	int variant_useless[8]; /* of verify.c's draws: the references were not finite */
	int degenerate[2];      /* by enum ww_rule; -1: not looked at yet */
	double eager_us;        /* rough, for time limits; 0 unknown */
	char baseline_id[65];   /* the baseline solution that was last found correct */
	struct ww_base base[WW_BASE_COUNT];
	struct ww_base clocked[WW_BASE_COUNT]; /* the same baselines timed as a solution in a PyTorch form is */
	struct ww_candidate *form_base[WW_BASE_TORCH_COUNT]; /* the processes that are called for these (forms/base.c) */
	struct ww_seen form_base_seen[WW_BASE_TORCH_COUNT];  /* cpu: whose code computed in their timed calls */
	int by_clock;                                        /* 1: the judgement in progress uses `clocked`, 0: `base` */
	double flops, bytes;   /* from the graph: arithmetic asked for, bytes that must move */
	double matrix_flops;   /* of products, convolutions and attentions alone */
	double base_waited_us; /* cpu: microseconds that the baseline waited for processors in its last timed call */
	double reference_s;    /* spent in the reference worker by the judgement in progress */
	double wait_s;         /* seconds that it waited for the task's lock and the device */
	struct ww_steps spent; /* its steps, for the verdict's `seconds` */
	uint64_t draw_counter; /* with a public seed: the stream of draws */
	uint64_t drawn_seed;   /* seed of the draw that the buffers hold */
};

/* What holds a candidate and calls it: a runner with a plan (session.c), or a process of another form.  Each function
 * is its namesake of run/client.h, with `self` in the runner's place; what the candidate does wrong is in *res. */
struct ww_candidate_ops {
	enum ww_rc (*prepare)(void *self, unsigned flags, struct ww_run_result *res, struct ww_err *err);
	enum ww_rc (*go)(void *self, double limit_s, struct ww_run_result *res, struct ww_err *err);
	enum ww_rc (*guards)(void *self, struct ww_run_result *res, struct ww_err *err);
	pid_t (*pid)(const void *self);
	void (*close)(void *self);
	int by_clock; /* cuda: *res has no device_us; elapsed_ns is compared with whole calls of the baselines */
};

/* One judgement in progress: the runner holds the candidate, everything is bound. */
struct ww_session {
	struct ww_judge_task *t;
	const struct ww_candidate_ops *ops;
	void *candidate;          /* the ops' self; the runner where it is a plan */
	struct ww_runner *runner; /* NULL where it is no plan */
	const struct ww_image *image;
	const struct ww_compiled *binary;
	struct ww_verdict *v;
	struct ww_str diag;
	double limit_s;          /* of one run */
	int calls, contradicted; /* timed ones; those whose events the host's clock contradicts (ww_run_result) */
	double used_s;           /* cpu: processor time of used_calls calls together */
	int used_calls;
	struct ww_seen timed, all;   /* cpu: whose code computed, of a plan of launches and library nodes */
	double waited_us;            /* cpu: microseconds that the candidate waited for processors in its last call */
	double witness_us;           /* cuda: the last timed call by the stamps (run/clocks.h); NAN else */
	int flush;                   /* cpu: the next call starts with cold caches */
	int brief;                   /* time it for a few seconds only */
	double wrong, compared;      /* elements of the outputs last compared: beyond the elementwise limit; all */
	int decide;                  /* time it until its reward is certain */
	int failed;                  /* v->status says how; nothing more is done */
	struct ww_session *baseline; /* another solution, timed as the baseline WW_BASE_SOLUTION; NULL: none */
};

/* session.c */
enum ww_rc ww_session_open(struct ww_session *s, const struct ww_compiled *binary, struct ww_err *err) WW_MUST_CHECK;
void ww_session_close(struct ww_session *s);
/* Put a plan into a runner and bind the task's buffers to it, and on cuda the scratch that PyTorch's process lends. */
struct ww_lent_scratch;
enum ww_rc ww_session_load(const struct ww_judge_task *t, struct ww_runner *r, const struct ww_image *image,
	const struct ww_compiled *binary, const struct ww_lent_scratch *lent, int n_lent, struct ww_run_result *res,
	struct ww_err *err) WW_MUST_CHECK;
/* Poison outputs and scratch (enum ww_run_prepare), then run once.  A result other than OK goes into the verdict and
 * sets s->failed.  Where a call is timed, the inputs are drawn between the two: what a cpu runner can see before its
 * clock starts, it can work on before its clock starts. */
enum ww_rc ww_session_prepare(struct ww_session *s, unsigned prepare, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_session_go(struct ww_session *s, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* Prepare and run, for calls that are not timed. */
enum ww_rc ww_session_run(
	struct ww_session *s, unsigned prepare, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* cuda: repeats, or digests alone, by the runner. */
enum ww_rc ww_session_repeat(
	struct ww_session *s, const struct ww_run_repeat *q, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* How a draw differs from the task's own. */
struct ww_variant {
	double scale, shift;
	enum ww_ref_params params;
	const char *name; /* in diagnostics */
};
/* References of the current draw, then compare the outputs; a mismatch goes into the verdict and sets s->failed. `when`
 * names the draw in diagnostics.  With `finite`, references that are not finite are not compared with and set it to 0.
 */
enum ww_rc ww_session_check(struct ww_session *s, const char *when, int *finite, struct ww_err *err) WW_MUST_CHECK;
/* The same; where the outputs are right the next draw is made, as ww_session_draw() would, by the same request to the
 * reference worker.  *drawn: it was. */
enum ww_rc ww_session_check_draw(struct ww_session *s, const char *when, int *finite, const struct ww_variant *next,
	int *drawn, struct ww_err *err) WW_MUST_CHECK;
/* A draw that a candidate's outputs may be compared on; it may come from the task's pool. */
enum ww_rc ww_session_draw(
	struct ww_judge_task *t, double scale, double shift, enum ww_ref_params params, struct ww_err *err) WW_MUST_CHECK;
/* A draw on which nothing will be compared: always new. */
enum ww_rc ww_session_draw_unchecked(
	struct ww_judge_task *t, enum ww_ref_params params, struct ww_err *err) WW_MUST_CHECK;
uint64_t ww_session_seed(struct ww_judge_task *t);
void ww_session_fail(struct ww_session *s, enum ww_status status, const char *fmt, ...) WW_PRINTF(3, 4);
/* Runner results in words and status. */
void ww_session_fail_run(struct ww_session *s, const struct ww_run_result *res, const char *stage);

/* repeat.c: the current draw, just compared, again and again; differences are counted and compared with the reference.
 */
enum ww_rc ww_judge_repeat(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;
uint64_t ww_digest(uint64_t key, const void *bytes, size_t n);

/* algebra.c: sets the verdict's `algebraic` from the time measured.  The library nodes' arithmetic is exact. */
enum ww_rc ww_judge_algebraic(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;
int ww_library_node(const struct ww_image *m, uint32_t node); /* a matrix product or a convolution */

/* own_work.c: does a plan do the task's work, or a library?  `graph` is the task's; half: the task has half or bfloat16
 * operands, so that products of them are no parts of wider ones; algebraic: of the verdict. */
enum ww_own_work {
	WW_WORK_OWN,    /* no library node */
	WW_WORK_BOTH,   /* launches and library nodes, and the task asks for more than the latter do */
	WW_WORK_LIBRARY /* no launch, or none with anything left to compute */
};
enum ww_own_work ww_judge_own_work(const json_t *graph, int half, int algebraic, const struct ww_image *m);
int ww_half_operands(const struct ww_facts *f);

/* pytorch.c: operators that a plan leaves to PyTorch (pytorch.h) */
/* Do their names mean what the task's graph says, and are their buffers large enough?  1, or 0 and one line in `why`.
 * The image has been validated. */
int ww_pytorch_check(const json_t *graph, const struct ww_image *m, struct ww_str *why);
/* 1: an operator of the graph stands in one of them. */
int ww_pytorch_has(const struct ww_image *m, const char *node);
/* Arithmetic of products, convolutions and attentions among them, as library_flops() of algebra.c counts that of
 * libraries. */
double ww_pytorch_flops(const json_t *graph, const struct ww_image *m);
/* A session of such a plan becomes one of both processes.  cpu: when its runner has loaded the plan; cuda: before. */
enum ww_rc ww_pytorch_open(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;
/* cuda: scratch of the plan that lies in memory of PyTorch's process, for ww_session_load(); the session's. */
struct ww_lent_scratch {
	struct ww_run_bind bind;
	int fd;
};
const struct ww_lent_scratch *ww_pytorch_lent(const struct ww_session *s, int *n);
/* cuda: one repeat of the current draw, and the digest of its outputs or, with run = 0, of those that lie there. */
enum ww_rc ww_pytorch_digest(
	struct ww_session *s, int run, uint64_t key, uint64_t *digest, struct ww_err *err) WW_MUST_CHECK;
/* Where it did: what of the time of its calls so far was PyTorch's. */
double ww_pytorch_share(const struct ww_session *s);
enum { WW_PYTORCH_TIMED = 64 };
/* One call in which the nodes that PyTorch runs are timed: us[i] of the i-th of the first WW_PYTORCH_TIMED. */
enum ww_rc ww_pytorch_times(struct ww_session *s, double *us, struct ww_err *err) WW_MUST_CHECK;

/* spares.c: a runner that is ready, for one candidate (and its baseline another); gone through, it comes back here. */
enum ww_rc ww_spare_take(struct ww_judge *j, struct ww_runner **out, struct ww_err *err) WW_MUST_CHECK;
void ww_spare_give(struct ww_judge *j, struct ww_runner *r);
/* cuda: one more where there are fewer than may be in use at once; waits until it has its context. */
void ww_spare_more(struct ww_judge *j);
void ww_spare_free_all(struct ww_judge *j);

/* sanitize.c: one run on the current draw under compute-sanitizer; its report, quoted, into diag. */
enum ww_rc ww_judge_sanitize(struct ww_judge_task *t, const struct ww_image *image, const struct ww_compiled *binary,
	struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;

/* verify.c */
enum ww_rc ww_judge_verify(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* cache/baselines.c: every requested baseline measured (from the cache where it is there).  *fastest: WW_BASE_COUNT
 * where none is available. */
enum ww_rc ww_base_all(struct ww_judge_task *t, enum ww_baseline *fastest, struct ww_err *err) WW_MUST_CHECK;
/* One call of a prepared baseline on the current draw, microseconds. */
enum ww_rc ww_base_once(
	struct ww_judge_task *t, enum ww_baseline b, enum ww_ref_mode mode, double *us, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_base_prepare(struct ww_judge_task *t, enum ww_baseline b, struct ww_err *err) WW_MUST_CHECK;
/* The requested baselines that have to be measured get ready, so that nothing but measuring is left for ww_base_all().
 */
enum ww_rc ww_base_prepare_missing(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* Have the worker compile the baseline "compile" without the device, where it will be needed and cannot be had from the
 * cache: torch.compile takes seconds of processor time, for which no other judge should wait.  Does not wait itself.
 * The task's lock is held. */
enum ww_rc ww_base_compile_ahead(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* The measurements of a baseline that the judgement in progress compares with. */
struct ww_base *ww_base_of(struct ww_judge_task *t, int b);
/* A rough time of one eager call, for limits. */
enum ww_rc ww_base_eager_estimate(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;

/* timing.c */
enum ww_rc ww_judge_time(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* exported_call.c: call_us and speedup_call of a solution that has been timed, by the judge's `caller`.  Its process is
 * started before the solution is verified, so that it imports PyTorch meanwhile.  That a call could not be measured is
 * a line in diag and no error. */
struct ww_exported_call {
	const struct ww_judge_caller *caller; /* NULL: none is wanted */
	void *call;
	struct ww_err why; /* it was not begun */
};
void ww_judge_call_begin(struct ww_judge_task *t, const struct ww_solution *s, struct ww_exported_call *c);
enum ww_rc ww_judge_call_time(struct ww_judge_task *t, struct ww_exported_call *c, struct ww_verdict *v,
	struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_call_end(struct ww_exported_call *c);
const struct ww_turn *ww_judge_call_turn(const void *use_ctx); /* of the process under way, for tests */

/* without_launches.c: run a judged plan of launches and library nodes without its launches.  *library_only: less than
 * half of the outputs' elements are wrong then, or its kernels have called the library besides. */
enum ww_rc ww_judge_without_launches(
	const struct ww_session *whole, int *library_only, struct ww_err *err) WW_MUST_CHECK;

/* room.c: 1 where other processes hold memory of the device and this judge may still wait for it.  ww_room_wait() then
 * sleeps twice as long as the last time (*nap_s seconds; 0: the first); the caller holds nothing meanwhile that those
 * processes may wait for. */
int ww_room_is_held(struct ww_judge *j);
enum ww_rc ww_room_wait(struct ww_judge *j, double *nap_s, struct ww_err *err) WW_MUST_CHECK;

/* open.c */
/* Start the reference worker and load the task into it.  `turn`: not held yet, to be taken for what uses the device. */
enum ww_rc ww_judge_start_ref(struct ww_judge_task *t, struct ww_turn *turn, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_drop_ref(struct ww_judge_task *t);
/* Whether rc says that memory lacks which other processes hold, and that is worth waiting for. */
int ww_judge_waits_for_room(const struct ww_judge_task *t, enum ww_rc rc);
/* 1: other tasks of this process are open on the device.  Where memory is short then, neither solution nor task is at
 * fault: the result is WW_ERR_ROOM, and the batch closes some tasks. */
int ww_judge_crowded(const struct ww_judge *j);
/* Before a timed call of either side on the cpu target: the caches hold nothing of the task's, and PyTorch's threads
 * sleep, which spin for milliseconds behind what the reference worker computed last. */
void ww_judge_flush(struct ww_judge_task *t);

/* judge.c */
void ww_judge_progress(const struct ww_judge *j, const char *stage);
enum ww_rc ww_judge_interrupted(const struct ww_judge *j, struct ww_err *err) WW_MUST_CHECK;

/* Run fn with the task's lock, a turn on the device and a living reference worker; once more where the worker was lost
 * meanwhile. */
enum ww_rc ww_judge_hold(struct ww_judge_task *t, enum ww_turn_kind kind,
	enum ww_rc (*fn)(void *ctx, struct ww_err *err), void *ctx, struct ww_err *err) WW_MUST_CHECK;
/* The turn of the judgement in progress becomes one of this kind. */
enum ww_rc ww_judge_turn(struct ww_judge_task *t, enum ww_turn_kind kind, struct ww_err *err) WW_MUST_CHECK;

/* facts.c: bandwidth and peaks of this device, kept in the store.  ww_judge_device_facts() at the judge's start;
 * ww_judge_device_peaks() when a task first needs arithmetic peaks, ww_judge_device_again() before a solution is
 * flagged by the bandwidth: both with a turn, which becomes ALONE where they measure. */
enum ww_rc ww_judge_device_facts(struct ww_judge *j, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_judge_device_peaks(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_judge_device_again(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* Raise the peaks of the judge and of the store to rates that were seen (0: unknown). */
enum ww_rc ww_judge_peaks_seen(struct ww_judge *j, const struct ww_ref_peaks *seen, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_peaks(struct ww_judge *j, struct ww_ref_peaks *out);

/* load.c: did other processes use the machine while we measured, or did its speed change? */
enum { WW_LOAD_PROCESSES = 5 };
struct ww_load {
	const struct ww_judge *judge;
	pid_t own[WW_LOAD_PROCESSES]; /* beside this one; 0: none */
	double busy_s, own_s;         /* cpu */
	double policies_s;
	uint64_t start_ns;
	unsigned clock_mhz; /* cuda: of the SMs; 0 unknown */
	int patient;        /* cuda: NVML is asked at the end, which takes tens of milliseconds */
};
struct ww_disturbance {
	int certain;     /* no number measured meanwhile is to be trusted */
	int noticed;     /* a possible disturbance; the samples decide whether it mattered */
	int policies;    /* processes of policies used the processors: no win may be paid */
	double others_s; /* cpu: processor time of others meanwhile */
	char why[96];    /* "" or in words */
};
void ww_load_start(struct ww_load *l, const struct ww_judge *j, const pid_t *own, int n_own, int patient);
void ww_load_end(const struct ww_load *l, struct ww_disturbance *d);
/* Processor seconds that the processes of the shells of this process have used so far; 0: of all processes of this
 * user. */
double ww_load_policies_s(int parent);
/* cuda: 1 where NVML counts other processes on the device than this one's; at most one task of this process is open. */
int ww_load_is_shared(const struct ww_judge *j);
/* Is it the command line, with blanks between the arguments, of a process with an exported operator (judge.h)? */
int ww_load_is_exported(const char *command);
