/* agent_opts.h - the options of a policy and of the loop around it, for the commands that run episodes. */
#pragma once

#include "agent/agent.h"
#include "agent/rundir.h"
#include "base/opt.h"
#include "cmd/judging.h"
#include "cmd/model_opts.h"

#include <jansson.h>

/* A member of the command's values; the rows below fill it. */
struct ww_agent_values {
	const char *policy, *form, *loop, *base_url, *prices, *effort, *skill, *prompt;
	int64_t max_turns, seed, max_tokens, context_tokens, max_reply_tokens, model_batch, model_cache;
	double max_seconds, max_usd, max_gpu_s, call_s;
	int no_compaction, no_algebra;
};

/* turns, seconds: the defaults, as text. */
#define WW_OPTS_AGENT(type, agent, turns, seconds) \
	{ "policy", 0, WW_OPT_STR, offsetof(type, agent.policy), "P", "planner", 0, 0, \
		"policy that writes the kernel: planner, model:DIR, planner+DIR, openai:MODEL, anthropic:MODEL, or replay:EPISODE" }, \
	{ "no-algebra", 0, WW_OPT_FLAG, offsetof(type, agent.no_algebra), NULL, NULL, 0, 0, \
		"keep the planner from rewriting by algebra (docs/planner.md); the same as --policy planner:no-algebra" }, \
	{ "form", 0, WW_OPT_CHOICE, offsetof(type, agent.form), "plan|kernelbench|cuda-agent", "plan", 0, 0, \
		"what the policy writes: a plan with its kernels, KernelBench's ModelNew, CUDA Agent's directory " \
		"(docs/forms.md)" }, \
	{ "loop", 0, WW_OPT_CHOICE, offsetof(type, agent.loop), "agent|single|refine", "agent", 0, 0, \
		"agent: the policy calls tools; single: it answers once; refine: it answers and is told the verdict, again " \
		"and again" }, \
	{ "base-url", 0, WW_OPT_STR, offsetof(type, agent.base_url), "URL", NULL, 0, 0, \
		"server of an openai: or anthropic: policy (default OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the " \
		"provider's)" }, \
	{ "effort", 0, WW_OPT_STR, offsetof(type, agent.effort), "WORD", NULL, 0, 0, \
		"reasoning effort of a model, in its provider's words: low, medium, high" }, \
	{ "prices", 0, WW_OPT_STR, offsetof(type, agent.prices), "FILE", NULL, 0, 0, \
		"prices of models, which override the built-in ones (docs/policies.md)" }, \
	{ "skill", 0, WW_OPT_STR, offsetof(type, agent.skill), "DIR", "cuda", 0, 0, \
		"skill that the policy is given: a folder with SKILL.md; cuda: the built-in one, for plans; none" }, \
	{ "prompt", 0, WW_OPT_CHOICE, offsetof(type, agent.prompt), "auto|full|compact", "auto", 0, 0, \
		"what the policy is told: the rules, the tools, the skill and the module, or the task's graph in a thousand " \
		"tokens; auto: as a model:DIR was trained, else full" }, \
	{ "max-turns", 0, WW_OPT_INT, offsetof(type, agent.max_turns), "N", turns, 1, 100000, \
		"stop after N messages of the policy" }, \
	{ "max-seconds", 0, WW_OPT_NUM, offsetof(type, agent.max_seconds), "S", seconds, 1, 1e7, \
		"stop after S seconds; a step under way is finished first" }, \
	{ "max-usd", 0, WW_OPT_NUM, offsetof(type, agent.max_usd), "D", NULL, 1e-6, 1e6, \
		"spend at most D US dollars on a model; one call may exceed it" }, \
	{ "max-tokens", 0, WW_OPT_INT, offsetof(type, agent.max_tokens), "N", NULL, 1, 1e15, \
		"use at most N tokens of a model, prompts and replies of all calls together" }, \
	{ "max-gpu-seconds", 0, WW_OPT_NUM, offsetof(type, agent.max_gpu_s), "S", NULL, 1e-3, 1e9, \
		"hold the device for at most S seconds, all judgements together" }, \
	{ "context-tokens", 0, WW_OPT_INT, offsetof(type, agent.context_tokens), "N", "131072", 4096, 1e9, \
		"maximum tokens of the conversation that a model is shown" }, \
	{ "no-compaction", 0, WW_OPT_FLAG, offsetof(type, agent.no_compaction), NULL, NULL, 0, 0, \
		"end when the context is full, instead of removing old outputs of tools from it" }, \
	{ "max-reply-tokens", 0, WW_OPT_INT, offsetof(type, agent.max_reply_tokens), "N", "32768", 16, 1e6, \
		"maximum tokens of one reply of a model, its reasoning included" }, \
	WW_OPTS_MODEL(type, agent.model_batch, agent.model_cache), \
	{ "call-seconds", 0, WW_OPT_NUM, offsetof(type, agent.call_s), "S", "1800", 0.1, 86400, \
		"give up a call of a model after S seconds and retry it" }, \
	{ "seed", 0, WW_OPT_INT, offsetof(type, agent.seed), "N", "0", 0, 0, \
		"seed of the policy; the judge's own is secret" }

struct ww_policy;
/* Replace options that are short for others (--no-algebra).  Call it before the functions below. */
enum ww_rc ww_agent_values_settle(struct ww_agent_values *v, struct ww_err *err) WW_MUST_CHECK;
enum ww_form ww_agent_values_form(const struct ww_agent_values *v);
enum ww_rc ww_agent_values_policy(
	const struct ww_agent_values *v, uint64_t seed, struct ww_policy **out, struct ww_err *err) WW_MUST_CHECK;
/* *has is 0 with --skill none, and with the built-in skill where the form is not plans; else the caller closes the
 * skill. */
enum ww_rc ww_agent_values_skill(
	const struct ww_agent_values *v, struct ww_skill *skill, int *has, struct ww_err *err) WW_MUST_CHECK;
/* The limits of a run of n episodes, and what earlier processes used of them; the caller frees the budget. */
enum ww_rc ww_agent_values_budget(const struct ww_agent_values *v, const struct ww_rundir *dir, int n,
	struct ww_budget **out, struct ww_err *err) WW_MUST_CHECK;
/* The prompt that the policy gets: --prompt, or with auto what its model was trained with. */
enum ww_prompt ww_agent_values_prompt(const struct ww_agent_values *v, struct ww_policy *policy);
/* An episode's options from the command line: limits, rule, baselines, context (at most that of the policy's model).
 * The caller fills in the rest. */
struct ww_agent_opts ww_agent_values_opts(
	const struct ww_agent_values *v, const struct ww_judge_opts *judge, struct ww_policy *policy);
/* Fill a new episode's header from the command line: what it borrows must outlive it. */
void ww_agent_header(struct ww_episode_header *h, const struct ww_agent_values *v, const struct ww_judge_opts *judge,
	const struct ww_task *task, const char *device_name, uint64_t seed, const struct ww_skill *skill);
void ww_agent_header_release(struct ww_episode_header *h);
/* What this program uses: its version, those of Python and PyTorch, the skill (may be NULL); a new reference. */
json_t *ww_agent_versions(const struct ww_skill *skill);
