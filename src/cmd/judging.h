/* judging.h - the options that decide a verdict, which every command that judges has. */
#pragma once

#include "base/opt.h"
#include "judge/judge.h"

/* A member of the command's values; the rows below fill it.  A member without a row stays 0. */
struct ww_judging {
	const char *target, *rule, *baselines, *decide, *devices;
	int64_t device, threads;
	double max_time_s, max_compile_s;
};

/* Where: --target, --device, --threads. */
#define WW_OPT_DEVICE(type, judging) \
	{ "device", 0, WW_OPT_INT, offsetof(type, judging.device), "N", "0", 0, 1023, "which GPU, as CUDA counts them" }
#define WW_OPTS_WHERE(type, judging) \
	{ "target", 0, WW_OPT_CHOICE, offsetof(type, judging.target), "auto|cuda|cpu", "auto", 0, 0, \
		"where kernels run; auto: by the solution's files; without a solution cuda if a GPU is found, else cpu" }, \
		WW_OPT_DEVICE(type, judging), \
	{ "threads", 0, WW_OPT_INT, offsetof(type, judging.threads), "N", "0", 0, 1024, \
		"cpu target: threads; 0: all cores" }
/* Which GPUs, of commands that judge many things at once: --devices. */
#define WW_OPT_DEVICES(type, judging) \
	{ "devices", 0, WW_OPT_STR, offsetof(type, judging.devices), "all|0,2", "", 0, 0, \
		"judge on several GPUs, from one queue; one that fails is taken out" }
/* How: --rule, --baselines, --max-time-seconds, --max-compile-seconds. */
#define WW_OPTS_HOW(type, judging) \
	{ "rule", 0, WW_OPT_CHOICE, offsetof(type, judging.rule), "strict|paper", "strict", 0, 0, \
		"what counts as correct (docs/judge.md)" }, \
	{ "baselines", 0, WW_OPT_STR, offsetof(type, judging.baselines), "LIST", "eager,compile", 0, 0, \
		"time against these, separated by commas: eager, compile, autotune" }, \
	{ "max-time-seconds", 0, WW_OPT_NUM, offsetof(type, judging.max_time_s), "S", "10", 0.1, 10, \
		"time limit for timing one solution; less time gives wider intervals" }, \
	{ "max-compile-seconds", 0, WW_OPT_NUM, offsetof(type, judging.max_compile_s), "S", "60", 0.1, 3600, \
		"processor time for compiling the device code" }

/* What is timed for: --decide. */
#define WW_OPT_DECIDE(type, judging) \
	{ "decide", 0, WW_OPT_CHOICE, offsetof(type, judging.decide), "times|reward", "times", 0, 0, \
		"when timing ends: times: when their intervals are narrow; reward: as soon as the reward is certain" }

/* --devices as ordinals into devices (max of them at most), *n of them: 0 where the option was not given.  target: the
 * word of --target; with "cpu" the option is WW_ERR_USAGE. */
enum ww_rc ww_judging_devices(
	const char *list, const char *target, int *devices, int max, int *n, struct ww_err *err) WW_MUST_CHECK;

/* WW_JUDGE_DECIDE or WW_JUDGE_FULL by the word of --decide; NULL: FULL. */
enum ww_judge_depth ww_judging_depth(const char *decide);

/* "eager,compile" to a bit per enum ww_baseline; an unknown word is WW_ERR_USAGE. */
enum ww_rc ww_judging_baselines(const char *list, unsigned *out, struct ww_err *err) WW_MUST_CHECK;
/* The judge's options by the command line; target 0 for "auto".  Progress is the caller's to set. */
enum ww_rc ww_judging_opts(const struct ww_judging *v, struct ww_judge_opts *out, struct ww_err *err) WW_MUST_CHECK;
