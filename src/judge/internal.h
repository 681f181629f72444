/* internal.h - the structs of a judge and of a task, for the files of src/judge only; session.h: of one judgement. */
#pragma once

#include "host/lease.h"
#include "judge/cache/ref_cache.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "judge/forms/sampler.h"
#include "judge/judge.h"
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
	int prepared;        /* in the reference worker that lives now */
	int several_streams; /* ww_ref_baseline() */
	int disturbed;       /* while it was measured */
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
	int publish_later;                                   /* draws reach the buffers when they are published */
	double idle_us;          /* cuda: the least that the reference worker's probe of the device took; 0: none yet */
	double ahead_us;         /* cuda: what probes took longer since the candidate's last call */
	int base_calls;          /* of a baseline since the timing began, one a round */
	int busy_calls;          /* cuda: of a baseline or the candidate, before which the device was busy */
	int by_clock;            /* 1: the judgement in progress uses `clocked`, 0: `base` */
	double flops, bytes;     /* from the graph: arithmetic asked for, bytes that must move */
	double matrix_flops;     /* of products, convolutions and attentions alone */
	double base_waited_us;   /* cpu: microseconds that the baseline waited for processors in its last timed call */
	double reference_s;      /* spent in the reference worker by the judgement in progress */
	double wait_s;           /* seconds that it waited for the task's lock and the device */
	struct ww_steps spent;   /* its steps, for the verdict's `seconds` */
	struct ww_ref_ties ties; /* spent on near ties by the verdict in progress, over all its comparisons */
	uint64_t draw_counter;   /* with a public seed: the stream of draws */
	uint64_t drawn_seed;     /* of the draw that the buffers hold, or will hold when it is published */
	enum ww_ref_lot drawn_lot, next_lot; /* of that draw; what the next one with a lot shall be, NONE: by lot */
};

/* progress.c: tell the caller what is done now; WW_ERR_INTERRUPTED where it asked to stop. */
void ww_judge_progress(const struct ww_judge *j, const char *stage);
enum ww_rc ww_judge_interrupted(const struct ww_judge *j, struct ww_err *err) WW_MUST_CHECK;

/* turns.c: the turn of the judgement in progress becomes one of this kind, or ALONE where the task is heavy. */
enum ww_rc ww_judge_turn(struct ww_judge_task *t, enum ww_turn_kind kind, struct ww_err *err) WW_MUST_CHECK;

/* judge.c: run fn with the task's lock, a turn on the device and a living reference worker; once more where the worker
 * was lost meanwhile. */
enum ww_rc ww_judge_hold(struct ww_judge_task *t, enum ww_turn_kind kind,
	enum ww_rc (*fn)(void *ctx, struct ww_err *err), void *ctx, struct ww_err *err) WW_MUST_CHECK;

/* open.c: start the reference worker and load the task into it.  `turn`: not held yet, to be taken for what uses the
 * device. */
enum ww_rc ww_judge_start_ref(struct ww_judge_task *t, struct ww_turn *turn, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_drop_ref(struct ww_judge_task *t);
