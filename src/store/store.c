/* store.c - see store.h; the SQLite side of it.
 *
 * One connection and one lock a store: a get takes microseconds.  Statements are prepared once and reset after each
 * use.
 *
 * Opening and replacing happen under an exclusive flock(2) on PATH.lock.  Of several processes that find the same
 * damage the first replaces the file and the others open the new one: a file is renamed only under the lock, and only
 * if it still is the inode that was found damaged.  A process that has the old file open goes on with it.  A closing
 * SQLite removes its log by name, which by then may be the new file's; so logs persist.
 *
 * Rejected: one file for each value (thousands of small files, eviction by walking them); checking the whole database
 * at every start (seconds for a gigabyte; each value has its own SHA-256 instead, and SQLite reports broken pages). */
#include "store/store.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	APPLICATION_ID = 0x57575331,
	VERSION = 1,
	BUSY_MS = 2000,
	LOCK_MS = 5000,
	MAX_REPLACED = 3,
	LOG_MAX_BYTES = 16 << 20
};
/* Of pages in memory.  A value is read or written once, so a larger cache (default 2 MiB) gains nothing. */
enum { CACHE_KIB = 128 };
enum { USED_GRAIN_MS = 60 * 1000 };
static const uint64_t DEFAULT_MAX_BYTES = 1ull << 30, BUSY_NS = 30ull * 1000000000;

enum statement { GET, TOUCH, DROP, PUT, TOTAL, EVICT, N_STATEMENTS };
static const char *const statement_texts[] = {
	[GET] = "SELECT value, sum, used FROM entry WHERE kind = ?1 AND key = ?2",
	[TOUCH] = "UPDATE entry SET used = ?3 WHERE kind = ?1 AND key = ?2",
	[DROP] = "DELETE FROM entry WHERE kind = ?1 AND key = ?2",
	[PUT] = "INSERT OR REPLACE INTO entry(kind, key, used, bytes, sum, value) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
	[TOTAL] = "SELECT sum(bytes) FROM entry",
	[EVICT] = "DELETE FROM entry WHERE id IN (SELECT id FROM (SELECT id,"
			  " sum(bytes) OVER (ORDER BY used DESC, id DESC) AS total FROM entry) WHERE total > ?1)"
};
static const char schema[] =
	"CREATE TABLE entry(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, used INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL, sum TEXT NOT NULL, value BLOB NOT NULL, UNIQUE(kind, key));"
	"CREATE INDEX entry_used ON entry(used, bytes);";

