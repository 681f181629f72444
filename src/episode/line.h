/* line.h - words that reading and writing share. */
#pragma once

#include "episode/message.h"

const char *ww_episode_finish_name(enum ww_finish f); /* "tool_calls" */
