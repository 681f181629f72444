/* observe.h - statistics of a step's episodes, counted from their records. */
#pragma once

#include "episode/episode.h"

#include <jansson.h>

/* Zeroed before the first episode. */
struct ww_observed {
	int64_t episodes, turns;
	int64_t milestones[5];  /* rewards -1, 1, 2, 3, others */
	int64_t cut;            /* a reply was cut off by its length, or the context was full */
	int64_t calls, invalid; /* tool calls; those that could not be carried out as written */
	int64_t verdicts, failed, disturbed;
	int64_t solutions, duplicates; /* closing verdicts; those on the solution of another episode of the task */
	json_t *tools;                 /* tool -> calls */
	json_t *after_failed;          /* what followed a verdict that was not right: tool -> times; "end" */
	json_t *seen;                  /* task and solution of each closing verdict */
};
void ww_observed_release(struct ww_observed *o);

/* Count an episode that has ended. */
void ww_observe(struct ww_observed *o, const struct ww_episode *e);
/* A share; 0 of nothing. */
double ww_share_of(int64_t n, int64_t of);
