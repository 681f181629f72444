/* safetensors.c - reading tensors from untrusted files.
 *
 * A checkpoint is a download.  It is mapped, so every pointer returned later relies on the checks made here:
 *
 *   offset        size  what
 *   0             8     H, length of the header, little-endian
 *   8             H     JSON object: name -> {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]},
 *                       and optionally "__metadata__": {string: string}; spaces may follow
 *   8+H           rest  the bytes of the tensors; offsets count from here
 *
 * Invariants after opening: H <= 100 MB (the format's own limit) and inside the file; each tensor's bytes are exactly
 * numel * size of its type, without overflow; sorted by offset the tensors tile the rest of the file, with no gap, no
 * overlap and nothing behind (the format demands it, and a gap can hide data); names are unique. In
 * an index every file name is a plain name in the same directory.
 *
 * A file that is truncated while it is mapped raises SIGBUS.  Rejected: reading it into memory first, since a
 * checkpoint can be larger than memory, and since the page cache shared between processes makes a start fast.
 */
#include "nn/safetensors.h"
#include "base/arena.h"
#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 100000000, INDEX_MAX = 64 << 20, SHARDS_MAX = 4096 };
#define META_MAX ((size_t)1 << 30)

/* name in the file, enum ww_dtype or 0, bytes */
static const struct {
	const char *name;
	int dtype;
	size_t bytes;
} types[] = { { "F32", WW_F32, 4 }, { "F64", WW_F64, 8 }, { "F16", WW_F16, 2 }, { "BF16", WW_BF16, 2 },
	{ "I8", WW_I8, 1 }, { "I16", WW_I16, 2 }, { "I32", WW_I32, 4 }, { "I64", WW_I64, 8 }, { "U8", WW_U8, 1 },
	{ "BOOL", WW_BOOL, 1 }, { "U16", 0, 2 }, { "U32", 0, 4 }, { "U64", 0, 8 }, { "F8_E4M3", 0, 1 },
	{ "F8_E5M2", 0, 1 } };

struct file {
	const char *name; /* for messages and to find a shard again */
	const unsigned char *bytes;
	size_t n;
	int mapped;
	struct ww_st_tensor *tensors; /* by name */
	size_t count;
};

struct ww_st {
	struct ww_arena arena;
	struct file *files;
	size_t file_count;
	const struct ww_st_tensor **tensors; /* by name */
	size_t count;
};

const char *ww_st_dtype_name(int dtype)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(types); i++)
		if (dtype && types[i].dtype == dtype)
			return types[i].name;
	return NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ww_st_tensor *)a)->name, ((const struct ww_st_tensor *)b)->name);
}

static int ref_by_name(const void *a, const void *b)
{
	return by_name(*(struct ww_st_tensor *const *)a, *(struct ww_st_tensor *const *)b);
}

/* Empty tensors sort before the one that begins at the same place. */
static int by_offset(const void *a, const void *b)
{
	const struct ww_st_tensor *x = a, *y = b;
	if (x->data != y->data)
		return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static enum ww_rc read_shape(const json_t *shape, struct ww_st_tensor *t, const char *file, struct ww_err *err)
{
	if (!json_is_array(shape) || json_array_size(shape) > WW_MAX_RANK)
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s: \"shape\" is not an array of at most %d sizes", file,
			t->name, WW_MAX_RANK);
	t->rank = (int)json_array_size(shape);
	t->numel = 1;
	for (int i = 0; i < WW_MAX_RANK; i++)
		t->shape[i] = 1;
	for (int i = 0; i < t->rank; i++) {
		const json_t *v = json_array_get(shape, (size_t)i);
		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s: a size is not a whole number >= 0", file, t->name);
		t->shape[i] = (uint64_t)json_integer_value(v);
		if (__builtin_mul_overflow(t->numel, t->shape[i], &t->numel))
			return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s: the sizes overflow", file, t->name);
	}
	return WW_OK;
}

