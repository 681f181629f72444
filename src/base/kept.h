/* kept.h - the newest values of many, by their keys.  The values' texts lie in a temporary file without a name, in a
 * ring, so that a process does not grow with what it has answered. */
#pragma once

#include <jansson.h>
#include <stdio.h>

enum { WW_KEPT = 2048, WW_KEPT_BYTES = 32 << 20, WW_KEPT_KEY = 64 };

struct ww_kept {
	FILE *file;    /* NULL: no room for one, so nothing is kept */
	long long end; /* bytes that were ever written, with those left free at the ring's end */
	int n;         /* values that were ever written */
	struct {
		char key[WW_KEPT_KEY + 1];
		long long at; /* its place is at % WW_KEPT_BYTES */
		int bytes;
	} list[WW_KEPT];
};

/* k holds zeros; ends with ww_kept_close(). */
void ww_kept_open(struct ww_kept *k);
/* key: WW_KEPT_KEY bytes at most.  What cannot be written is not kept. */
void ww_kept_put(struct ww_kept *k, const char *key, const json_t *value);
/* A new reference; NULL where it was never there, or newer ones took its place. */
json_t *ww_kept_get(struct ww_kept *k, const char *key);
void ww_kept_close(struct ww_kept *k);
