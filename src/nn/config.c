/* config.c - reads config.json strictly, writes it plainly.
 *
 * The file is untrusted, and a field that is ignored may change results silently.  So each field that could change them
 * is either implemented or refused by name; fields that only concern other programs (caches, versions) are ignored.
 * Sizes are bounded so that products of a few of them fit into 63 bits.
 *
 * transformers has two ways to write rotary scaling: "rope_theta" beside "rope_scaling" (before version 5) and one
 * object "rope_parameters".  Both are read; the older is written, since both generations load it.
 *
 * The frequency rules, with b = theta, d = head_dim, f_i = b^(-2i/d), w_i = 2 pi / f_i:
 *   linear   f_i / factor
 *   llama3   long waves (w_i > L / low) divided by factor, short ones (w_i < L / high) kept, a blend linear in L / w_i
 *            between
 *   yarn     (Peng et al., arXiv 2309.00071) f_i / factor for slow dimensions, f_i for fast ones, a ramp between those
 *            that turn beta_slow and beta_fast times over the original context; cos and sin grow by 0.1 ln(factor) + 1
 */
#include "nn/config.h"
#include "base/dtype.h"
#include "base/fs.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 4 << 20 };

static const struct {
	const char *model_type, *architecture, *critic;
} archs[] = { [WW_ARCH_LLAMA] = { "llama", "LlamaForCausalLM", "LlamaForSequenceClassification" },
	[WW_ARCH_QWEN2] = { "qwen2", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification" },
	[WW_ARCH_QWEN3] = { "qwen3", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification" } };

static const char *const rope_names[] = {
	[WW_ROPE_DEFAULT] = "default", [WW_ROPE_LINEAR] = "linear", [WW_ROPE_LLAMA3] = "llama3", [WW_ROPE_YARN] = "yarn"
};

const char *ww_arch_name(enum ww_arch a) { return archs[a].model_type; }

/* A reader that keeps the first error, so that the result is checked once and not for each field. */
struct reader {
	const json_t *obj;
	const char *what;
	enum ww_rc rc;
	struct ww_err *err;
};

static const json_t *member(const struct reader *r, const char *key)
{
	const json_t *v = json_object_get(r->obj, key);
	return json_is_null(v) ? NULL : v;
}

/* A whole number in min..max; def < 0: required, else the value where the member is absent or null. */
static int64_t whole(struct reader *r, const char *key, int64_t min, int64_t max, int64_t def)
{
	const json_t *v = member(r, key);
	if (r->rc != WW_OK || (!v && def >= 0))
		return def;
	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
		r->rc = ww_err_set(r->err, WW_ERR_USAGE, "%s: \"%s\" %s; a whole number from %lld to %lld is needed", r->what,
			key, v ? "is out of range" : "is missing", (long long)min, (long long)max);
		return min;
	}
	return json_integer_value(v);
}

static double number(struct reader *r, const char *key, double min, double max, double def)
{
	const json_t *v = member(r, key);
	if (r->rc != WW_OK || (!v && !isnan(def)))
		return def;
	double x = json_number_value(v);
	if (!json_is_number(v) || !(x >= min && x <= max)) {
		r->rc = ww_err_set(r->err, WW_ERR_USAGE, "%s: \"%s\" %s; a number from %g to %g is needed", r->what, key,
			v ? "is out of range" : "is missing", min, max);
		return min;
	}
	return x;
}

static int boolean(struct reader *r, const char *key, int def)
{
	const json_t *v = member(r, key);
	if (r->rc != WW_OK || !v)
		return def;
	if (!json_is_boolean(v))
		r->rc = ww_err_set(r->err, WW_ERR_USAGE, "%s: \"%s\" is not true or false", r->what, key);
	return json_is_true(v);
}

static void refuse(struct reader *r, const char *key, const char *why)
{
	if (r->rc == WW_OK)
		r->rc = ww_err_set(r->err, WW_ERR_USAGE, "%s: \"%s\" %s", r->what, key, why);
}

static double yarn_mscale(double factor, double m) { return factor <= 1 ? 1.0 : 0.1 * m * log(factor) + 1.0; }

static void read_yarn(struct reader *s, struct ww_rope *rope)
{
	rope->beta_fast = number(s, "beta_fast", 0, 1e6, 32);
	rope->beta_slow = number(s, "beta_slow", 0, 1e6, 1);
	rope->mscale = number(s, "mscale", 0, 100, 0);
	rope->mscale_all_dim = number(s, "mscale_all_dim", 0, 100, 0);
	rope->truncate = boolean(s, "truncate", 1);
	rope->attention_factor = number(s, "attention_factor", 0, 100, 0);
	if (rope->attention_factor > 0)
		return;
	if (rope->mscale > 0 && rope->mscale_all_dim > 0)
		rope->attention_factor = yarn_mscale(rope->factor, rope->mscale) /
			yarn_mscale(rope->factor, rope->mscale_all_dim);
	else
		rope->attention_factor = yarn_mscale(rope->factor, 1);
}

static void read_rope(struct reader *r, struct ww_config *c)
{
	struct ww_rope *rope = &c->rope;
	const json_t *v = member(r, "rope_parameters");
	if (!v)
		v = member(r, "rope_scaling");
	*rope = (struct ww_rope){ .type = WW_ROPE_DEFAULT, .factor = 1, .attention_factor = 1, .truncate = 1 };
	rope->theta = number(r, "rope_theta", 1.01, 1e12, 10000);
	if (!v || r->rc != WW_OK)
		return;
	if (!json_is_object(v)) {
		refuse(r, "rope_scaling", "is not an object");
		return;
	}
	struct reader s = { v, r->what, WW_OK, r->err };
	const char *type = ww_json_str(v, "rope_type", ww_json_str(v, "type", "default"));
	int t = ww_word_at(type, rope_names, WW_ARRAY_LEN(rope_names));
	if (t < 0) {
		r->rc = ww_err_set(r->err, WW_ERR_USAGE,
			"%s: rotary scaling \"%.40s\" is not supported (default, linear, llama3 and "
			"yarn are)",
			r->what, type);
		return;
	}
	rope->type = (enum ww_rope_type)t;
	rope->theta = number(&s, "rope_theta", 1.01, 1e12, rope->theta);
	if (number(&s, "partial_rotary_factor", 0, 1, 1) != 1)
		refuse(&s, "partial_rotary_factor", "other than 1 is not supported");
	if (t != WW_ROPE_DEFAULT)
		rope->factor = number(&s, "factor", 1, 1e6, NAN);
	if (t == WW_ROPE_LLAMA3) {
		rope->low_freq_factor = number(&s, "low_freq_factor", 1e-6, 1e6, NAN);
		rope->high_freq_factor = number(&s, "high_freq_factor", 1e-6, 1e6, NAN);
		if (s.rc == WW_OK && rope->high_freq_factor <= rope->low_freq_factor)
			refuse(&s, "high_freq_factor", "is not above low_freq_factor");
	}
	if (t == WW_ROPE_LLAMA3 || t == WW_ROPE_YARN)
		rope->original_max_position = whole(&s, "original_max_position_embeddings", 1, 1 << 30, c->max_position);
	if (t == WW_ROPE_YARN)
		read_yarn(&s, rope);
	r->rc = s.rc;
}

static void read_ids(struct reader *r, struct ww_config *c)
{
	int64_t last = c->vocab_size - 1;
	c->bos = member(r, "bos_token_id") ? whole(r, "bos_token_id", 0, last, -1) : -1;
	c->pad = member(r, "pad_token_id") && json_integer_value(member(r, "pad_token_id")) != -1
		? whole(r, "pad_token_id", 0, last, -1)
		: -1;
	const json_t *e = member(r, "eos_token_id");
	size_t n = json_is_array(e) ? json_array_size(e) : e != NULL;
	if (n > WW_EOS_MAX)
		refuse(r, "eos_token_id", "holds more than 8 ids");
	for (size_t i = 0; i < n && r->rc == WW_OK; i++) {
		const json_t *v = json_is_array(e) ? json_array_get(e, i) : e;
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > last)
			refuse(r, "eos_token_id", "is not an id of the vocabulary");
		c->eos[c->eos_count++] = json_integer_value(v);
	}
}

static void read_dtype(struct reader *r, struct ww_config *c)
{
	const json_t *v = member(r, "dtype") ? member(r, "dtype") : member(r, "torch_dtype");
	c->dtype = WW_F32;
	if (!v || r->rc != WW_OK)
		return;
	const char *name = json_string_value(v);
	int dtype = name ? ww_dtype_of(name) : 0;
	if (dtype == WW_F32 || dtype == WW_BF16 || dtype == WW_F16)
		c->dtype = dtype;
	else
		refuse(r, "torch_dtype", "is not float32, bfloat16 or float16");
}

static void read_arch(struct reader *r, struct ww_config *c)
{
	const char *name = json_string_value(member(r, "model_type"));
	const char *cls = json_string_value(json_array_get(member(r, "architectures"), 0));
	for (size_t i = 0; name && i < WW_ARRAY_LEN(archs); i++) {
		if (strcmp(name, archs[i].model_type))
			continue;
		c->arch = (enum ww_arch)i;
		c->critic = cls && !strcmp(cls, archs[i].critic);
		if (cls && !c->critic && strcmp(cls, archs[i].architecture))
			r->rc = ww_err_set(r->err, WW_ERR_USAGE, "%s: architecture %.60s is not supported; %s is", r->what, cls,
				archs[i].architecture);
		return;
	}
	r->rc = ww_err_set(r->err, WW_ERR_USAGE, "%s: model_type \"%.60s\" is not supported (llama, qwen2 and qwen3 are)",
		r->what, name ? name : "(none)");
}

static void read_refusals(struct reader *r, const struct ww_config *c)
{
	const char *act = json_string_value(member(r, "hidden_act"));
	if (act && strcmp(act, "silu"))
		refuse(r, "hidden_act", "other than \"silu\" is not supported");
	if (boolean(r, "use_sliding_window", 0))
		refuse(r, "use_sliding_window", "is not supported");
	if (member(r, "quantization_config"))
		refuse(r, "quantization_config", "is not supported: convert the model to bfloat16 first");
	if (number(r, "partial_rotary_factor", 0, 1, 1) != 1)
		refuse(r, "partial_rotary_factor", "other than 1 is not supported");
	const json_t *labels = member(r, "id2label");
	if (c->critic && whole(r, "num_labels", 0, 1 << 20, labels ? (int64_t)json_object_size(labels) : 2) != 1)
		refuse(r, "num_labels", "other than 1 is not supported: a classifier is read as a critic, which has one value");
	const json_t *kinds = member(r, "layer_types");
	for (size_t i = 0; i < json_array_size(kinds); i++) {
		const char *kind = json_string_value(json_array_get(kinds, i));
		if (!kind || strcmp(kind, "full_attention"))
			refuse(r, "layer_types", "other than \"full_attention\" are not supported");
	}
}

enum ww_rc ww_config_from_json(const json_t *v, const char *what, struct ww_config *c, struct ww_err *err)
{
	struct reader reader = { v, what, WW_OK, err }, *r = &reader;
	memset(c, 0, sizeof(*c));
	if (!json_is_object(v))
		return ww_err_set(err, WW_ERR_USAGE, "%s is not a JSON object", what);
	read_arch(r, c);
	if (r->rc != WW_OK)
		return r->rc;
	c->vocab_size = whole(r, "vocab_size", 1, 1 << 22, -1);
	c->hidden_size = whole(r, "hidden_size", 1, 1 << 20, -1);
	c->intermediate_size = whole(r, "intermediate_size", 1, 1 << 22, -1);
	c->layers = whole(r, "num_hidden_layers", 1, 1024, -1);
	c->heads = whole(r, "num_attention_heads", 1, 4096, -1);
	c->kv_heads = whole(r, "num_key_value_heads", 1, 4096, c->heads > 0 ? c->heads : 1);
	c->head_dim = whole(r, "head_dim", 2, WW_HEAD_DIM_MAX,
		c->arch == WW_ARCH_QWEN3 ? 128
			: c->heads > 0       ? c->hidden_size / c->heads
								 : 0);
	c->max_position = whole(r, "max_position_embeddings", 1, 1 << 30, c->arch == WW_ARCH_LLAMA ? 2048 : 32768);
	c->rms_eps = number(r, "rms_norm_eps", 0, 1, 1e-6);
	c->initializer_range = number(r, "initializer_range", 0, 10, 0.02);
	c->tie_embeddings = boolean(r, "tie_word_embeddings", 0);
	int bias = c->arch == WW_ARCH_QWEN2 ? 0 : boolean(r, "attention_bias", 0);
	c->qkv_bias = c->arch == WW_ARCH_QWEN2 || bias;
	c->o_bias = bias;
	c->mlp_bias = c->arch == WW_ARCH_LLAMA && boolean(r, "mlp_bias", 0);
	c->qk_norm = c->arch == WW_ARCH_QWEN3;
	read_rope(r, c);
	read_ids(r, c);
	read_dtype(r, c);
	read_refusals(r, c);
	if (r->rc == WW_OK && c->heads % c->kv_heads)
		r->rc = ww_err_set(err, WW_ERR_USAGE, "%s: %lld attention heads cannot be shared by %lld key-value heads", what,
			(long long)c->heads, (long long)c->kv_heads);
	if (r->rc == WW_OK && (c->head_dim < 2 || c->head_dim > WW_HEAD_DIM_MAX || c->head_dim % 2))
		r->rc = ww_err_set(err, WW_ERR_USAGE, "%s: a head of %lld dimensions is not supported (even, 2 to %d)", what,
			(long long)c->head_dim, WW_HEAD_DIM_MAX);
	return r->rc;
}

enum ww_rc ww_config_read(const char *path, struct ww_config *out, struct ww_err *err)
{
	json_auto_t *v = NULL;
	enum ww_rc rc = ww_json_read_file(path, CONFIG_MAX_BYTES, &v, err);
	if (rc == WW_ERR_PROTOCOL)
		rc = err->rc = WW_ERR_USAGE;
	if (rc == WW_OK)
		rc = ww_config_from_json(v, path, out, err);
	return rc;
}

static void set_id(json_t *v, const char *key, int64_t id)
{
	json_object_set_new(v, key, id < 0 ? json_null() : json_integer(id));
}

static json_t *rope_to_json(const struct ww_rope *r)
{
	if (r->type == WW_ROPE_DEFAULT)
		return json_null();
	json_t *v = json_pack("{s:s, s:f}", "rope_type", rope_names[r->type], "factor", r->factor);
	if (r->type == WW_ROPE_LLAMA3) {
		json_object_set_new(v, "low_freq_factor", json_real(r->low_freq_factor));
		json_object_set_new(v, "high_freq_factor", json_real(r->high_freq_factor));
	}
	if (r->type != WW_ROPE_LINEAR)
		json_object_set_new(v, "original_max_position_embeddings", json_integer(r->original_max_position));
	if (r->type == WW_ROPE_YARN) {
		json_object_set_new(v, "beta_fast", json_real(r->beta_fast));
		json_object_set_new(v, "beta_slow", json_real(r->beta_slow));
		json_object_set_new(v, "attention_factor", json_real(r->attention_factor));
		json_object_set_new(v, "truncate", json_boolean(r->truncate));
		if (r->mscale > 0)
			json_object_set_new(v, "mscale", json_real(r->mscale));
		if (r->mscale_all_dim > 0)
			json_object_set_new(v, "mscale_all_dim", json_real(r->mscale_all_dim));
	}
	return v;
}

json_t *ww_config_to_json(const struct ww_config *c)
{
	json_t *v = json_pack(
		"{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:b, s:s, s:s, s:b}", "architectures",
		c->critic ? archs[c->arch].critic : archs[c->arch].architecture, "model_type", archs[c->arch].model_type,
		"vocab_size", (json_int_t)c->vocab_size, "hidden_size", (json_int_t)c->hidden_size, "intermediate_size",
		(json_int_t)c->intermediate_size, "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads",
		(json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim,
		"max_position_embeddings", (json_int_t)c->max_position, "rms_norm_eps", c->rms_eps, "initializer_range",
		c->initializer_range, "rope_theta", c->rope.theta, "rope_scaling", rope_to_json(&c->rope),
		"tie_word_embeddings", c->tie_embeddings, "hidden_act", "silu", "torch_dtype", ww_dtype_name(c->dtype),
		"use_cache", 1);
	WW_BUG(!v);
	if (c->critic) {
		json_object_set_new(v, "id2label", json_pack("{s:s}", "0", "value"));
		json_object_set_new(v, "label2id", json_pack("{s:i}", "value", 0));
	}
	if (c->arch != WW_ARCH_QWEN2)
		json_object_set_new(v, "attention_bias", json_boolean(c->qkv_bias));
	if (c->arch == WW_ARCH_LLAMA)
		json_object_set_new(v, "mlp_bias", json_boolean(c->mlp_bias));
	set_id(v, "bos_token_id", c->bos);
	set_id(v, "pad_token_id", c->pad);
	if (c->eos_count > 1) {
		json_t *list = json_array();
		for (int i = 0; i < c->eos_count; i++)
			json_array_append_new(list, json_integer(c->eos[i]));
		json_object_set_new(v, "eos_token_id", list);
	} else {
		set_id(v, "eos_token_id", c->eos_count ? c->eos[0] : -1);
	}
	return v;
}

enum ww_rc ww_config_write(const char *path, const struct ww_config *c, struct ww_err *err)
{
	json_auto_t *v = ww_config_to_json(c);
	return ww_json_write_file(NULL, path, CONFIG_MAX_BYTES, v, err);
}

uint64_t ww_config_params(const struct ww_config *c)
{
	uint64_t h = (uint64_t)c->hidden_size, d = (uint64_t)c->head_dim, f = (uint64_t)c->intermediate_size;
	uint64_t q = (uint64_t)c->heads * d, kv = (uint64_t)c->kv_heads * d;
	uint64_t layer = 2 * h + h * (2 * q + 2 * kv) + 3 * h * f;
	layer += c->qkv_bias ? q + 2 * kv : 0;
	layer += c->o_bias ? h : 0;
	layer += c->mlp_bias ? 2 * f + h : 0;
	layer += c->qk_norm ? 2 * d : 0;
	uint64_t head = c->critic ? h : c->tie_embeddings ? 0 : (uint64_t)c->vocab_size * h;
	return (uint64_t)c->layers * layer + h + (uint64_t)c->vocab_size * h + head;
}

static double llama3_frequency(const struct ww_rope *r, double f)
{
	double wave = 2 * M_PI / f, l = (double)r->original_max_position;
	if (wave < l / r->high_freq_factor)
		return f;
	if (wave > l / r->low_freq_factor)
		return f / r->factor;
	double keep = (l / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
	return (1 - keep) * f / r->factor + keep * f;
}

/* The (fractional) pair whose wave turns `turns` times over the original context. */
static double yarn_pair(const struct ww_rope *r, double head_dim, double turns)
{
	return head_dim * log((double)r->original_max_position / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static double yarn_frequency(const struct ww_rope *r, int64_t head_dim, int64_t i, double f)
{
	double low = yarn_pair(r, (double)head_dim, r->beta_fast), high = yarn_pair(r, (double)head_dim, r->beta_slow);
	if (r->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, (double)head_dim - 1);
	if (low == high)
		high += 0.001;
	double slow = fmin(fmax(((double)i - low) / (high - low), 0), 1);
	return slow * f / r->factor + (1 - slow) * f;
}

void ww_rope_frequencies(const struct ww_rope *r, int64_t head_dim, float *out, float *attention_factor)
{
	*attention_factor = (float)r->attention_factor;
	for (int64_t i = 0; i < head_dim / 2; i++) {
		double f = pow(r->theta, -2.0 * (double)i / (double)head_dim);
		if (r->type == WW_ROPE_LINEAR)
			f /= r->factor;
		else if (r->type == WW_ROPE_LLAMA3)
			f = llama3_frequency(r, f);
		else if (r->type == WW_ROPE_YARN)
			f = yarn_frequency(r, head_dim, i, f);
		out[i] = (float)f;
	}
}
