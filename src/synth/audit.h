/* audit.h - find defects in a task set, of any origin.
 *
 * Every row's text and graph are examined; a sample of rows is run too, and its outputs are examined.  Each row has a
 * process of its own in a confined worker, and workers run in parallel.  Findings name rows, and do not depend on the
 * number of workers.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>
#include <stdint.h>

/* name, meaning; in the order of reports */
#define WW_AUDIT_KINDS(X) \
	X(broken, "is no task that can be read") \
	X(fails, "does not run, or gives no graph") \
	X(duplicate, "has the same bytes as an earlier row") \
	X(near_duplicate, "is a near-duplicate of an earlier row") \
	X(contaminated, "is a near-duplicate of a held-out problem") \
	X(label, "its ops and its graph do not agree") \
	X(random, "draws random numbers") \
	X(degenerate, "can be answered without looking at the input") \
	X(id, "has the id of an earlier row") \
	X(signature, "its signature is not that of its graph") \
	X(split, "shares its operators with a row of another split")

enum ww_audit_kind {
#define X(name, meaning) WW_AUDIT_##name,
	WW_AUDIT_KINDS(X)
#undef X
		WW_AUDIT_COUNT
};
const char *ww_audit_kind_name(enum ww_audit_kind k); /* "near_duplicate" */
const char *ww_audit_kind_text(enum ww_audit_kind k); /* its meaning */

struct ww_audit_finding {
	enum ww_audit_kind kind;
	int64_t row, other;           /* other: the row that it resembles; 0: none */
	char *other_set;              /* path of the held-out set; NULL for other kinds */
	char *id, *other_id, *detail; /* one line each; may be NULL */
	double text, graph;           /* similarities, 0..1; 0 for kinds without one */
};

struct ww_audit_opts {
	const char *const *against; /* held-out sets */
	int n_against;
	int jobs;       /* workers; 0: one for each processor */
	int64_t sample; /* so many rows are run, drawn by `seed`; 0: none */
	uint64_t seed;
	const char *target; /* of the runs: "cpu", "cuda" */
	int device;
	double max_s; /* a row's time for each of text, graph and run; 0: 60 s */
	/* Told the current step: "held.jsonl: 12 rows read".  From any thread; may be NULL. */
	void (*progress)(void *context, const char *stage);
	void *context;
	const volatile int *interrupted;
};

struct ww_audit {
	int64_t rows, ran;             /* rows read; rows whose outputs were looked at */
	int64_t count[WW_AUDIT_COUNT]; /* rows, each once a kind */
	int64_t no_graph;              /* rows that were compared by text alone */
	struct ww_audit_finding *f;    /* by row, then by kind */
	size_t n, cap;
	double seconds;
};

/* Errors: a set that cannot be opened, no Python, no PyTorch, interrupted.  A set that ends in damaged data is one
 * finding (`broken`) behind the rows that could be read. */
enum ww_rc ww_audit(
	const char *set, const struct ww_audit_opts *opts, struct ww_audit *out, struct ww_err *err) WW_MUST_CHECK;
void ww_audit_release(struct ww_audit *a);

/* Append a table of kinds with the first rows of each; all findings as JSON (a new reference). */
void ww_audit_text(const struct ww_audit *a, const char *set, int rows_of_each, struct ww_str *out);
json_t *ww_audit_json(const struct ww_audit *a, const char *set);