/* One member of the header, checked against `avail` bytes of data at `data`. */
static enum ww_rc read_entry(struct ww_arena *arena, const char *name, const json_t *v, const unsigned char *data,
	uint64_t avail, struct ww_st_tensor *t, const char *file, struct ww_err *err)
{
	*t = (struct ww_st_tensor){ .name = ww_arena_strdup(arena, name) };
	if (!t->name)
		return ww_err_set(err, WW_ERR_NOMEM, "%s: too many tensors", file);
	const char *dtype = json_string_value(json_object_get(v, "dtype"));
	const json_t *span = json_object_get(v, "data_offsets");
	size_t item = 0;
	for (size_t i = 0; dtype && i < WW_ARRAY_LEN(types); i++) {
		if (strcmp(dtype, types[i].name))
			continue;
		item = types[i].bytes;
		t->dtype = types[i].dtype;
		t->dtype_name = types[i].name;
	}
	if (!item)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s: tensor %s has the unknown type \"%.32s\"", file, name, dtype ? dtype : "(none)");
	WW_CHECK(read_shape(json_object_get(v, "shape"), t, file, err));
	if (__builtin_mul_overflow(t->numel, (uint64_t)item, &t->bytes))
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s: the sizes overflow", file, name);
	const json_t *b = json_array_get(span, 0), *e = json_array_get(span, 1);
	if (json_array_size(span) != 2 || !json_is_integer(b) || !json_is_integer(e) || json_integer_value(b) < 0 ||
		json_integer_value(e) < json_integer_value(b))
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s: bad \"data_offsets\"", file, name);
	uint64_t begin = (uint64_t)json_integer_value(b), end = (uint64_t)json_integer_value(e);
	if (end > avail)
		return ww_err_set(err, WW_ERR_USAGE,
			"%s: tensor %s ends at byte %llu of the data, but the file holds %llu: truncated?", file, name,
			(unsigned long long)end, (unsigned long long)avail);
	if (end - begin != t->bytes)
		return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s: type and shape need %llu bytes, the offsets give %llu",
			file, name, (unsigned long long)t->bytes, (unsigned long long)(end - begin));
	t->data = data + begin;
	return WW_OK;
}

static enum ww_rc check_tiling(
	const struct file *f, struct ww_st_tensor *t, size_t count, const unsigned char *data, struct ww_err *err)
{
	const unsigned char *at = data;
	qsort(t, count, sizeof(*t), by_offset);
	for (size_t i = 0; i < count; i++) {
		if ((const unsigned char *)t[i].data != at)
			return ww_err_set(err, WW_ERR_USAGE, "%s: tensor %s %s", f->name, t[i].name,
				(const unsigned char *)t[i].data < at ? "overlaps another one" : "follows a gap");
		at += t[i].bytes;
	}
	if (at != f->bytes + f->n)
		return ww_err_set(err, WW_ERR_USAGE, "%s: %zu bytes after the last tensor belong to none", f->name,
			(size_t)(f->bytes + f->n - at));
	return WW_OK;
}

static enum ww_rc parse_header(struct ww_st *st, struct file *f, json_t **header, size_t *data_at, struct ww_err *err)
{
	uint64_t h = 0;
	if (f->n < 8)
		return ww_err_set(err, WW_ERR_USAGE, "%s is too short for a safetensors file (%zu bytes)", f->name, f->n);
	for (int i = 7; i >= 0; i--)
		h = h << 8 | f->bytes[i];
	if (h > HEADER_MAX || h > f->n - 8)
		return ww_err_set(err, WW_ERR_USAGE,
			"%s: the header claims %llu bytes, the file holds %zu: not safetensors, or "
			"truncated",
			f->name, (unsigned long long)h, f->n);
	if (!h || f->bytes[8] != '{')
		return ww_err_set(err, WW_ERR_USAGE, "%s: the header is not a JSON object: not a safetensors file", f->name);
	enum ww_rc rc = ww_json_parse((const char *)f->bytes + 8, (size_t)h, f->name, header, err);
	if (rc != WW_OK) {
		err->rc = WW_ERR_USAGE;
		return WW_ERR_USAGE;
	}
	*data_at = 8 + (size_t)h;
	f->tensors = ww_arena_alloc(&st->arena, (json_object_size(*header) + 1) * sizeof(*f->tensors));
	return f->tensors ? WW_OK : ww_err_set(err, WW_ERR_NOMEM, "%s: too many tensors", f->name);
}

