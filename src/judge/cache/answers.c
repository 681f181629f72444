/* answers.c - see answers.h.
 *
 * The maker of an answer is identified by content: the sources of the builder and the compile workers, hashed when the
 * program is built (module.cmake), the headers that they read, and for graphs the bridge.  The processor belongs to it
 * because the cpu target compiles for the machine it runs on, and a home directory may be shared by several.  Rejected:
 * the binary's size and time, or its build id, since then every change of the program would invalidate the whole cache.
 */
#include "judge/cache/answers.h"

#include "base/fs.h"
#include "base/log.h"
#include "judge_makers.h"

#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IDENTITY_BYTES = 4 << 20, CPUINFO_BYTES = 8192, MAX_PARTS = 8 };

/* ---- Identity ---------------------------------------------------------------------------------------------------- */

static void add_processor(struct ww_str *s)
{
	char text[CPUINFO_BYTES];
	static const char *const lines[] = { "model name", "flags" };
	(void)ww_fs_peek(AT_FDCWD, "/proc/cpuinfo", text, sizeof(text));
	for (size_t i = 0; i < WW_ARRAY_LEN(lines); i++) {
		const char *at = strstr(text, lines[i]);
		if (at)
			ww_str_add(s, at, strcspn(at, "\n"));
	}
}

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

/* Names and contents of all files below a resource, in order. */
static enum ww_rc add_tree(struct ww_str *s, const char *resource, const char *suffix, struct ww_err *err)
{
	char root[PATH_MAX];
	enum ww_rc rc = ww_fs_resource(resource, root, err);
	if (rc != WW_OK)
		return rc;
	char *paths[] = { root, NULL };
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	if (!tree)
		return ww_err_errno(err, WW_ERR_IO, "cannot look into %s", root);
	for (FTSENT *e; rc == WW_OK && (e = fts_read(tree));) {
		size_t n = strlen(e->fts_name), m = strlen(suffix);
		if (e->fts_info != FTS_F || n < m || strcmp(e->fts_name + n - m, suffix))
			continue;
		ww_str_addf(s, "\n%s\n", e->fts_path + strlen(root));
		rc = ww_fs_read(e->fts_path, MAX_IDENTITY_BYTES, s, err);
	}
	fts_close(tree);
	return rc;
}

static enum ww_rc finish(struct ww_str *s, enum ww_rc rc, char out[WW_HASH_HEX], struct ww_err *err)
{
	if (rc == WW_OK && s->cut)
		rc = ww_err_set(err, WW_ERR_LIMIT, "more than %d bytes of headers", MAX_IDENTITY_BYTES);
	if (rc == WW_OK)
		ww_hash_hex(s->p, s->len, out);
	ww_str_release(s);
	return rc;
}

/* Identity of what makes images and binaries: the sources of builder and compile workers, the headers that solutions
 * may include, the processor. */
static enum ww_rc makers_id(char out[WW_HASH_HEX], struct ww_err *err)
{
	struct ww_str s = WW_STR_INIT(MAX_IDENTITY_BYTES);
	enum ww_rc rc;
	ww_str_adds(&s, WW_MAKERS_HASH);
	add_processor(&s);
	WW_TRY(add_tree(&s, "include", "", err));
	WW_TRY(add_tree(&s, "skills/cuda/include", "", err));
out:
	return finish(&s, rc, out, err);
}

enum ww_rc ww_bridge_id(char out[WW_HASH_HEX], struct ww_err *err)
{
	struct ww_str s = WW_STR_INIT(MAX_IDENTITY_BYTES);
	add_processor(&s);
	return finish(&s, add_tree(&s, "bridge", ".py", err), out, err);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

void ww_answers_init(struct ww_answers *k, struct ww_store *store, const char *kind, const char *compiler)
{
	char makers[WW_HASH_HEX];
	struct ww_err err = WW_ERR_INIT;
	*k = (struct ww_answers){ .store = store, .kind = kind };
	if (store && makers_id(makers, &err) != WW_OK) {
		ww_log(WW_LOG_WARN, "no %s is written to the cache: %s", kind, err.msg);
		k->store = NULL;
	}
	if (!k->store)
		return;
	struct ww_hash_part parts[] = { { makers, strlen(makers) }, { compiler, compiler ? strlen(compiler) : 0 } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), k->identity);
}

static void key_of(const struct ww_answers *k, const struct ww_zygote_part *parts, int n, char key[WW_HASH_HEX])
{
	struct ww_hash_part p[MAX_PARTS + 1] = { { k->identity, strlen(k->identity) } };
	WW_BUG(n > MAX_PARTS);
	for (int i = 0; i < n; i++)
		p[i + 1] = (struct ww_hash_part){ parts[i].p, parts[i].n };
	ww_hash_parts_hex(p, (size_t)n + 1, key);
}

enum ww_rc ww_answers_run(const struct ww_answers *k, struct ww_zygote *z, const struct ww_zygote_part *parts, int n,
	double limit_s, struct ww_str *reply, struct ww_job_end *end, int *hit, struct ww_err *err)
{
	char key[WW_HASH_HEX];
	enum ww_rc rc = WW_OK;
	*hit = 0;
	if (k->store) {
		key_of(k, parts, n, key);
		rc = ww_store_get(k->store, k->kind, key, reply, hit, err);
	}
	if (rc == WW_OK && !*hit)
		return ww_zygote_run(z, parts, n, limit_s, reply, end, err);
	*end = (struct ww_job_end){ WW_JOB_EXITED, 0 };
	return rc;
}

enum ww_rc ww_answers_put(const struct ww_answers *k, const struct ww_zygote_part *parts, int n,
	const struct ww_str *reply, struct ww_err *err)
{
	char key[WW_HASH_HEX];
	if (!k->store)
		return WW_OK;
	key_of(k, parts, n, key);
	return ww_store_put(k->store, k->kind, key, reply->p, reply->len, err);
}
