/* progress.h - the status line and the event lines of a command at work.
 *
 * On a terminal one line is drawn again and again: elapsed time, turn, the step under way, best so far with its
 * interval.  Elsewhere each event of an episode is a plain line, and a step that takes over 2 s is named on standard
 * error; of steps that follow each other faster, one every 5 s.  All functions may be called from any thread.
 */
#pragma once

#include "agent/agent.h"

#include <stdio.h>

struct ww_progress;

/* `to` stays the caller's. */
struct ww_progress *ww_progress_new(FILE *to);
/* Show the use of a budget from now on. */
void ww_progress_watch(struct ww_progress *p, struct ww_budget *b);
int ww_progress_is_live(const struct ww_progress *p); /* one line is drawn again and again */
void ww_progress_free(struct ww_progress *p);         /* removes the line */
/* An event of an episode; ctx is the struct ww_progress. */
void ww_progress_event(void *ctx, const struct ww_agent_event *e);
/* The step under way: "importing PyTorch", "timing the solution"; ctx as above, NULL shows nothing. */
void ww_progress_stage(void *ctx, const char *stage);
/* Remove the line until the next step, for output of the command's own. */
void ww_progress_clear(struct ww_progress *p);
/* A line that stays. */
void ww_progress_say(struct ww_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
