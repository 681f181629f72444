/* faults.h - what makes an episode a poor example: detectors for rejection fine-tuning, each by itself. */
#pragma once

#include "episode/episode.h"

#include <stdint.h>

/* FAULT(name, word, what it is) */
#define WW_FAULTS(FAULT) \
	FAULT(REWARD, "reward", "the final reward is not above 0") \
	FAULT(REPEATED, "repeated", "a call with the arguments and the answer of the call before it") \
	FAULT(REVERIFIED, "reverified", "the solution was judged again, as deeply, without a change") \
	FAULT(IDLE, "idle", "more than idle-turns replies in a row that changed no file") \
	FAULT(INVALID, "invalid", "a call of an unknown tool, or with arguments that are no JSON or against its schema")
enum ww_fault {
#define FAULT(name, word, what) WW_FAULT_##name,
	WW_FAULTS(FAULT)
#undef FAULT
		WW_FAULT_COUNT
};
const char *ww_fault_word(enum ww_fault f);

/* A bit (1 << enum ww_fault) for each that the episode has; 0: none.  idle_turns: 0 for no limit. */
unsigned ww_episode_faults(const struct ww_episode *e, int64_t idle_turns);
