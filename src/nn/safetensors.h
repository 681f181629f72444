/* safetensors.h - tensors on disk, in Hugging Face's form: one file, or shards with an index.
 *
 * Reading maps the files and hands out pointers into them; nothing is copied.  Writing streams: the tensors are
 * declared first, then their bytes follow in the declared order in pieces of any size, and nothing appears under its
 * final name before ww_st_writer_commit().
 */
#pragma once

#include "base/dtype.h"
#include "base/err.h"

#include <ww/plan.h>

#include <stddef.h>
#include <stdint.h>

struct ww_st;
struct ww_st_writer;

struct ww_st_tensor {
	const char *name;
	const char *dtype_name; /* as in the file: "BF16" */
	int dtype;              /* enum ww_dtype, or 0 for a type that this program stores but never computes with */
	int rank;
	uint64_t shape[WW_MAX_RANK]; /* 1 beyond rank */
	uint64_t numel, bytes;
	const void *data; /* read-only; may be unaligned; valid until ww_st_free() */
};

/* Open a .safetensors file, a .safetensors.index.json, or a directory that holds model.safetensors or
 * model.safetensors.index.json.  Every size and offset is checked against the file before this returns. */
enum ww_rc ww_st_open(const char *path, struct ww_st **out, struct ww_err *err) WW_MUST_CHECK;
/* The same for one file's bytes in memory (borrowed); `what` names it in messages. */
enum ww_rc ww_st_open_bytes(
	const void *bytes, size_t n, const char *what, struct ww_st **out, struct ww_err *err) WW_MUST_CHECK;
void ww_st_free(struct ww_st *st); /* NULL is fine */

/* Tensors in order of name. */
size_t ww_st_count(const struct ww_st *st);
const struct ww_st_tensor *ww_st_at(const struct ww_st *st, size_t i);
const struct ww_st_tensor *ww_st_find(const struct ww_st *st, const char *name); /* NULL where there is none */

struct ww_st_decl {
	const char *name;
	int dtype; /* enum ww_dtype */
	int rank;
	uint64_t shape[WW_MAX_RANK];
};

/* Start writing into directory `dir`, which exists: model.safetensors if the tensors fit max_shard_bytes, else
 * model-00001-of-0000N.safetensors and the index.  The declarations are copied. */
enum ww_rc ww_st_writer_new(const char *dir, const struct ww_st_decl *decls, size_t count, uint64_t max_shard_bytes,
	struct ww_st_writer **out, struct ww_err *err) WW_MUST_CHECK;
/* The next n bytes of the tensors' contents. */
enum ww_rc ww_st_writer_add(struct ww_st_writer *w, const void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* Sync and rename.  All declared bytes must have been added.  One file appears atomically; of several, the index comes
 * last, so replace a sharded checkpoint by writing a new directory. */
enum ww_rc ww_st_writer_commit(struct ww_st_writer *w, struct ww_err *err) WW_MUST_CHECK;
/* Removes what was not committed.  NULL is fine. */
void ww_st_writer_free(struct ww_st_writer *w);

/* "F32" ... as safetensors writes it; NULL for an unknown one. */
const char *ww_st_dtype_name(int dtype);
