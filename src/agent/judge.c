/* judge.c - the product's judge behind the loop's seam. */
#include "agent/agent.h"

static enum ww_rc run(void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v,
		      struct ww_err *err)
{
	return ww_judge_run(ctx, s, depth, v, err);
}

struct ww_agent_judge ww_agent_use_judge(struct ww_judge_task *t, const char *device_name)
{
	return (struct ww_agent_judge){ t, run, ww_judge_task_graph(t), &ww_judge_task_facts(t)->device, device_name };
}
