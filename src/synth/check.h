/* check.h - one module through the filters.  Internal to src/synth.
 *
 * A checker is a thread's reference worker, opened when it is first needed, closed when a task has broken it or the
 * device under it, and after some dozens of tasks.  Checkers of one device run and compile in parallel; a measurement
 * has the device alone, under its lease.  All threads that wait to measure do so in one turn, so that running
 * candidates are waited for once.
 */
#pragma once

#include "base/tmpdir.h"
#include "host/lease.h"
#include "synth/room.h"
#include "synth/synth.h"
#include "synth/tracer.h"
#include "task/forker.h"
#include "task/ref.h"

#include <jansson.h>
#include <pthread.h>

/* A device of a run.  On cpu a candidate computes with `measured` locked for reading and measures with it locked for
 * writing.  On cuda a candidate runs when the device has room for it. */
struct ww_synth_device {
	int ordinal;
	pthread_rwlock_t measured;
	struct ww_synth_room room;
	pthread_mutex_t lock; /* all that follows */
	pthread_cond_t changed;
	struct ww_lease lease;
	int measuring, to_measure; /* a thread measures under the lease; number of those that wait for it */
};
void ww_synth_device_init(struct ww_synth_device *d, int ordinal);
void ww_synth_device_release(struct ww_synth_device *d);

/* The process that workers are forked from, started when the first one is needed. */
struct ww_synth_forker {
	pthread_mutex_t lock;
	int tried;
	struct ww_tmpdir caches;
	struct ww_forker *forker; /* NULL: not yet, or each worker imports PyTorch by itself */
};
#define WW_SYNTH_FORKER_INIT { PTHREAD_MUTEX_INITIALIZER, 0, WW_TMPDIR_INIT, NULL }
void ww_synth_forker_close(struct ww_synth_forker *f);

/* Whether the tasks accepted so far already reject a module with this mark (mark.h): then that is all.  Called
 * by several threads at a time. */
typedef int ww_synth_is_decided(void *ctx, const json_t *mark);

struct ww_synth_check_opts {
	const struct ww_synth_recipe *recipe;
	struct ww_synth_device *device;
	struct ww_synth_forker *forker;   /* shared by all; NULL: none */
	struct ww_synth_tracers *tracers; /* shared by all; NULL: similarity is looked at once a candidate is loaded */
	int threads, distrust;            /* distrust: modules come from a policy, so each gets a worker of its own */
	int replay; /* times and time-outs are the recorded ones: a check that takes longer now is waited for */
	ww_synth_is_decided *is_decided; /* may be NULL */
	void *ctx;
	const volatile int *interrupted;
};

/* What a candidate's stages cost: seconds, waiting included, and CPU-seconds of its worker.  trace: its graph without a
 * device, by another process; room: waiting for room on the device; back: the same behind the compiler; compiled: the
 * first run of what it made; turn: waiting to measure. */
#define WW_SYNTH_STAGES(X)                                                                                             \
	X(trace) X(start) X(room) X(load) X(eager) X(graph) X(compile) X(back) X(compiled) X(turn) X(measure) X(end)
enum ww_synth_stage {
#define X(name) WW_SYNTH_AT_##name,
	WW_SYNTH_STAGES(X)
#undef X
		WW_SYNTH_N_STAGES
};
struct ww_synth_cost {
	double s, cpu_s;
};

struct ww_synth_checker {
	struct ww_synth_check_opts o;
	struct ww_ref *ref;
	int used;
	struct ww_synth_place place; /* of the current candidate on the device */
	double values;               /* bytes of its inputs and values */
	const json_t *mark;          /* of the current candidate, by a tracer; borrowed; NULL: none */
};

/* The result for a module. */
struct ww_synth_result {
	char reason[64];  /* "": it passed */
	char detail[400]; /* of a rejection */
	json_t *row;      /* columns of a task set: ops, shapes, times; NULL where it did not pass */
	json_t *graph;
	json_t *mark;           /* once a graph is there (mark.h), the tracer's where it made one */
	char untraced[200];     /* why a tracer made no mark of it */
	int decided;            /* is_decided() rejected it: the stages behind the graph were left out; reason is "" */
	double eager_us;        /* where it was measured */
	int untimed;            /* it was loaded, and its time is left for the end */
	double peak_bytes;      /* of device memory, as the eager stage has shown; 0: unknown */
	double allocated_bytes; /* of peak_bytes, that tensors took; the rest was lost in pieces */
	double load_bytes, compiled_bytes; /* the same of loading, and of the stage compile */
	json_t *shares; /* of its device's lease, on a GPU: {"load": [s, s, s], "eager": ..., "compile": ...}, seconds that
	                   the worker waited at the gate, held one, and held one at most for a piece of work; may be NULL */
	double left_bytes; /* of it, that the worker holds when the candidate is dropped */
	int no_room;       /* memory did not suffice when it ran */
	int broke;         /* the device failed under it, so its worker is of no more use */
	int tries;         /* how often it was checked (ww_room_again()) */
	char again[200];   /* what the try before the last one failed with */
	struct ww_synth_cost cost[WW_SYNTH_N_STAGES];
};
void ww_synth_result_release(struct ww_synth_result *r);
enum ww_rc ww_synth_reject(struct ww_synth_result *r, const char *reason, const char *detail); /* WW_OK */
json_t *ww_synth_cost_json(const struct ww_synth_result *r); /* {"load": [seconds, CPU-seconds], ...} of those passed */

/* Run the filters that need no other task.  input_bytes, value_bytes: of its inputs, and of what it makes of them;
 * times: the recorded ones, or NULL: measure.  An error is ours (no worker can be started, interrupted); whatever the
 * module does is in the result. */
enum ww_rc ww_synth_check(struct ww_synth_checker *c, const struct ww_str *source, double input_bytes,
	double value_bytes, uint64_t seed, const json_t *times, struct ww_synth_result *out,
	struct ww_err *err) WW_MUST_CHECK;
#define WW_SYNTH_TOO_LONG "takes too long"
/* Start the process that workers are forked from, which takes ten seconds from a cold disk; else the first check that
 * needs a worker does. */
enum ww_rc ww_synth_checker_warm(struct ww_synth_checker *c, struct ww_err *err) WW_MUST_CHECK;
void ww_synth_checker_close(struct ww_synth_checker *c);
