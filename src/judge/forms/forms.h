/* forms.h - candidates of the PyTorch forms: processes that hold untrusted Python, as the judge sees them.
 *
 *     struct ww_candidates   the process they are forked from (launch.c, bridge/candidate.py): PyTorch imported,
 *                            nothing else
 *     struct ww_candidate    one of them: builds a solution's extensions, or holds its ModelNew and calls it
 *
 * A candidate runs only while the judge lets it.  It is stopped (SIGSTOP) as soon as it has answered and goes on when
 * it is asked again, so that it computes nothing outside the time that it is charged with.  A call is `g` and a number
 * drawn for it: they are written, the clock starts, the process goes on; `d`, the number and the addresses of the
 * outputs arrive, the process is stopped, and the clock ends; nothing is read before all its threads are stopped.  The
 * process is not trusted: it contributes an error text (cleaned before it is shown) or where its outputs lie.
 *
 * Functions return an error for our own trouble only.  What the candidate does is in *res, with the kinds of
 * run/client.h: WW_RUN_FAULT where it answered an error (see the answer), WW_RUN_REFUSED where it did what no candidate
 * may, WW_RUN_DIED, WW_RUN_LATE, WW_RUN_NOMEM.  After all but OK and FAULT the process is gone.  One candidate belongs
 * to one thread at a time; any number of threads may ask one ww_candidates for new ones. */
#pragma once

#include "judge/forms/sampler.h"
#include "judge/judge.h"
#include "judge/run/client.h"

#include <jansson.h>

/* `warpwright __candidates PYTHON BRIDGE cuda|cpu BYTECODE` */
int ww_candidates_main(int argc, char **argv);

struct ww_candidates;
struct ww_store;
struct ww_candidates_opts {
	enum ww_target target;
	uint64_t
		max_resident_bytes; /* of one candidate and all it starts; 0: four fifths of the machine's, at most 16 GiB */
	const volatile int *interrupted;
	struct ww_store *store; /* for what was found out about libraries (copies.h); NULL: nothing is kept */
};
/* Start it.  WW_ERR_MISSING where the system allows no sandbox that would hold (namespaces), or where there is no
 * PyTorch. */
enum ww_rc ww_candidates_open(
	struct ww_candidates **out, const struct ww_candidates_opts *o, struct ww_err *err) WW_MUST_CHECK;
void ww_candidates_close(struct ww_candidates *z);

/* The most processes and threads of one candidate at a time, itself and dead ones that it has not waited for among
 * them.  Beyond it fork() and clone() fail with EAGAIN (bridge/wwcandidate/confine.py, own_user()). */
int ww_candidates_max_tasks(void);

struct ww_candidate;
/* What a process is for.  Without a bit: building.  CALLED: it will be called, and it and all that it starts stay one
 * process group.  GPU: it sees the devices. */
enum { WW_CANDIDATE_CALLED = 1, WW_CANDIDATE_GPU = 2 };
/* A fresh process in namespaces of its own that has not read a solution yet. */
enum ww_rc ww_candidate_new(
	struct ww_candidate **out, struct ww_candidates *z, unsigned what, struct ww_err *err) WW_MUST_CHECK;
void ww_candidate_free(struct ww_candidate *c); /* kill it and all it started; NULL is fine */
pid_t ww_candidate_pid(const struct ww_candidate *c);
/* The limit on its memory from now on; at most four fifths of the machine's. */
void ww_candidate_limit_memory(struct ww_candidate *c, uint64_t max_resident_bytes);
uint64_t ww_candidate_memory(const struct ww_candidate *c);

/* One request (a new reference, consumed) with descriptors (borrowed) and its answer, after which the process is
 * stopped. */
struct ww_candidate_answer {
	json_t *body;       /* a new reference; NULL unless it answered ok */
	int fd;             /* -1: none came */
	char kind[16];      /* where it answered an error: "build", "solution", "call", "output" */
	struct ww_str text; /* its words, cleaned and bounded */
	int64_t *places;    /* after a call: where its outputs lie (outputs.h); n_places numbers, as it says */
	int n_places;
	int *lent; /* cuda: descriptors that came with them */
	int n_lent;
};
void ww_candidate_answer_init(struct ww_candidate_answer *a);
void ww_candidate_answer_release(struct ww_candidate_answer *a);
enum ww_rc ww_candidate_ask(struct ww_candidate *c, json_t *request, const int *fds, int n_fds, double limit_s,
	struct ww_candidate_answer *a, struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* One call; res->elapsed_ns is its time, res->waited_us the part of it spent waiting for processors (cpu). */
enum ww_rc ww_candidate_call(struct ww_candidate *c, double limit_s, struct ww_candidate_answer *a,
	struct ww_run_result *res, struct ww_err *err) WW_MUST_CHECK;
/* cpu: whose code computed in the last call or request (sampler.h); no samples where this system does not allow
 * sampling. */
const struct ww_seen *ww_candidate_seen(const struct ww_candidate *c);
/* Whether the process, which stands, has mapped code of its own. */
int ww_candidate_has_own_code(struct ww_candidate *c);
