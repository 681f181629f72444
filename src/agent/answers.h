/* answers.h - what the tools of a recorded episode answered, for running it again without them. */
#pragma once

#include "base/err.h"
#include "episode/episode.h"

/* The recorded answer to a call, borrowed.  WW_ERR_USAGE: the episode has no such call, or one with another name or
 * other arguments. */
enum ww_rc ww_answers_find(const struct ww_episode *e, const struct ww_tool_call *call, const struct ww_message **out,
	struct ww_err *err) WW_MUST_CHECK;
/* The newest verdict about this solution under this call; NULL: none. */
const struct ww_episode_verdict *ww_answers_verdict(
	const struct ww_episode *e, const char *call_id, const char *solution);
/* 1: the verdict was given during this call, by the tool itself or by a process that it started ("call_7_0.2"). */
int ww_answers_is_of(const struct ww_episode_verdict *v, const char *call_id);