struct ww_store {
	pthread_mutex_t lock; /* everything below */
	char path[PATH_MAX];
	uint64_t max_bytes;
	sqlite3 *db; /* NULL: without a file */
	sqlite3_stmt *statements[N_STATEMENTS];
	dev_t dev;
	ino_t ino;              /* of the file that is open */
	uint64_t put_bytes;     /* since the total was looked at; UINT64_MAX: not looked at yet */
	uint64_t busy_until_ns; /* no puts before this time: another process held the file */
	int replaced, complained;
};

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void complain(struct ww_store *s, const char *what)
{
	ww_log(s->complained ? WW_LOG_DEBUG : WW_LOG_WARN, "the cache %s: %s; the program works without it, but slower",
		s->path, what);
	s->complained = 1;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void close_db(struct ww_store *s)
{
	for (int i = 0; i < N_STATEMENTS; i++) {
		sqlite3_finalize(s->statements[i]);
		s->statements[i] = NULL;
	}
	sqlite3_close_v2(s->db);
	s->db = NULL;
}

static int pragma(sqlite3 *db, const char *name, int64_t *value)
{
	char text[64];
	sqlite3_stmt *q = NULL;
	snprintf(text, sizeof(text), "PRAGMA %s", name);
	int rc = sqlite3_prepare_v2(db, text, -1, &q, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(q);
	*value = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
	sqlite3_finalize(q);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int count_tables(sqlite3 *db, int64_t *n)
{
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db, "SELECT count(*) FROM sqlite_master", -1, &q, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(q);
	*n = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
	sqlite3_finalize(q);
	return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* A new file gets the schema; one that is something else is SQLITE_NOTADB. */
static int look_at_schema(sqlite3 *db)
{
	char text[160];
	int64_t id, version, tables;
	int rc;
	if ((rc = pragma(db, "application_id", &id)) != SQLITE_OK ||
		(rc = pragma(db, "user_version", &version)) != SQLITE_OK || (rc = count_tables(db, &tables)) != SQLITE_OK)
		return rc;
	if (id == APPLICATION_ID && version == VERSION)
		return SQLITE_OK;
	if (id || version || tables)
		return SQLITE_NOTADB;
	snprintf(text, sizeof(text), "PRAGMA application_id = %d; PRAGMA user_version = %d;", APPLICATION_ID, VERSION);
	if ((rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL)) != SQLITE_OK)
		return rc;
	if ((rc = sqlite3_exec(db, schema, NULL, NULL, NULL)) == SQLITE_OK)
		rc = sqlite3_exec(db, text, NULL, NULL, NULL);
	int ended = sqlite3_exec(db, rc == SQLITE_OK ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL);
	return rc == SQLITE_OK ? ended : rc;
}

/* Called with the lock file held.  After an error s->db stays open until close_db(), for its message. */
static int open_db(struct ww_store *s)
{
	int keep = 1, rc;
	char text[96], settings[128];
	struct stat st;
	snprintf(settings, sizeof(settings),
		"PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA cache_size = -%d", CACHE_KIB);
	rc = sqlite3_open_v2(s->path, &s->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_busy_timeout(s->db, BUSY_MS);
	sqlite3_file_control(s->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
	snprintf(text, sizeof(text),
		"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = %d", LOG_MAX_BYTES);
	if ((rc = sqlite3_exec(s->db, text, NULL, NULL, NULL)) != SQLITE_OK ||
		(rc = sqlite3_exec(s->db, settings, NULL, NULL, NULL)) != SQLITE_OK ||
		(rc = look_at_schema(s->db)) != SQLITE_OK)
		return rc;
	for (int i = 0; i < N_STATEMENTS; i++)
		if ((rc = sqlite3_prepare_v3(
				 s->db, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[i], NULL)) != SQLITE_OK)
			return rc == SQLITE_ERROR ? SQLITE_NOTADB : rc; /* the tables are missing */
	if (stat(s->path, &st))
		return SQLITE_CANTOPEN;
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return SQLITE_OK;
}

static int is_damage(int rc) { return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB; }

/* -1: another process holds it, or it cannot be created. */
static int take_file_lock(const struct ww_store *s)
{
	char path[PATH_MAX + 8];
	snprintf(path, sizeof(path), "%s.lock", s->path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	for (int waited = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); waited += 5) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || waited > LOCK_MS) {
			close(fd);
			return -1;
		}
		poll(NULL, 0, 5);
	}
	return fd;
}

static void rename_bad(struct ww_store *s, const char *why)
{
	static const char *const logs[] = { "-wal", "-shm" };
	char to[PATH_MAX + 8];
	snprintf(to, sizeof(to), "%s.bad", s->path);
	ww_log(WW_LOG_WARN, "the cache %s is not usable (%s): renamed to %s; a new one is created", s->path, why, to);
	if (rename(s->path, to))
		unlink(s->path);
	for (size_t i = 0; i < WW_ARRAY_LEN(logs); i++) {
		snprintf(to, sizeof(to), "%s%s", s->path, logs[i]);
		unlink(to);
	}
}

/* Open, or replace and open.  is_corrupt: the file, if it still is (dev, ino), was found damaged. */
static void open_or_replace(struct ww_store *s, int is_corrupt, const char *why)
{
	struct stat st;
	int fd = take_file_lock(s);
	if (fd < 0) {
		complain(s, "its lock file is held by another process or cannot be created");
		return;
	}
	if (is_corrupt && !stat(s->path, &st) && st.st_dev == s->dev && st.st_ino == s->ino)
		rename_bad(s, why);
	int rc = open_db(s);
	if (is_damage(rc)) {
		char text[128];
		snprintf(text, sizeof(text), "%s", rc == SQLITE_NOTADB ? "not a cache of this version" : sqlite3_errstr(rc));
		close_db(s);
		rename_bad(s, text);
		rc = open_db(s);
	}
	if (rc != SQLITE_OK) {
		complain(s, sqlite3_errstr(rc));
		close_db(s);
	}
	close(fd);
}

enum ww_rc ww_store_open(struct ww_store **out, const struct ww_store_opts *opts, struct ww_err *err)
{
	struct ww_store *s = calloc(1, sizeof(*s));
	struct ww_err ignored = WW_ERR_INIT;
	char dir[PATH_MAX];

	*out = s;
	if (!s)
		return ww_nomem(err);
	pthread_mutex_init(&s->lock, NULL);
	s->max_bytes = opts && opts->max_bytes ? opts->max_bytes : DEFAULT_MAX_BYTES;
	s->put_bytes = UINT64_MAX;
	if (opts && opts->path)
		snprintf(s->path, sizeof(s->path), "%s", opts->path);
	else if (ww_fs_cache_dir(dir, &ignored) != WW_OK || ww_fs_join(s->path, dir, "cache.sqlite", &ignored) != WW_OK) {
		complain(s, ignored.msg);
		return WW_OK;
	}
	open_or_replace(s, 0, "");
	return WW_OK;
}

void ww_store_close(struct ww_store *s)
{
	if (!s)
		return;
	close_db(s);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- Use --------------------------------------------------------------------------------------------------------- */

/* After an operation failed with rc: keep the file, replace it, or go on without one. */
static void on_failure(struct ww_store *s, int rc)
{
	if (rc == SQLITE_BUSY || (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED) {
		s->busy_until_ns = ww_now_ns() + BUSY_NS;
		ww_log(WW_LOG_DEBUG, "the cache %s is busy; nothing is stored for a while", s->path);
	} else if (is_damage(rc) || rc == SQLITE_READONLY_DBMOVED) {
		close_db(s);
		if (s->replaced++ < MAX_REPLACED)
			open_or_replace(s, is_damage(rc), sqlite3_errstr(rc));
		else
			complain(s, sqlite3_errstr(rc));
	} else {
		complain(s, sqlite3_errstr(rc));
	}
}

static void bind(sqlite3_stmt *q, const char *kind, const char *key)
{
	sqlite3_bind_text(q, 1, kind, -1, SQLITE_STATIC);
	sqlite3_bind_text(q, 2, key, -1, SQLITE_STATIC);
}

static int step(sqlite3_stmt *q)
{
	int rc = sqlite3_step(q);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static void done(sqlite3_stmt *q)
{
	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
}

static int sum_matches(sqlite3_stmt *q)
{
	char hex[WW_HASH_HEX];
	const char *sum = (const char *)sqlite3_column_text(q, 1);
	ww_hash_hex(sqlite3_column_blob(q, 0), (size_t)sqlite3_column_bytes(q, 0), hex);
	return sum && !strcmp(hex, sum);
}

/* TOUCH or DROP an entry; a failure has no consequence. */
static void mark(struct ww_store *s, enum statement which, const char *kind, const char *key)
{
	sqlite3_stmt *q = s->statements[which];
	if (ww_now_ns() < s->busy_until_ns)
		return;
	bind(q, kind, key);
	if (which == TOUCH)
		sqlite3_bind_int64(q, 3, now_ms());
	int rc = step(q);
	done(q);
	if (rc != SQLITE_OK)
		on_failure(s, rc);
}

static enum ww_rc get_locked(
	struct ww_store *s, const char *kind, const char *key, struct ww_str *out, int *found, struct ww_err *err)
{
	sqlite3_stmt *q = s->statements[GET];
	enum ww_rc result = WW_OK;
	int stale = 0, broken = 0;

	bind(q, kind, key);
	int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW && sum_matches(q)) {
		size_t n = (size_t)sqlite3_column_bytes(q, 0);
		if (ww_str_reserve(out, n)) {
			ww_str_add(out, sqlite3_column_blob(q, 0), n);
			*found = 1;
		} else {
			result = ww_err_set(err, WW_ERR_LIMIT, "a cached %s of %zu bytes is larger than its limit", kind, n);
		}
		stale = now_ms() - sqlite3_column_int64(q, 2) > USED_GRAIN_MS;
	} else if (rc == SQLITE_ROW) {
		broken = 1;
	}
	done(q);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		on_failure(s, rc);
	else if (broken || stale)
		mark(s, broken ? DROP : TOUCH, kind, key);
	return result;
}

static int fits(const char *kind, const char *key)
{
	return strlen(kind) <= WW_STORE_MAX_KIND && strlen(key) <= WW_STORE_MAX_KEY;
}

enum ww_rc ww_store_get(
	struct ww_store *s, const char *kind, const char *key, struct ww_str *out, int *found, struct ww_err *err)
{
	*found = 0;
	if (!s)
		return WW_OK;
	WW_BUG(!fits(kind, key));
	WW_LOCKED(&s->lock);
	if (s->db)
		WW_CHECK(get_locked(s, kind, key, out, found, err));
	return WW_OK;
}

/* Checked by a writer once it has stored a fair share of the limit since its last check. */
static int evict(struct ww_store *s)
{
	sqlite3_stmt *q = s->statements[TOTAL];
	int rc = sqlite3_step(q);
	uint64_t total = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 0) : 0;
	done(q);
	if (rc != SQLITE_ROW)
		return rc;
	s->put_bytes = 0;
	if (total <= s->max_bytes)
		return SQLITE_OK;
	q = s->statements[EVICT];
	sqlite3_bind_int64(q, 1, (int64_t)(s->max_bytes / 8 * 7));
	rc = step(q);
	done(q);
	return rc;
}

static int put_locked(struct ww_store *s, const char *kind, const char *key, const void *bytes, size_t n)
{
	char hex[WW_HASH_HEX];
	sqlite3_stmt *q = s->statements[PUT];

	ww_hash_hex(bytes, n, hex);
	bind(q, kind, key);
	sqlite3_bind_int64(q, 3, now_ms());
	sqlite3_bind_int64(q, 4, (int64_t)n);
	sqlite3_bind_text(q, 5, hex, -1, SQLITE_STATIC);
	sqlite3_bind_blob64(q, 6, n ? bytes : "", n, SQLITE_STATIC);
	int rc = step(q);
	done(q);
	if (s->put_bytes != UINT64_MAX)
		s->put_bytes += n;
	return rc == SQLITE_OK && s->put_bytes > s->max_bytes / 64 ? evict(s) : rc;
}

enum ww_rc ww_store_put(
	struct ww_store *s, const char *kind, const char *key, const void *bytes, size_t n, struct ww_err *err)
{
	(void)err; /* failures of the file are not errors of the caller */
	if (!s || n > WW_STORE_MAX_VALUE_BYTES || n > s->max_bytes / 2)
		return WW_OK;
	WW_BUG(!fits(kind, key));
	WW_LOCKED(&s->lock);
	if (s->db && ww_now_ns() >= s->busy_until_ns) {
		int rc = put_locked(s, kind, key, bytes, n);
		if (rc != SQLITE_OK)
			on_failure(s, rc);
	}
	return WW_OK;
}
