/* params.c - the parameters of a model: their names and offsets, new values, and reading and writing them.
 *
 * All weights lie in one device array, each parameter at a multiple of 64 elements, in the order of the checkpoint; so
 * the optimizer, gradients and the sum of squares run over one array, and an exchange between devices is one transfer.
 * The padding is zero and stays zero.
 *
 * A checkpoint must hold exactly the tensors that the config implies: a missing one would leave noise, an unknown one
 * means that the model computes something that this program does not.  Only two exceptions are known: rotary
 * frequencies that old versions stored, and the second copy of tied weights.
 */
#include "nn/run.h"
#include "nn/safetensors.h"
#include "nn/settings.h"
#include "nn/state.h"
#include "base/fs.h"
#include "base/rng.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGN = 64, PIECE = 1 << 20, FILL_THREADS = 16, FILL_LEAST = 1 << 16, TOKENIZER_FILE_MAX = 256 << 20 };

struct list {
	struct ww_param *p;
	int count;
	size_t cap;
	int64_t at;
	int failed;
};

static void add(struct list *l, int layer, const char *name, int64_t rows, int64_t cols)
{
	if (!WW_GROW(l->p, &l->cap, l->count + 1)) {
		l->failed = 1;
		return;
	}
	struct ww_param *p = &l->p[l->count++];
	*p = (struct ww_param){ .rank = cols ? 2 : 1, .rows = rows, .cols = cols ? cols : 1, .offset = l->at };
	p->n = p->rows * p->cols;
	if (layer < 0)
		snprintf(p->name, sizeof(p->name), "%s", name);
	else
		snprintf(p->name, sizeof(p->name), "model.layers.%d.%s", layer, name);
	l->at += (p->n + ALIGN - 1) / ALIGN * ALIGN;
}

