/* target.h - a target's word on command lines, in JSON and in arguments of workers. */
#pragma once

#include <string.h>
#include <ww/plan.h>

static inline const char *ww_target_name(enum ww_target target) { return target == WW_TARGET_CUDA ? "cuda" : "cpu"; }

/* 0 for any other word ("auto"). */
static inline enum ww_target ww_target_of(const char *word)
{
	return !strcmp(word, "cuda") ? WW_TARGET_CUDA : !strcmp(word, "cpu") ? WW_TARGET_CPU : (enum ww_target)0;
}
