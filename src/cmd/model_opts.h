/* model_opts.h - the options of a model that is run in this process, for each command that opens one. */
#pragma once

#include "base/opt.h"
#include "nn/generate.h"

/* `batch` and `cache`: members of the command's values; 0 leaves the choice to the engine. */
#define WW_OPTS_MODEL(type, batch, cache) \
	{ "model-batch", 0, WW_OPT_INT, offsetof(type, batch), "N", "0", 0, WW_GENERATE_ROWS, \
		"a model run here: replies generated at a time; 0: 256 on a GPU, 32 on the cpu" }, \
	{ "model-cache", 0, WW_OPT_INT, offsetof(type, cache), "TOKENS", "0", 0, 1e12, \
		"a model run here: tokens of all its conversations that are held; 0: what fits into 24 GiB on a GPU, 2 GiB on the cpu" }
