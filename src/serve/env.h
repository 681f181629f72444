/* env.h - an environment for trainers: one episode at a time of the agent's loop, whose policy is the client.
 *
 * It is the loop of `optimize` (src/agent): same tools, same workspace, same limits, same record, same closing
 * judgement.  Only the next message comes from outside, as an action.  A long step does not block: its observation is
 * `pending`, and the client asks again.
 */
#pragma once

#include "agent/skill.h"
#include "serve/broker.h"

struct ww_env;

struct ww_env_opts {
	struct ww_broker *broker;
	const char *episodes;         /* directory in which records are kept; NULL: they are removed */
	const char *tasks;            /* task set (set.h) whose tasks may be named, and are drawn from; NULL: none */
	const struct ww_skill *skill; /* what the policy may read; NULL: none */
	int max_turns;
	double max_seconds;
};

/* JSON schemas of what reset() and step() take, and of what comes back; the first two are what arguments are checked
 * against. */
extern const char ww_env_reset_schema[], ww_env_action_schema[], ww_env_observation_schema[], ww_env_state_schema[];

enum ww_rc ww_env_new(struct ww_env **out, const struct ww_env_opts *o, struct ww_err *err) WW_MUST_CHECK;
/* Ends what runs. */
void ww_env_free(struct ww_env *e);

/* One client: these are called by one thread at a time.  WW_ERR_USAGE: data that do not fit, or that come at the wrong
 * time. */
enum ww_rc ww_env_reset(struct ww_env *e, const json_t *data, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_env_step(struct ww_env *e, const json_t *action, struct ww_err *err) WW_MUST_CHECK;
/* Wait until observe() would not be pending, at most so many seconds; 0: it still is. */
int ww_env_wait(struct ww_env *e, double seconds);
/* {"observation", "reward", "done"} of the last reset or step; after so many seconds at most, pending where it is not
 * there. */
enum ww_rc ww_env_observe(struct ww_env *e, double seconds, json_t **out, struct ww_err *err) WW_MUST_CHECK;
json_t *ww_env_state(struct ww_env *e);

/* Any thread: end the episode and all waiting. */
void ww_env_stop(struct ww_env *e);
