/* kept.c - see kept.h. */
#include "base/kept.h"

#include <stdlib.h>
#include <string.h>

void ww_kept_open(struct ww_kept *k) { k->file = tmpfile(); }

static int is_written(struct ww_kept *k, long long at, const char *text, size_t n)
{
	int good = !fseek(k->file, (long)(at % WW_KEPT_BYTES), SEEK_SET) && fwrite(text, 1, n, k->file) == n;
	good = !fflush(k->file) && good;
	clearerr(k->file);
	return good;
}

void ww_kept_put(struct ww_kept *k, const char *key, const json_t *value)
{
	char *text = k->file ? json_dumps(value, JSON_COMPACT) : NULL;
	size_t n = text ? strlen(text) : 0;
	if (n > 0 && n <= WW_KEPT_BYTES && strlen(key) <= WW_KEPT_KEY) {
		long long left = WW_KEPT_BYTES - k->end % WW_KEPT_BYTES, at = k->end + ((long long)n > left ? left : 0);
		k->end = at + (long long)n;
		if (is_written(k, at, text, n)) {
			int i = k->n++ % WW_KEPT;
			memcpy(k->list[i].key, key, strlen(key) + 1);
			k->list[i].at = at;
			k->list[i].bytes = (int)n;
		}
	}
	free(text);
}

static json_t *value_of(struct ww_kept *k, long long at, size_t n)
{
	json_t *value = NULL;
	char *text = malloc(n);
	if (text && !fseek(k->file, (long)(at % WW_KEPT_BYTES), SEEK_SET) && fread(text, 1, n, k->file) == n)
		value = json_loadb(text, n, JSON_DECODE_ANY, NULL);
	clearerr(k->file);
	free(text);
	return value;
}

json_t *ww_kept_get(struct ww_kept *k, const char *key)
{
	for (int i = 0; i < WW_KEPT && i < k->n; i++)
		if (!strcmp(k->list[i].key, key) && k->end - k->list[i].at <= WW_KEPT_BYTES)
			return value_of(k, k->list[i].at, (size_t)k->list[i].bytes);
	return NULL;
}

void ww_kept_close(struct ww_kept *k)
{
	if (k->file)
		fclose(k->file);
	k->file = NULL;
	k->n = 0;
}
