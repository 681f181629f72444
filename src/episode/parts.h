/* parts.h - what the pages of an episode and of a run share: the search as a curve, the table of a verdict. */
#pragma once

#include "base/str.h"

#include "episode/episode.h"

/* Device time of a correct, timed solution in microseconds, else NAN. */
double ww_episode_time_us(const json_t *verdict);
/* The closing verdict of the best solution; where the episode has not ended, the fastest correct one; NULL: none. */
const json_t *ww_episode_best_verdict(const struct ww_episode *e);
/* Times over the seconds of n episodes, best so far, baselines, failures; `best` (may be NULL) has the baselines. */
void ww_episode_html_curve(struct ww_str *h, const struct ww_episode *e, size_t n, const json_t *best);
/* Times, intervals and speed-ups; what was compared; one item for each flag with its explanation. */
void ww_episode_html_verdict(struct ww_str *h, const json_t *verdict);
/* <p class="good|bad">: the verdict in one line. */
void ww_episode_html_verdict_line(struct ww_str *h, const char *before, const json_t *verdict);
/* The files of a solution, with line numbers. */
void ww_episode_html_files(struct ww_str *h, const struct ww_episode_solution *s);
