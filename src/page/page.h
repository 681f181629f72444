/* page.h - self-contained HTML pages: head and style, escaped text, tables of facts, folded listings.
 *
 * A page needs nothing but itself: no script, no font, no picture from elsewhere, and its Content-Security-Policy
 * forbids all loading.  Text goes in through the functions here, which drop control characters and escape < > & " ', so
 * that text of a model, a task or a compiler stays text, also inside an attribute.
 *
 * All functions append to `h`; where that is full they set h->cut, which the writer of the page checks once. */
#pragma once

#include "base/str.h"

/* Text of at most max_bytes bytes, cut in the middle where it is longer. */
void ww_page_text(struct ww_str *h, const char *text, size_t max_bytes);
/* printf, escaped; at most 4 KiB. */
void ww_page_textf(struct ww_str *h, const char *fmt, ...) WW_PRINTF(2, 3);

/* Doctype, head with style, <body> and <h1>title</h1>; and what closes them. */
void ww_page_begin(struct ww_str *h, const char *title);
void ww_page_end(struct ww_str *h);

/* A table of names and values: begin, a row for each fact (empty values are left out), end. */
void ww_page_facts_begin(struct ww_str *h);
void ww_page_fact(struct ww_str *h, const char *name, const char *fmt, ...) WW_PRINTF(3, 4);
void ww_page_facts_end(struct ww_str *h);

/* A listing that can be folded; `open`: it is not at first.  Code has line numbers, which copying leaves out. */
void ww_page_fold(struct ww_str *h, const char *title, const char *text, int open);
void ww_page_code(struct ww_str *h, const char *title, const char *text, int open);
