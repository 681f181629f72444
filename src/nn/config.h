/* config.h - the shape of a model: Hugging Face's config.json for the Llama, Qwen2 and Qwen3 architectures. */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

enum ww_arch { WW_ARCH_LLAMA, WW_ARCH_QWEN2, WW_ARCH_QWEN3 };
enum ww_rope_type { WW_ROPE_DEFAULT, WW_ROPE_LINEAR, WW_ROPE_LLAMA3, WW_ROPE_YARN };

enum { WW_EOS_MAX = 8, WW_HEAD_DIM_MAX = 512 };

struct ww_rope {
	enum ww_rope_type type;
	double theta;
	double factor;                            /* linear, llama3, yarn */
	double low_freq_factor, high_freq_factor; /* llama3 */
	int64_t original_max_position;            /* llama3, yarn */
	double beta_fast, beta_slow;              /* yarn */
	double attention_factor;                  /* yarn: scales cos and sin; resolved when the config is read */
	double mscale, mscale_all_dim;            /* yarn: kept for writing back; 0: absent */
	int truncate;                             /* yarn: round the correction range to whole dimensions */
};

struct ww_config {
	enum ww_arch arch;
	int64_t vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads, head_dim, max_position;
	double rms_eps, initializer_range;
	struct ww_rope rope;
	int tie_embeddings;
	int qkv_bias, o_bias, mlp_bias, qk_norm;
	int critic;       /* one number a token instead of a distribution over the vocabulary */
	int64_t bos, pad; /* -1: none */
	int64_t eos[WW_EOS_MAX];
	int eos_count;
	int dtype; /* enum ww_dtype of the stored weights; default WW_F32 */
};

/* Read and check a config.json.  Another architecture, another activation, sliding windows, quantisation and every
 * number out of range are refused by name. */
enum ww_rc ww_config_read(const char *path, struct ww_config *out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_config_from_json(
	const json_t *v, const char *what, struct ww_config *out, struct ww_err *err) WW_MUST_CHECK;
/* The same as an object that transformers loads; the caller owns it. */
json_t *ww_config_to_json(const struct ww_config *c);
enum ww_rc ww_config_write(const char *path, const struct ww_config *c, struct ww_err *err) WW_MUST_CHECK;

/* Number of parameters, tied ones counted once. */
uint64_t ww_config_params(const struct ww_config *c);
const char *ww_arch_name(enum ww_arch a); /* "qwen3", as model_type */

/* The angle per position of each pair of dimensions, out[0 .. head_dim/2-1], and the factor on cos and sin. */
void ww_rope_frequencies(const struct ww_rope *r, int64_t head_dim, float *out, float *attention_factor);