static void add_layer(struct list *l, const struct ww_config *c, int i)
{
	int64_t h = c->hidden_size, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, f = c->intermediate_size;
	static const char *const biases[] = { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" };
	add(l, i, "input_layernorm.weight", h, 0);
	add(l, i, "self_attn.q_proj.weight", q, h);
	add(l, i, "self_attn.k_proj.weight", kv, h);
	add(l, i, "self_attn.v_proj.weight", kv, h);
	add(l, i, "self_attn.o_proj.weight", h, q);
	for (int k = 0; c->qkv_bias && k < 3; k++)
		add(l, i, biases[k], k ? kv : q, 0);
	if (c->o_bias)
		add(l, i, "self_attn.o_proj.bias", h, 0);
	if (c->qk_norm) {
		add(l, i, "self_attn.q_norm.weight", c->head_dim, 0);
		add(l, i, "self_attn.k_norm.weight", c->head_dim, 0);
	}
	add(l, i, "post_attention_layernorm.weight", h, 0);
	add(l, i, "mlp.gate_proj.weight", f, h);
	add(l, i, "mlp.up_proj.weight", f, h);
	add(l, i, "mlp.down_proj.weight", h, f);
	if (c->mlp_bias) {
		add(l, i, "mlp.gate_proj.bias", f, 0);
		add(l, i, "mlp.up_proj.bias", f, 0);
		add(l, i, "mlp.down_proj.bias", h, 0);
	}
}

/* The parameters of an architecture, in the order of the checkpoint; free with free(). */
static enum ww_rc list_params(
	const struct ww_config *c, struct ww_param **out, int *count, int64_t *n, struct ww_err *err)
{
	struct list l = { 0 };
	add(&l, -1, "model.embed_tokens.weight", c->vocab_size, c->hidden_size);
	for (int i = 0; i < c->layers; i++)
		add_layer(&l, c, i);
	add(&l, -1, "model.norm.weight", c->hidden_size, 0);
	if (c->critic)
		add(&l, -1, "score.weight", 1, c->hidden_size);
	else if (!c->tie_embeddings)
		add(&l, -1, "lm_head.weight", c->vocab_size, c->hidden_size);
	if (l.failed) {
		free(l.p);
		return ww_nomem(err);
	}
	*out = l.p;
	*count = l.count;
	*n = l.at;
	return WW_OK;
}

int64_t ww_params_padded(const struct ww_config *c)
{
	struct ww_param *params;
	struct ww_err ignored;
	int64_t n;
	int count;
	if (list_params(c, &params, &count, &n, &ignored) != WW_OK)
		return 0;
	free(params);
	return n;
}

uint64_t ww_model_bytes(const struct ww_config *c, int dtype)
{
	uint64_t n = (uint64_t)ww_params_padded(c);
	return n ? n * ww_dtype_bytes(dtype) + WW_HEAD_DIM_MAX / 2 * sizeof(float) : 0;
}

const struct ww_param *ww_model_param(const struct ww_model *m, const char *name)
{
	for (int i = 0; i < m->count; i++)
		if (!strcmp(m->params[i].name, name))
			return &m->params[i];
	return NULL;
}

struct ww_arr ww_model_weight(const struct ww_model *m, const struct ww_param *p)
{
	return (struct ww_arr){ (char *)m->weights + (size_t)p->offset * ww_dtype_bytes(m->dtype), m->dtype };
}

const struct ww_param *ww_model_head(const struct ww_model *m)
{
	return m->config.tie_embeddings && !m->config.critic ? &m->params[0] : &m->params[m->count - 1];
}

static enum ww_rc model_alloc(
	const struct ww_config *c, struct ww_dev *dev, int dtype, struct ww_model **out, struct ww_err *err)
{
	struct ww_model *m;
	float freq[WW_HEAD_DIM_MAX / 2];
	enum ww_rc rc;
	WW_CHECK(WW_NEW(m, 1, err));
	m->config = *c;
	m->dev = dev;
	m->dtype = dtype == WW_BF16 ? WW_BF16 : WW_F32;
	WW_TRY(list_params(c, &m->params, &m->count, &m->n, err));
	WW_TRY(dev->ops->stream_new(dev, &m->stream, err));
	WW_TRY(dev->ops->alloc(dev, (size_t)m->n * ww_dtype_bytes(m->dtype), &m->weights, err));
	WW_TRY(dev->ops->alloc(dev, sizeof(freq), (void **)&m->rope_freq, err));
	ww_rope_frequencies(&c->rope, c->head_dim, freq, &m->rope_factor);
	dev->ops->upload(m->stream, m->rope_freq, freq, (size_t)(c->head_dim / 2) * sizeof(*freq));
	dev->ops->zero(m->stream, m->weights, (size_t)m->n * ww_dtype_bytes(m->dtype));
	WW_TRY(dev->ops->sync(m->stream, err));
	*out = m;
out:
	if (rc != WW_OK)
		ww_model_free(m);
	return rc;
}

void ww_model_free(struct ww_model *m)
{
	if (!m)
		return;
	if (m->weights)
		m->dev->ops->free(m->dev, m->weights);
	if (m->rope_freq)
		m->dev->ops->free(m->dev, m->rope_freq);
	if (m->stream)
		m->dev->ops->stream_free(m->stream);
	free(m->params);
	free(m);
}

/* Upload n fp32 numbers as elements at.. of the weights. */
static enum ww_rc put(struct ww_model *m, int64_t at, const float *x, int64_t n, uint16_t *half, struct ww_err *err)
{
	const void *src = x;
	if (m->dtype == WW_BF16) {
		for (int64_t i = 0; i < n; i++)
			half[i] = ww_bf16_from(x[i]);
		src = half;
	}
	size_t item = ww_dtype_bytes(m->dtype);
	m->dev->ops->upload(m->stream, (char *)m->weights + (size_t)at * item, src, (size_t)n * item);
	return m->dev->ops->sync(m->stream, err);
}

/* Random numbers of a matrix are counted by its elements, so threads can share the work without changing a number. */
struct fill {
	double deviation;
	struct ww_rng rng;
	float *x;
	int64_t n;
};

static void *fill_normal(void *arg)
{
	struct fill *f = arg;
	for (int64_t i = 0; i < f->n; i++) {
		uint64_t v = ww_rng_u64(&f->rng);
		double u = ((double)(v >> 32) + 0.5) * 0x1p-32, w = (double)(v & 0xffffffff) * 0x1p-32;
		f->x[i] = (float)(f->deviation * sqrt(-2 * log(u)) * cos(2 * M_PI * w));
	}
	return NULL;
}

/* Elements at..at+n-1 of parameter number i. */
static void fill_new(const struct ww_param *p, double deviation, uint64_t seed, int i, int64_t at, float *x, int64_t n)
{
	struct fill parts[FILL_THREADS];
	pthread_t threads[FILL_THREADS];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int count = n < FILL_LEAST || cpus < 1 ? 1 : cpus < FILL_THREADS ? (int)cpus : FILL_THREADS, running = 0;
	for (int64_t k = 0; p->rank == 1 && k < n; k++)
		x[k] = strstr(p->name, ".bias") ? 0 : 1;
	for (int k = 0; p->rank == 2 && k < count; k++) {
		int64_t begin = n * k / count;
		parts[k] = (struct fill){ deviation, { 0 }, x + begin, n * (k + 1) / count - begin };
		ww_rng_init(&parts[k].rng, seed, (uint64_t)i);
		parts[k].rng.counter = (uint64_t)(at + begin);
		if (k + 1 < count && pthread_create(&threads[running], NULL, fill_normal, &parts[k]) == 0)
			running++;
		else
			fill_normal(&parts[k]);
	}
	while (running)
		pthread_join(threads[--running], NULL);
}

enum ww_rc ww_model_new(
	const struct ww_config *c, struct ww_dev *dev, int dtype, uint64_t seed, struct ww_model **out, struct ww_err *err)
{
	struct ww_model *m = NULL;
	ww_auto_free float *x = malloc(PIECE * sizeof(*x));
	ww_auto_free uint16_t *half = malloc(PIECE * sizeof(*half));
	enum ww_rc rc = x && half ? model_alloc(c, dev, dtype ? dtype : c->dtype, &m, err) : ww_nomem(err);
	for (int i = 0; rc == WW_OK && i < m->count; i++) {
		const struct ww_param *p = &m->params[i];
		for (int64_t at = 0; rc == WW_OK && at < p->n; at += PIECE) {
			int64_t n = p->n - at < PIECE ? p->n - at : PIECE;
			fill_new(p, c->initializer_range, seed, i, at, x, n);
			rc = put(m, p->offset + at, x, n, half, err);
		}
	}
	if (rc == WW_OK)
		*out = m;
	else
		ww_model_free(m);
	return rc;
}

static float half_to_float(uint16_t h)
{
	int e = h >> 10 & 31;
	double v = e == 31 ? (h & 1023 ? NAN : INFINITY) : e ? ldexp(1024 + (h & 1023), e - 25) : ldexp(h & 1023, -24);
	return (float)(h & 0x8000 ? -v : v);
}

/* No NaN and no infinity among the numbers of a tensor that is in fp32 or bf16.  An exponent of ones and only that
 * overflows into the sign when one is added to it, in each number of a 64-bit word at once: the check runs as fast as
 * memory is read. */
static int all_finite(const struct ww_st_tensor *t, int64_t n)
{
	const char *p = t->data;
	size_t bytes = (size_t)n * ww_dtype_bytes(t->dtype), at = 0;
	uint64_t exponent = t->dtype == WW_F32 ? 0x7f8000007f800000u : 0x7f807f807f807f80u, bad = 0, x[4];
	uint64_t one = t->dtype == WW_F32 ? 0x0080000000800000u : 0x0080008000800080u;
	uint64_t sign = t->dtype == WW_F32 ? 0x8000000080000000u : 0x8000800080008000u;
	for (; bytes - at >= sizeof(x); at += sizeof(x)) {
		memcpy(x, p + at, sizeof(x));
		bad |= ((x[0] & exponent) + one) | ((x[1] & exponent) + one) | ((x[2] & exponent) + one) |
			((x[3] & exponent) + one);
	}
	memset(x, 0, sizeof(x));
	memcpy(x, p + at, bytes - at);
	for (int i = 0; i < 4; i++)
		bad |= (x[i] & exponent) + one;
	return !(bad & sign);
}

/* Elements at..at+n-1 of a tensor as fp32; 0 where one is not finite. */
static int read_piece(const struct ww_st_tensor *t, int64_t at, int64_t n, float *x)
{
	const unsigned char *p = (const unsigned char *)t->data + (size_t)at * ww_dtype_bytes(t->dtype);
	int finite = 1;
	if (t->dtype == WW_F32)
		memcpy(x, p, (size_t)n * sizeof(*x));
	for (int64_t i = 0; i < n; i++) {
		uint16_t h;
		if (t->dtype != WW_F32) {
			memcpy(&h, p + 2 * i, 2);
			x[i] = t->dtype == WW_BF16 ? ww_bf16_to(h) : half_to_float(h);
		}
		finite &= isfinite(x[i]) != 0;
	}
	return finite;
}

static enum ww_rc load_param(struct ww_model *m, const struct ww_st *st, const struct ww_param *p, const char *dir,
	float *x, uint16_t *half, struct ww_err *err)
{
	const struct ww_st_tensor *t = ww_st_find(st, p->name);
	if (!t)
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s is missing", dir, p->name);
	if (t->dtype != WW_F32 && t->dtype != WW_BF16 && t->dtype != WW_F16)
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s has type %s; F32, BF16 and F16 are supported", dir, p->name,
			t->dtype_name);
	if (t->rank != p->rank || t->shape[0] != (uint64_t)p->rows || t->shape[1] != (uint64_t)p->cols)
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s has shape (%llu, %llu), the config asks for (%lld, %lld)",
			dir, p->name, (unsigned long long)t->shape[0], (unsigned long long)t->shape[1], (long long)p->rows,
			(long long)p->cols);
	if (t->dtype == m->dtype) { /* straight from the file; the caller syncs before it closes the file */
		if (!all_finite(t, p->n))
			return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s holds NaN or infinity", dir, p->name);
		m->dev->ops->upload(m->stream, ww_model_weight(m, p).p, t->data, (size_t)p->n * ww_dtype_bytes(m->dtype));
		return WW_OK;
	}
	for (int64_t at = 0; at < p->n; at += PIECE) {
		int64_t n = p->n - at < PIECE ? p->n - at : PIECE;
		if (!read_piece(t, at, n, x))
			return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s holds NaN or infinity", dir, p->name);
		WW_CHECK(put(m, p->offset + at, x, n, half, err));
	}
	return WW_OK;
}