static enum ww_rc read_file(struct ww_st *st, struct file *f, struct ww_err *err)
{
	json_auto_t *header = NULL;
	json_t *v;
	const char *name;
	size_t data_at = 0;
	WW_CHECK(parse_header(st, f, &header, &data_at, err));
	json_object_foreach(header, name, v) {
		if (!strcmp(name, "__metadata__"))
			continue;
		WW_CHECK(
			read_entry(&st->arena, name, v, f->bytes + data_at, f->n - data_at, &f->tensors[f->count], f->name, err));
		f->count++;
	}
	WW_CHECK(check_tiling(f, f->tensors, f->count, f->bytes + data_at, err));
	qsort(f->tensors, f->count, sizeof(*f->tensors), by_name);
	return WW_OK;
}

static enum ww_rc map_file(struct ww_st *st, const char *path, struct file *f, struct ww_err *err)
{
	struct stat s;
	f->name = ww_arena_strdup(&st->arena, path);
	if (!f->name)
		return ww_nomem(err);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return ww_err_errno(err, errno == ENOENT ? WW_ERR_USAGE : WW_ERR_IO, "cannot open %s", path);
	enum ww_rc rc = WW_OK;
	if (fstat(fd, &s) < 0)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot stat %s", path);
	else if (!S_ISREG(s.st_mode) || s.st_size < 8)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not a safetensors file", path);
	if (rc == WW_OK) {
		void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot map %s", path);
		} else {
			f->bytes = p;
			f->n = (size_t)s.st_size;
			f->mapped = 1;
		}
	}
	close(fd);
	return rc == WW_OK ? read_file(st, f, err) : rc;
}

static struct ww_st *st_new(size_t files)
{
	struct ww_st *st = calloc(1, sizeof(*st));
	if (!st)
		return NULL;
	ww_arena_init(&st->arena, META_MAX);
	st->files = ww_arena_alloc(&st->arena, files * sizeof(*st->files));
	if (!st->files) {
		ww_st_free(st);
		return NULL;
	}
	return st;
}

static enum ww_rc list_single(struct ww_st *st, struct ww_err *err)
{
	struct file *f = &st->files[0];
	st->tensors = ww_arena_alloc(&st->arena, (f->count + 1) * sizeof(*st->tensors));
	if (!st->tensors)
		return ww_err_set(err, WW_ERR_NOMEM, "%s: too many tensors", f->name);
	for (size_t i = 0; i < f->count; i++)
		st->tensors[i] = &f->tensors[i];
	st->count = f->count;
	return WW_OK;
}

/* To the caller, or freed where something failed. */
static enum ww_rc hand_over(struct ww_st *st, enum ww_rc rc, struct ww_st **out)
{
	if (rc == WW_OK)
		*out = st;
	else
		ww_st_free(st);
	return rc;
}

static enum ww_rc open_single(const char *path, struct ww_st **out, struct ww_err *err)
{
	struct ww_st *st = st_new(1);
	if (!st)
		return ww_nomem(err);
	st->file_count = 1;
	enum ww_rc rc = map_file(st, path, &st->files[0], err);
	if (rc == WW_OK)
		rc = list_single(st, err);
	return hand_over(st, rc, out);
}

enum ww_rc ww_st_open_bytes(const void *bytes, size_t n, const char *what, struct ww_st **out, struct ww_err *err)
{
	struct ww_st *st = st_new(1);
	if (!st)
		return ww_nomem(err);
	st->file_count = 1;
	st->files[0] = (struct file){ .name = ww_arena_strdup(&st->arena, what), .bytes = bytes, .n = n };
	enum ww_rc rc = st->files[0].name ? read_file(st, &st->files[0], err) : ww_nomem(err);
	if (rc == WW_OK)
		rc = list_single(st, err);
	return hand_over(st, rc, out);
}

/* The shard of that name, mapped on first use. */
static enum ww_rc shard(struct ww_st *st, const char *dir, const char *name, struct file **out, struct ww_err *err)
{
	char path[PATH_MAX];
	if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return ww_err_set(err, WW_ERR_USAGE, "%s: the index names \"%.64s\", which is not a file beside it", dir, name);
	WW_CHECK(ww_fs_join(path, dir, name, err));
	for (size_t i = 0; i < st->file_count; i++) {
		*out = &st->files[i];
		if (!strcmp((*out)->name, path))
			return WW_OK;
	}
	if (st->file_count == SHARDS_MAX)
		return ww_err_set(err, WW_ERR_LIMIT, "%s: more than %d shards", dir, SHARDS_MAX);
	*out = &st->files[st->file_count++];
	return map_file(st, path, *out, err);
}

