/* judge.c - the real judge as the struct ww_agent_judge that the loop calls. */
#include "agent/agent.h"

#include "base/time.h"
#include "judge/profile/profile.h"

static enum ww_rc run(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	return ww_judge_run(ctx, s, depth, v, err);
}

static enum ww_rc profile(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	WW_CHECK(s ? ww_profile_solution(ctx, s, out, err) : ww_profile_reference(ctx, out, err));
	/* The budget counts how long it held the device; a resumed run reads it from the episode. */
	json_object_set_new(*out, "device_seconds", json_real(ww_seconds_since(start)));
	return WW_OK;
}

const char *ww_loop_name(enum ww_loop l)
{
	static const char *const names[] = { "agent", "single", "refine" };
	return names[l];
}

struct ww_agent_judge ww_agent_use_judge(struct ww_judge_task *t, const char *device_name)
{
	return (struct ww_agent_judge){ .ctx = t,
		.run = run,
		.profile = profile,
		.graph = ww_judge_task_graph(t),
		.device = &ww_judge_task_facts(t)->device,
		.device_name = device_name };
}
