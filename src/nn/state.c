/* state.c - weights and optimizer state between the device and safetensors, a piece at a time.
 *
 * One writer for all of them: what a checkpoint of training holds beside the model is the same parameters two or three
 * times over, under prefixed names.  Pieces bound the host memory, so a model that fills the device can still be saved.
 */
#include "nn/state.h"
#include "nn/safetensors.h"
#include "base/arena.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 }; /* elements */
#define SHARD_MAX ((uint64_t)5 << 30)
#define NAMES_MAX ((size_t)64 << 20)

static enum ww_rc write_param(struct ww_model *m, struct ww_arr a, const struct ww_param *p, struct ww_st_writer *w,
	char *buf, struct ww_err *err)
{
	size_t item = ww_dtype_bytes(a.dtype);
	enum ww_rc rc = WW_OK;
	for (int64_t at = 0; rc == WW_OK && at < p->n; at += PIECE) {
		int64_t n = p->n - at < PIECE ? p->n - at : PIECE;
		m->dev->ops->download(m->stream, buf, (char *)a.p + (size_t)(p->offset + at) * item, (size_t)n * item);
		rc = m->dev->ops->sync(m->stream, err);
		if (rc == WW_OK)
			rc = ww_st_writer_add(w, buf, (size_t)n * item, err);
	}
	return rc;
}

enum ww_rc ww_state_write(
	struct ww_model *m, const struct ww_state_part *parts, size_t count, const char *dir, struct ww_err *err)
{
	WW_AUTO(ww_arena_release) struct ww_arena names;
	ww_auto_free struct ww_st_decl *decls = calloc(count * (size_t)m->count, sizeof(*decls));
	ww_auto_free char *buf = malloc(PIECE * sizeof(float));
	struct ww_st_writer *w = NULL;
	enum ww_rc rc = decls && buf ? WW_OK : ww_nomem(err);
	size_t n = 0;
	ww_arena_init(&names, NAMES_MAX);
	for (size_t k = 0; rc == WW_OK && k < count; k++)
		for (int i = 0; rc == WW_OK && i < m->count; i++) {
			const struct ww_param *p = &m->params[i];
			const char *name = ww_arena_printf(&names, "%s%s", parts[k].prefix, p->name);
			if (!name)
				rc = ww_nomem(err);
			decls[n++] = (struct ww_st_decl){ name, parts[k].at.dtype, p->rank,
				{ (uint64_t)p->rows, (uint64_t)p->cols } };
		}
	if (rc == WW_OK)
		rc = ww_st_writer_new(dir, decls, n, SHARD_MAX, &w, err);
	for (size_t k = 0; rc == WW_OK && k < count; k++)
		for (int i = 0; rc == WW_OK && i < m->count; i++)
			rc = write_param(m, parts[k].at, &m->params[i], w, buf, err);
	if (rc == WW_OK)
		rc = ww_st_writer_commit(w, err);
	ww_st_writer_free(w);
	return rc;
}

static int all_finite(const float *x, int64_t n)
{
	int finite = 1;
	for (int64_t i = 0; i < n; i++)
		finite &= isfinite(x[i]) != 0;
	return finite;
}

static enum ww_rc read_param(struct ww_model *m, const struct ww_state_part *part, const struct ww_param *p,
	const struct ww_st *st, const char *dir, float *buf, struct ww_err *err)
{
	char name[160];
	size_t item = ww_dtype_bytes(part->at.dtype);
	snprintf(name, sizeof(name), "%s%s", part->prefix, p->name);
	const struct ww_st_tensor *t = ww_st_find(st, name);
	if (!t || t->dtype != part->at.dtype || t->rank != p->rank || t->shape[0] != (uint64_t)p->rows ||
		t->shape[1] != (uint64_t)p->cols)
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s is missing or is not %s of %lld elements", dir, name,
			ww_st_dtype_name(part->at.dtype), (long long)p->n);
	for (int64_t at = 0; at < p->n; at += PIECE) {
		int64_t n = p->n - at < PIECE ? p->n - at : PIECE;
		memcpy(buf, (const char *)t->data + (size_t)at * item, (size_t)n * item);
		if (part->at.dtype == WW_F32 && !all_finite(buf, n))
			return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s holds NaN or infinity", dir, name);
		m->dev->ops->upload(m->stream, (char *)part->at.p + (size_t)(p->offset + at) * item, buf, (size_t)n * item);
		WW_CHECK(m->dev->ops->sync(m->stream, err));
	}
	return WW_OK;
}

enum ww_rc ww_state_read(
	struct ww_model *m, const struct ww_state_part *parts, size_t count, const char *dir, struct ww_err *err)
{
	struct ww_st *st = NULL;
	ww_auto_free float *buf = malloc(PIECE * sizeof(*buf));
	enum ww_rc rc = buf ? ww_st_open(dir, &st, err) : ww_nomem(err);
	for (size_t k = 0; rc == WW_OK && k < count; k++) {
		m->dev->ops->zero(m->stream, parts[k].at.p, (size_t)m->n * ww_dtype_bytes(parts[k].at.dtype));
		for (int i = 0; rc == WW_OK && i < m->count; i++)
			rc = read_param(m, &parts[k], &m->params[i], st, dir, buf, err);
	}
	ww_st_free(st);
	return rc;
}
