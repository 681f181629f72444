/* rule.h - names of the comparison rules and of the baselines, shared by the judge and the reference worker. */
#pragma once

#define WW_MAX_OUTPUTS 64

enum ww_rule { WW_RULE_STRICT = 0, WW_RULE_PAPER = 1 };
/* Three of PyTorch's, and another solution of the same task (judge --baseline DIR). */
enum ww_baseline {
	WW_BASE_EAGER = 0,
	WW_BASE_COMPILE = 1,
	WW_BASE_AUTOTUNE = 2,
	WW_BASE_SOLUTION = 3,
	WW_BASE_COUNT = 4
};
enum { WW_BASE_TORCH_COUNT = WW_BASE_SOLUTION };
const char *ww_rule_name(enum ww_rule r);         /* "strict"; beyond the last "?" */
const char *ww_baseline_name(enum ww_baseline b); /* "eager" */
