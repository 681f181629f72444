/* keys.h - the stages of `train`, and which keys each of them reads (keys.def). */
#pragma once

#include "base/err.h"
#include "base/opt.h"

/* STAGE(name of the value, word) */
#define WW_STAGES(STAGE) \
	STAGE(PRETRAIN, "pretrain") STAGE(SFT, "sft") STAGE(PPO, "ppo") STAGE(RFT, "rft") STAGE(VALUE, "value") \
	STAGE(AGENTIC, "agentic") STAGE(PIPELINE, "pipeline")
enum {
#define STAGE(name, word) WW_STAGE_AT_##name,
	WW_STAGES(STAGE)
#undef STAGE
		WW_STAGE_COUNT
};
enum {
#define STAGE(name, word) WW_STAGE_##name = 1 << WW_STAGE_AT_##name,
	WW_STAGES(STAGE)
#undef STAGE
};

/* The sets of stages in keys.def, and the words before their help; train/test_keys holds both together. */
#define WW_KEYS_ALL ((1 << WW_STAGE_COUNT) - 1)
#define WW_KEYS_ALL_WORDS ""
#define WW_KEYS_SFT (WW_STAGE_SFT)
#define WW_KEYS_SFT_WORDS "sft: "
#define WW_KEYS_NEW (WW_STAGE_PRETRAIN | WW_STAGE_SFT)
#define WW_KEYS_NEW_WORDS "pretrain, sft: "
#define WW_KEYS_TEXT (WW_STAGE_PRETRAIN | WW_STAGE_SFT | WW_STAGE_RFT)
#define WW_KEYS_TEXT_WORDS "pretrain, sft, rft: "
#define WW_KEYS_DATA (WW_STAGE_PRETRAIN | WW_STAGE_SFT | WW_STAGE_RFT | WW_STAGE_VALUE)
#define WW_KEYS_DATA_WORDS "pretrain, sft, rft, value: "
#define WW_KEYS_STEPS (WW_STAGE_PRETRAIN | WW_STAGE_SFT | WW_STAGE_PPO | WW_STAGE_RFT | WW_STAGE_AGENTIC)
#define WW_KEYS_STEPS_WORDS "pretrain, sft, ppo, rft, agentic: "
#define WW_KEYS_AGENTIC (WW_STAGE_AGENTIC)
#define WW_KEYS_AGENTIC_WORDS "agentic: "
#define WW_KEYS_POLICY (WW_STAGE_PPO | WW_STAGE_AGENTIC)
#define WW_KEYS_POLICY_WORDS "ppo, agentic: "
#define WW_KEYS_SAMPLE (WW_STAGE_PPO | WW_STAGE_RFT | WW_STAGE_AGENTIC)
#define WW_KEYS_SAMPLE_WORDS "ppo, rft, agentic: "
#define WW_KEYS_LOOP (WW_STAGE_RFT | WW_STAGE_AGENTIC)
#define WW_KEYS_LOOP_WORDS "rft, agentic: "
#define WW_KEYS_RFT (WW_STAGE_RFT)
#define WW_KEYS_RFT_WORDS "rft: "
#define WW_KEYS_RL (WW_STAGE_PPO | WW_STAGE_RFT | WW_STAGE_VALUE | WW_STAGE_AGENTIC)
#define WW_KEYS_RL_WORDS "ppo, rft, value, agentic: "
#define WW_KEYS_CRITIC (WW_STAGE_PPO | WW_STAGE_VALUE | WW_STAGE_AGENTIC)
#define WW_KEYS_CRITIC_WORDS "ppo, value, agentic: "

/* The option table of `train`, in the order of keys.def, and WW_OPT_JSON behind it. */
extern const struct ww_opt ww_recipe_keys[];
/* WW_STAGE_... of "sft"; 0: there is no such stage. */
unsigned ww_stage_of(const char *word);
/* The stages that read a key; 0: there is no such key. */
unsigned ww_key_stages(const char *key);
/* WW_ERR_USAGE where the stage does not read the key; the message names the stages that do.  An unknown key is fine. */
enum ww_rc ww_key_check(const char *key, const char *stage, struct ww_err *err) WW_MUST_CHECK;
