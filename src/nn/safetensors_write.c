/* safetensors_write.c - writing checkpoints atomically.
 *
 * The header comes first in the file and needs every offset, so tensors are declared before their bytes are known; then
 * the bytes stream through, and no tensor is ever held twice.  Each file is written under a temporary name in the
 * target directory, synced, and renamed on commit; a full disk or a kill leaves at worst a *.tmp-XXXXXX behind, never a
 * broken checkpoint under its final name.  The header is padded with spaces so that the data begins at a
 * multiple of 64 bytes, which makes every mapped fp32 tensor aligned.
 *
 * Shards are cut greedily in the declared order, a tensor never straddling two; a single tensor above the limit gets a
 * shard of its own.  Rejected: writing all shards at once through pwrite (an error would leave holes that only show
 * later).
 */
#include "nn/safetensors.h"
#include "base/arena.h"
#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX ((size_t)100000000)

struct shard {
	size_t first, count; /* of the declarations */
	uint64_t bytes;
	char *tmp; /* temporary path, or NULL before it is opened */
};

struct ww_st_writer {
	struct ww_arena arena;
	const char *dir;
	struct ww_st_decl *decls;
	uint64_t *bytes; /* of each tensor */
	size_t count;
	struct shard *shards;
	size_t shard_count, current; /* current == shard_count: all bytes are in */
	uint64_t total, written;     /* written: of the current shard's data */
	int fd;
};

static enum ww_rc copy_decls(struct ww_st_writer *w, const struct ww_st_decl *decls, struct ww_err *err)
{
	for (size_t i = 0; i < w->count; i++) {
		w->decls[i] = decls[i];
		w->decls[i].name = ww_arena_strdup(&w->arena, decls[i].name);
		WW_BUG(decls[i].rank < 0 || decls[i].rank > WW_MAX_RANK || !ww_dtype_bytes(decls[i].dtype));
		uint64_t bytes = ww_dtype_bytes(decls[i].dtype);
		for (int d = 0; d < decls[i].rank; d++)
			if (__builtin_mul_overflow(bytes, decls[i].shape[d], &bytes))
				return ww_err_set(err, WW_ERR_LIMIT, "tensor %s is too large", decls[i].name);
		if (!w->decls[i].name || __builtin_add_overflow(w->total, bytes, &w->total))
			return ww_err_set(err, WW_ERR_NOMEM, "the tensors are too large or too many");
		w->bytes[i] = bytes;
	}
	return WW_OK;
}

static void cut_shards(struct ww_st_writer *w, uint64_t max_shard_bytes)
{
	w->shard_count = 1;
	for (size_t i = 0; i < w->count; i++) {
		struct shard *s = &w->shards[w->shard_count - 1];
		if (s->count && (w->bytes[i] > max_shard_bytes || s->bytes > max_shard_bytes - w->bytes[i])) {
			s = &w->shards[w->shard_count++];
			s->first = i;
		}
		s->count++;
		s->bytes += w->bytes[i];
	}
}

static enum ww_rc write_all(struct ww_st_writer *w, const void *bytes, size_t n, struct ww_err *err)
{
	return ww_fd_write_all(w->fd, bytes, n) < 0
		? ww_err_errno(err, WW_ERR_IO, "cannot write a checkpoint into %s", w->dir)
		: WW_OK;
}

static json_t *header_json(const struct ww_st_writer *w, const struct shard *s)
{
	json_t *header = json_object(), *meta = json_object();
	json_object_set_new(meta, "format", json_string("pt"));
	json_object_set_new(header, "__metadata__", meta);
	uint64_t at = 0;
	for (size_t i = s->first; i < s->first + s->count; i++) {
		const struct ww_st_decl *d = &w->decls[i];
		json_t *shape = json_array();
		for (int k = 0; k < d->rank; k++)
			json_array_append_new(shape, json_integer((json_int_t)d->shape[k]));
		json_t *t = json_pack("{s:s, s:o, s:[I,I]}", "dtype", ww_st_dtype_name(d->dtype), "shape", shape,
			"data_offsets", (json_int_t)at, (json_int_t)(at + w->bytes[i]));
		if (!t || json_object_get(header, d->name) || json_object_set_new(header, d->name, t) < 0) {
			json_decref(header);
			return NULL;
		}
		at += w->bytes[i];
	}
	return header;
}

static enum ww_rc write_header(struct ww_st_writer *w, const struct shard *s, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(HEADER_MAX);
	json_auto_t *header = header_json(w, s);
	if (!header)
		return ww_err_set(
			err, WW_ERR_USAGE, "cannot write a checkpoint: a tensor's name is used twice or is not UTF-8");
	ww_json_add(&text, header);
	while ((text.len + 8) % 64)
		ww_str_addc(&text, ' ');
	unsigned char n[8];
	for (int i = 0; i < 8; i++)
		n[i] = (unsigned char)((uint64_t)text.len >> 8 * i);
	WW_CHECK(
		text.cut ? ww_err_set(err, WW_ERR_LIMIT, "the checkpoint's header is too large") : write_all(w, n, 8, err));
	return write_all(w, text.p, text.len, err);
}

