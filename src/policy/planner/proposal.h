/* proposal.h - a model's answer as the first trial of the search, and the knobs that it stands for. */
#pragma once

#include "policy/planner/search.h"
#include "policy/policy.h"

struct pl_proposal {
	char *device_text, *plan_text; /* NULL: the answer does not hold both files */
	struct trial nearest;          /* the knobs whose text differs least from the answer's */
	int exact;                     /* their text is the answer's, apart from index numbers */
};

/* Number the indices of a text (i27) from 0 in the order in which they occur: texts that differ only in these numbers
 * become equal.  A renaming, so the program stays the same. */
enum ww_rc pl_renumber(struct ww_str *out, const char *text, struct ww_err *err) WW_MUST_CHECK;
/* The files of an answer in the compact form: blocks of code that begin with ``` and a file's name. */
void pl_proposal_read(struct pl_proposal *p, const char *answer, int cuda);
void pl_proposal_release(struct pl_proposal *p);
/* *n: how many lines of both texts, in any order, have no equal in the other; indices are renumbered. */
enum ww_rc pl_text_distance(const char *a, const char *b, int *n, struct ww_err *err) WW_MUST_CHECK;
