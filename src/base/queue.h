/* queue.h - entries in the order in which they came.  Each lies in a struct of its owner, as that struct's first
 * member, so a pointer to the one is a pointer to the other.  Nothing is allocated, nothing is locked. */
#pragma once

#include <stddef.h>

struct ww_queued {
	struct ww_queued *next; /* that came later; NULL: none */
};

struct ww_queue {
	struct ww_queued *first; /* NULL: it is empty */
};

/* Put an entry behind all others.  It stays the caller's, and has to live until it is taken out. */
static inline void ww_queue_add(struct ww_queue *q, struct ww_queued *e)
{
	struct ww_queued **at = &q->first;
	while (*at)
		at = &(*at)->next;
	e->next = NULL;
	*at = e;
}

/* Take an entry out, wherever it stands; nothing happens where it is not in the queue. */
static inline void ww_queue_remove(struct ww_queue *q, const struct ww_queued *e)
{
	struct ww_queued **at = &q->first;
	while (*at && *at != e)
		at = &(*at)->next;
	if (*at)
		*at = e->next;
}