static enum ww_rc open_shard(struct ww_st_writer *w, struct ww_err *err)
{
	struct shard *s = &w->shards[w->current];
	char *tmp = ww_arena_printf(&w->arena, "%s/model.safetensors.tmp-XXXXXX", w->dir);
	if (!tmp)
		return ww_nomem(err);
	w->fd = mkostemp(tmp, O_CLOEXEC);
	if (w->fd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot write a checkpoint into %s", w->dir);
	s->tmp = tmp;
	w->written = 0;
	return write_header(w, s, err);
}

static enum ww_rc close_shard(struct ww_st_writer *w, struct ww_err *err)
{
	int bad = fchmod(w->fd, 0644) < 0 || fsync(w->fd) < 0;
	int saved = errno;
	if (close(w->fd) < 0 && !bad) {
		bad = 1;
		saved = errno;
	}
	w->fd = -1;
	errno = saved;
	return bad ? ww_err_errno(err, WW_ERR_IO, "cannot write a checkpoint into %s", w->dir) : WW_OK;
}

/* Close every shard that is full (also empty ones) and open the next. */
static enum ww_rc advance(struct ww_st_writer *w, struct ww_err *err)
{
	while (w->current < w->shard_count && w->written == w->shards[w->current].bytes) {
		WW_CHECK(close_shard(w, err));
		if (++w->current < w->shard_count)
			WW_CHECK(open_shard(w, err));
	}
	return WW_OK;
}

enum ww_rc ww_st_writer_new(const char *dir, const struct ww_st_decl *decls, size_t count, uint64_t max_shard_bytes,
	struct ww_st_writer **out, struct ww_err *err)
{
	struct ww_st_writer *w;
	WW_CHECK(WW_NEW(w, 1, err));
	enum ww_rc rc;
	w->fd = -1;
	w->count = count;
	ww_arena_init(&w->arena, (size_t)1 << 30);
	w->dir = ww_arena_strdup(&w->arena, dir);
	w->decls = ww_arena_alloc(&w->arena, (count + 1) * sizeof(*w->decls));
	w->bytes = ww_arena_alloc(&w->arena, (count + 1) * sizeof(*w->bytes));
	w->shards = ww_arena_alloc(&w->arena, (count + 1) * sizeof(*w->shards));
	if (!w->dir || !w->decls || !w->bytes || !w->shards) {
		rc = ww_err_set(err, WW_ERR_NOMEM, "too many tensors");
		goto out;
	}
	WW_TRY(copy_decls(w, decls, err));
	cut_shards(w, max_shard_bytes);
	WW_TRY(open_shard(w, err));
	WW_TRY(advance(w, err));
	*out = w;
out:
	if (rc != WW_OK)
		ww_st_writer_free(w);
	return rc;
}

enum ww_rc ww_st_writer_add(struct ww_st_writer *w, const void *bytes, size_t n, struct ww_err *err)
{
	const char *p = bytes;
	while (n) {
		WW_BUG(w->current == w->shard_count);
		uint64_t room = w->shards[w->current].bytes - w->written;
		size_t k = n < room ? n : (size_t)room;
		WW_CHECK(write_all(w, p, k, err));
		w->written += k;
		p += k;
		n -= k;
		WW_CHECK(advance(w, err));
	}
	return WW_OK;
}

static void shard_name(const struct ww_st_writer *w, size_t i, char out[64])
{
	if (w->shard_count == 1)
		snprintf(out, 64, "model.safetensors");
	else
		snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", i + 1, w->shard_count);
}

static enum ww_rc write_index(struct ww_st_writer *w, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(HEADER_MAX);
	json_t *map = json_object();
	char path[PATH_MAX], name[64];
	for (size_t s = 0; s < w->shard_count; s++) {
		shard_name(w, s, name);
		for (size_t i = w->shards[s].first; i < w->shards[s].first + w->shards[s].count; i++)
			json_object_set_new(map, w->decls[i].name, json_string(name));
	}
	json_auto_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)w->total, "weight_map", map);
	WW_CHECK(ww_fs_join(path, w->dir, "model.safetensors.index.json", err));
	ww_json_add_pretty(&text, index);
	if (!index || text.cut || json_object_size(map) != w->count)
		return ww_err_set(
			err, WW_ERR_USAGE, "cannot write the index: a tensor's name is used twice, or too many tensors");
	return ww_fs_write(path, text.p, text.len, err);
}

enum ww_rc ww_st_writer_commit(struct ww_st_writer *w, struct ww_err *err)
{
	char path[PATH_MAX], name[64];
	WW_BUG(w->current != w->shard_count);
	/* The other form in the same directory would be found first, or be left behind with old weights. */
	WW_CHECK(ww_fs_join(path, w->dir, w->shard_count == 1 ? "model.safetensors.index.json" : "model.safetensors", err));
	if (ww_fs_is_file(path))
		return ww_err_set(err, WW_ERR_USAGE, "%s exists already; save into a new directory", path);
	for (size_t i = 0; i < w->shard_count; i++) {
		shard_name(w, i, name);
		WW_CHECK(ww_fs_join(path, w->dir, name, err));
		if (rename(w->shards[i].tmp, path) < 0)
			return ww_err_errno(err, WW_ERR_IO, "cannot write %s", path);
		w->shards[i].tmp = NULL;
	}
	return w->shard_count > 1 ? write_index(w, err) : WW_OK;
}

void ww_st_writer_free(struct ww_st_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	for (size_t i = 0; i < w->shard_count; i++)
		if (w->shards[i].tmp)
			unlink(w->shards[i].tmp);
	ww_arena_release(&w->arena);
	free(w);
}