/* from_policy: the file is a policy's, whose output layer a critic does not use. */
static enum ww_rc check_unknown(
	const struct ww_model *m, const struct ww_st *st, int from_policy, const char *dir, struct ww_err *err)
{
	static const char old[] = ".rotary_emb.inv_freq";
	for (size_t i = 0; i < ww_st_count(st); i++) {
		const char *name = ww_st_at(st, i)->name;
		size_t n = strlen(name);
		if (ww_model_param(m, name) || ((m->config.tie_embeddings || from_policy) && !strcmp(name, "lm_head.weight")) ||
			(n > sizeof(old) && !strcmp(name + n - sizeof(old) + 1, old)))
			continue;
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s does not belong to a %s model of this config", dir, name,
			ww_arch_name(m->config.arch));
	}
	return WW_OK;
}

static enum ww_rc open_model(
	const char *dir, struct ww_dev *dev, int dtype, int critic, struct ww_model **out, struct ww_err *err)
{
	struct ww_config c;
	struct ww_model *m = NULL;
	struct ww_st *st = NULL;
	int from_policy = 0;
	char path[PATH_MAX];
	ww_auto_free float *x = malloc(PIECE * sizeof(*x));
	ww_auto_free uint16_t *half = malloc(PIECE * sizeof(*half));
	enum ww_rc rc = x && half ? WW_OK : ww_nomem(err);
	if (rc == WW_OK)
		rc = ww_fs_join(path, dir, "config.json", err);
	if (rc == WW_OK)
		rc = ww_config_read(path, &c, err);
	if (rc == WW_OK && critic) {
		from_policy = !c.critic;
		c.critic = 1;
	}
	if (rc == WW_OK)
		rc = ww_st_open(dir, &st, err);
	if (rc == WW_OK)
		rc = model_alloc(&c, dev, dtype ? dtype : c.dtype, &m, err);
	if (rc == WW_OK)
		rc = check_unknown(m, st, from_policy, dir, err);
	for (int i = 0; rc == WW_OK && i < m->count - from_policy; i++) /* a new value head, the last one, stays zero */
		rc = load_param(m, st, &m->params[i], dir, x, half, err);
	if (m) { /* also after an error: the file must outlive its uploads */
		struct ww_err late = WW_ERR_INIT;
		enum ww_rc done = m->dev->ops->sync(m->stream, rc == WW_OK ? err : &late);
		rc = rc == WW_OK ? done : rc;
	}
	ww_st_free(st);
	if (rc == WW_OK)
		*out = m;
	else
		ww_model_free(m);
	return rc;
}

