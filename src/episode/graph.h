/* graph.h - the module's graph on a page, by launches. */
#pragma once

#include "base/str.h"

#include "episode/episode.h"

/* The graph that `inspect` answered in this episode (docs/formats/bridge.md), a new reference; NULL: the policy did not
 * ask for it.
 */
json_t *ww_episode_graph(const struct ww_episode *e);
/* Its inputs, outputs and operators, grouped by launch where plan.c lists them; plan may be NULL. */
void ww_episode_html_graph(struct ww_str *h, const json_t *graph, const char *plan);
