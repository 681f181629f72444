/* text.c - stop strings.
 *
 * A stop string may begin in the middle of one token and end in the middle of another, so it is looked for in the text.
 * Text that may be its beginning is held back until later tokens decide; all other text is output at once.  The text
 * held back is shorter than the longest stop string and the text of one token together.
 */
#include "infer/text.h"

#include <stdlib.h>
#include <string.h>

enum ww_rc ww_text_init(
	struct ww_text *t, const struct ww_tok *tok, const char *const *stop, int stop_n, struct ww_err *err)
{
	*t = (struct ww_text){ .held = WW_STR_INIT(WW_TEXT_HELD_MAX) };
	ww_detok_init(&t->detok, tok, 1);
	if (stop_n > WW_TEXT_STOPS_MAX)
		return ww_err_set(err, WW_ERR_USAGE, "%d stop strings; %d are allowed", stop_n, WW_TEXT_STOPS_MAX);
	for (int i = 0; i < stop_n; i++) {
		size_t n = strlen(stop[i]);
		if (!n || n > WW_TEXT_HELD_MAX / 2)
			return ww_err_set(
				err, WW_ERR_USAGE, "a stop string has %zu bytes; 1 to %d are allowed", n, WW_TEXT_HELD_MAX / 2);
		if (!(t->stop[t->stop_n] = strdup(stop[i])))
			return ww_nomem(err);
		t->stop_n++;
	}
	return WW_OK;
}

void ww_text_release(struct ww_text *t)
{
	for (int i = 0; i < t->stop_n; i++)
		free(t->stop[i]);
	ww_str_release(&t->held);
	*t = (struct ww_text){ .held = WW_STR_INIT(WW_TEXT_HELD_MAX) };
}

/* Where the first complete stop string begins, or the text's length. */
static size_t first_stop(const struct ww_text *t, int *found)
{
	size_t at = t->held.len;
	*found = 0;
	for (int i = 0; i < t->stop_n; i++) {
		const char *p = memmem(t->held.p, t->held.len, t->stop[i], strlen(t->stop[i]));
		if (p && (size_t)(p - t->held.p) < at) {
			at = (size_t)(p - t->held.p);
			*found = 1;
		}
	}
	return at;
}

/* Where the longest suffix begins that is a prefix of a stop string, or the text's length. */
static size_t first_doubt(const struct ww_text *t)
{
	size_t at = t->held.len;
	for (int i = 0; i < t->stop_n; i++) {
		size_t n = strlen(t->stop[i]) - 1;
		for (n = n < t->held.len ? n : t->held.len; n > 0; n--)
			if (!memcmp(t->held.p + t->held.len - n, t->stop[i], n)) {
				at = t->held.len - n < at ? t->held.len - n : at;
				break;
			}
	}
	return at;
}

static void give(struct ww_text *t, size_t n, struct ww_str *out)
{
	ww_str_add(out, t->held.p, n);
	memmove(t->held.p, t->held.p + n, t->held.len - n);
	t->held.len -= n;
	if (t->held.cap)
		t->held.p[t->held.len] = 0;
}

int ww_text_add(struct ww_text *t, int32_t id, struct ww_str *out)
{
	if (t->stopped)
		return 1;
	ww_detok_add(&t->detok, id, &t->held);
	size_t at = first_stop(t, &t->stopped);
	give(t, t->stopped ? at : first_doubt(t), out);
	return t->stopped;
}

void ww_text_finish(struct ww_text *t, struct ww_str *out)
{
	int found;
	if (t->stopped)
		return;
	ww_detok_finish(&t->detok, &t->held);
	size_t at = first_stop(t, &found); /* the last bytes may have made a character */
	t->stopped = found;
	give(t, at, out);
}