enum ww_rc ww_model_open(const char *dir, struct ww_dev *dev, int dtype, struct ww_model **out, struct ww_err *err)
{
	return open_model(dir, dev, dtype, 0, out, err);
}

enum ww_rc ww_model_open_critic(
	const char *dir, struct ww_dev *dev, int dtype, struct ww_model **out, struct ww_err *err)
{
	return open_model(dir, dev, dtype, 1, out, err);
}

/* ---- writing */

static enum ww_rc copy_tokenizer(const char *from, const char *dir, struct ww_err *err)
{
	static const char *const names[] = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
		"vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json", WW_SETTINGS_FILE };
	enum ww_rc rc = WW_OK;
	for (size_t i = 0; rc == WW_OK && i < WW_ARRAY_LEN(names); i++) {
		ww_auto_str text = WW_STR_INIT(TOKENIZER_FILE_MAX);
		char src[PATH_MAX], dst[PATH_MAX];
		rc = ww_fs_join(src, from, names[i], err);
		if (rc == WW_OK && ww_fs_is_file(src)) {
			rc = ww_fs_join(dst, dir, names[i], err);
			if (rc == WW_OK)
				rc = ww_fs_read(src, TOKENIZER_FILE_MAX, &text, err);
			if (rc == WW_OK)
				rc = ww_fs_write(dst, text.p, text.len, err);
		}
	}
	return rc;
}

