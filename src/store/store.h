/* store.h - a cache on disk of values that can be computed again, addressed by content, shared by all processes of a
 * user.
 *
 * A value is bytes under (kind, key): kind is a short word ("binary", "image", "graph", "baseline"), key a hash of
 * everything that the value depends on, so an entry is never out of date, only unused.  A reader does not trust a
 * value: it checks it as it would check input.
 *
 * A store never makes a verdict fail.  A file that is damaged, is no store, or was written by another
 * version is renamed to PATH.bad (one log line) and replaced by a new one.  Where no file can be used (no space, no
 * rights, a lock that another process holds), every get finds nothing, every put is dropped, and one log line says so.
 * The remaining errors are of this process: no memory, a value that does not fit the caller's string.
 *
 * The file is SQLite in WAL mode: readers never wait, writers wait for each other, kill -9 at any moment leaves the old
 * content or the new one.  Format, version 1:
 *
 *     PRAGMA application_id    0x57575331 ("WWS1")
 *     PRAGMA user_version      1
 *     table entry
 *       id      INTEGER PRIMARY KEY   rowid, grows with each put
 *       kind    TEXT                  at most 31 bytes
 *       key     TEXT                  at most 191 bytes; (kind, key) is unique
 *       used    INTEGER               milliseconds since 1970 of the last use, exact to USED_GRAIN_MS
 *       bytes   INTEGER               of value
 *       sum     TEXT                  SHA-256 of value, 64 hexadecimal digits; an entry that does not match is dropped
 *       value   BLOB
 *     index entry_used ON entry(used, bytes)
 *
 * When the values together exceed the store's limit, the least recently used entries are evicted until an eighth is
 * free.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

struct ww_store;

enum { WW_STORE_MAX_KIND = 31, WW_STORE_MAX_KEY = 191, WW_STORE_MAX_VALUE_BYTES = 80 << 20 };

struct ww_store_opts {
	const char *path;   /* NULL: cache.sqlite in the cache directory (base/fs.h) */
	uint64_t max_bytes; /* of all values; 0: 1 GiB */
};

/* Open the store, or one without a file (see above).  opts may be NULL. */
enum ww_rc ww_store_open(struct ww_store **out, const struct ww_store_opts *opts, struct ww_err *err) WW_MUST_CHECK;
void ww_store_close(struct ww_store *s); /* NULL is fine */

/* Append the value to out and set *found; *found = 0 leaves out as it is.  Any number of threads at once, as with put.
 * s may be NULL: nothing is found, nothing is stored. */
enum ww_rc ww_store_get(struct ww_store *s, const char *kind, const char *key, struct ww_str *out, int *found,
	struct ww_err *err) WW_MUST_CHECK;
/* Store the value, in place of an older one; one larger than WW_STORE_MAX_VALUE_BYTES or half the store is dropped. */
enum ww_rc ww_store_put(struct ww_store *s, const char *kind, const char *key, const void *bytes, size_t n,
	struct ww_err *err) WW_MUST_CHECK;
