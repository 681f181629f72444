/* prompt.h - the first two messages of an episode. */
#pragma once

#include "agent/agent.h"

/* Goal, rules, tools, workflow, budgets.  malloc'ed; NULL out of memory. */
char *ww_prompt_system(const struct ww_agent_opts *o);
/* The limits as the episode's header has them; NULL out of memory. */
json_t *ww_prompt_limits(const struct ww_agent_opts *o);
/* The task's source, or in the compact prompt its graph.  malloc'ed; NULL out of memory. */
char *ww_prompt_task(const struct ww_agent_opts *o);