/* Nothing there, or an empty directory, which rename() replaces. */
static int is_free(const char *dir)
{
	DIR *d = opendir(dir);
	int entries = 0;
	if (!d)
		return errno == ENOENT;
	while (readdir(d))
		entries++;
	closedir(d);
	return entries <= 2;
}

enum ww_rc ww_model_save(struct ww_model *m, const char *dir, const char *from, struct ww_err *err)
{
	char tmp[PATH_MAX], path[PATH_MAX];
	struct ww_config c = m->config;
	struct ww_err ignored;
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	if ((size_t)snprintf(tmp, sizeof(tmp), "%.*s.tmp-XXXXXX", (int)n, dir) >= sizeof(tmp))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", dir);
	if (!is_free(dir))
		return ww_err_set(err, WW_ERR_USAGE, "%s exists and is not an empty directory; save into a new one", dir);
	if (!mkdtemp(tmp) || chmod(tmp, 0755) < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot create %s", tmp);
	c.dtype = m->dtype;
	enum ww_rc rc = ww_fs_join(path, tmp, "config.json", err);
	if (rc == WW_OK)
		rc = ww_config_write(path, &c, err);
	if (rc == WW_OK)
		rc = ww_state_write(m, &(struct ww_state_part){ "", { m->weights, m->dtype } }, 1, tmp, err);
	if (rc == WW_OK && from)
		rc = copy_tokenizer(from, tmp, err);
	if (rc == WW_OK && rename(tmp, dir) < 0)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot create %s", dir);
	if (rc != WW_OK && ww_fs_remove_tree(tmp, &ignored) != WW_OK)
		return rc;
	return rc;
}