static enum ww_rc add_from_index(
	struct ww_st *st, const char *dir, const char *name, const json_t *v, struct ww_err *err)
{
	struct file *f = NULL;
	const char *file = json_string_value(v);
	if (!file)
		return ww_err_set(err, WW_ERR_USAGE, "%s: the index gives no file name for %s", dir, name);
	WW_CHECK(shard(st, dir, file, &f, err));
	struct ww_st_tensor key = { .name = name };
	struct ww_st_tensor *t = bsearch(&key, f->tensors, f->count, sizeof(key), by_name);
	if (!t)
		return ww_err_set(err, WW_ERR_USAGE, "%s does not hold tensor %s, though the index says so", f->name, name);
	st->tensors[st->count++] = t;
	return WW_OK;
}

static enum ww_rc open_index(const char *path, struct ww_st **out, struct ww_err *err)
{
	json_auto_t *index = NULL;
	json_t *map, *v;
	const char *name;
	char dir[PATH_MAX];
	struct ww_st *st = st_new(SHARDS_MAX);
	enum ww_rc rc = st ? WW_OK : ww_nomem(err);
	if (rc != WW_OK)
		return rc;
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 1;
	if (n >= sizeof(dir)) {
		rc = ww_err_set(err, WW_ERR_LIMIT, "path too long");
		goto out;
	}
	memcpy(dir, slash ? path : ".", n);
	dir[n] = 0;
	WW_TRY(ww_json_read_file(path, INDEX_MAX, &index, err));
	WW_TRY(ww_json_get_object(index, "weight_map", path, &map, err));
	st->tensors = ww_arena_alloc(&st->arena, (json_object_size(map) + 1) * sizeof(*st->tensors));
	if (!st->tensors) {
		rc = ww_err_set(err, WW_ERR_NOMEM, "%s: too many tensors", path);
		goto out;
	}
	json_object_foreach(map, name, v)
		WW_TRY(add_from_index(st, dir, name, v, err));
	qsort(st->tensors, st->count, sizeof(*st->tensors), ref_by_name);
out:
	return hand_over(st, rc, out);
}

enum ww_rc ww_st_open(const char *path, struct ww_st **out, struct ww_err *err)
{
	char inside[PATH_MAX];
	size_t n = strlen(path);
	if (!ww_fs_is_dir(path))
		return n > 5 && !strcmp(path + n - 5, ".json") ? open_index(path, out, err) : open_single(path, out, err);
	enum ww_rc rc = ww_fs_join(inside, path, "model.safetensors", err);
	if (rc == WW_OK && ww_fs_is_file(inside))
		return open_single(inside, out, err);
	if (rc == WW_OK)
		rc = ww_fs_join(inside, path, "model.safetensors.index.json", err);
	if (rc == WW_OK && ww_fs_is_file(inside))
		return open_index(inside, out, err);
	return rc != WW_OK
		? rc
		: ww_err_set(err, WW_ERR_USAGE, "%s holds neither model.safetensors nor model.safetensors.index.json", path);
}

void ww_st_free(struct ww_st *st)
{
	if (!st)
		return;
	for (size_t i = 0; i < st->file_count; i++)
		if (st->files[i].mapped)
			munmap((void *)st->files[i].bytes, st->files[i].n);
	ww_arena_release(&st->arena);
	free(st);
}

size_t ww_st_count(const struct ww_st *st) { return st->count; }
const struct ww_st_tensor *ww_st_at(const struct ww_st *st, size_t i) { return st->tensors[i]; }

const struct ww_st_tensor *ww_st_find(const struct ww_st *st, const char *name)
{
	const struct ww_st_tensor key = { .name = name }, *k = &key;
	const struct ww_st_tensor **t = bsearch(&k, st->tensors, st->count, sizeof(k), ref_by_name);
	return t ? *t : NULL;
}
