/* judge.c - the product's judge behind the loop's seam. */
#include "agent/agent.h"

#include "judge/profile/profile.h"

static enum ww_rc run(void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v,
		      struct ww_err *err)
{
	return ww_judge_run(ctx, s, depth, v, err);
}

static enum ww_rc profile(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	return s ? ww_profile_solution(ctx, s, out, err) : ww_profile_reference(ctx, out, err);
}

struct ww_agent_judge ww_agent_use_judge(struct ww_judge_task *t, const char *device_name)
{
	return (struct ww_agent_judge){ t, run, profile, ww_judge_task_graph(t), &ww_judge_task_facts(t)->device, device_name };
}
