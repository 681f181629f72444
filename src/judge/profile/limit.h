/* limit.h - what keeps a node from being faster, in one sentence. */
#pragma once

#include "base/str.h"
#include "judge/profile/work.h"
#include "judge/run/profile.h"

/* Everything that is known of a node. */
struct ww_limit_facts {
	const struct ww_device *device;
	const struct ww_roof *roof;
	const struct ww_image_node *node;
	const struct ww_run_profile_node *row;
	const struct ww_position *position, *plan; /* of the node and of the whole plan */
	const struct ww_occupancy *occupancy;
	double us; /* that the position is about */
};
/* "memory", "compute", "cache", "issue", "threads", "occupancy", "spills", "tail", "latency" or "short", and the
 * sentence. */
const char *ww_limit_name(const struct ww_limit_facts *f, struct ww_str *sentence);
