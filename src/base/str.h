/* str.h - a growing byte string with a maximum.
 *
 * Strings grow from hostile input (model output, compiler output, HTTP bodies), so each has a maximum length. Appending
 * beyond it keeps what fits and sets `cut`: no caller has to check every append; one that must not lose bytes checks
 * `cut` once.  A NUL always follows the bytes and is not counted in len. Out of memory is treated like the maximum.
 *
 * A string of an arena (WW_STR_IN) grows there, and needs no release.
 */
#ifndef WW_BASE_STR_H
#define WW_BASE_STR_H

#include "base/arena.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stddef.h>

struct ww_str {
	char *p;                /* never NULL: "" before the first append */
	size_t len, cap, max;   /* bytes */
	int cut;                /* something did not fit */
	struct ww_arena *arena; /* where the bytes are; NULL: malloc'ed */
};

extern char ww_str_empty[1];
#define WW_STR_IN(in_arena, max_bytes) { ww_str_empty, 0, 0, (max_bytes), 0, (in_arena) }
#define WW_STR_INIT(max_bytes) WW_STR_IN(NULL, max_bytes)

void ww_str_init(struct ww_str *s, size_t max_bytes);
void ww_str_release(struct ww_str *s);
/* Released where its block ends: ww_auto_str line = WW_STR_INIT(4096); */
#define ww_auto_str WW_AUTO(ww_str_release) struct ww_str
void ww_str_reset(struct ww_str *s); /* length 0, memory kept */
void ww_str_add(struct ww_str *s, const void *bytes, size_t n);
void ww_str_adds(struct ww_str *s, const char *text);
void ww_str_addc(struct ww_str *s, char c);
void ww_str_addf(struct ww_str *s, const char *fmt, ...) WW_PRINTF(2, 3);
void ww_str_vaddf(struct ww_str *s, const char *fmt, va_list ap);
/* Make room for at least n further bytes; 0 where the maximum or memory forbids it (then `cut` is set). */
int ww_str_reserve(struct ww_str *s, size_t n);
/* Give the bytes, malloc'ed, to the caller and leave the string empty; NULL out of memory only. */
char *ww_str_take(struct ww_str *s);

/* Bounded text for people and models: the head and the tail of `text`, with "[... N bytes cut ...]" between them where
 * it is longer than max_bytes, cut between lines if it has any; bytes that are not printable UTF-8, and escape
 * characters, become '?'. */
void ww_str_add_bounded(struct ww_str *s, const char *text, size_t n, size_t max_bytes);
/* The same on one line: line feeds and tabs become spaces. */
void ww_str_add_line(struct ww_str *s, const char *text, size_t max_bytes);
/* The same for text from an untrusted source: every line of it begins with "| " and none is longer than
 * WW_STR_QUOTED_LINE, so that untrusted text never stands at the start of a line.  Ends with a newline unless it is
 * empty. */
enum { WW_STR_QUOTED_LINE = 400 };
void ww_str_add_quoted(struct ww_str *s, const char *text, size_t n, size_t max_bytes);

/* The next part of a list with commas (or line ends) between its parts, without the blanks around it: where it begins,
 * and its bytes in *n; *list moves behind it.  Empty parts are passed over; NULL at the end. */
const char *ww_list_next(const char **list, size_t *n);
/* The same as a text of its own, in `part` of `cap` bytes: 1; 0 at the end; -1 where the part is too long for it. */
int ww_list_part(const char **list, char *part, size_t cap);

/* Place of a word among n words; -1: it is none of them. */
int ww_word_at(const char *word, const char *const *words, size_t n);

/* Append one word of a shell's command line: as it is, or in single quotes where the shell would read it otherwise. */
void ww_str_add_shell(struct ww_str *s, const char *word);

#endif
