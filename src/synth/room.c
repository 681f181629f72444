/* room.c - see room.h. */
#include "synth/room.h"
#include "base/lock.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

/* FACTOR: until ENOUGH have shown theirs.  SHARE of them then take less; peaks of those that run at once seldom come
 * together, and one that finds no memory all the same is run again with more (docs/design/synth.md). */
enum { ENOUGH = 32 };
static const double FACTOR = 3, SHARE = 0.6, MARGIN = 1.1, LONG_S = 0.2;
/* PATIENCE_S: how long others may pass one that waits.  SPARE: of the room, what those that compile may hold beside one
 * that has the device alone; LITTLE: beside one that stays alone, since a network of many modules compiles for half a
 * minute and holds nearly nothing. */
static const double PATIENCE_S = 30, SPARE = 0.25, LITTLE = 0.02;

struct waiter {
	struct ww_queued queued;
	uint64_t since_ns;
};

void ww_room_init(struct ww_synth_room *r)
{
	*r = (struct ww_synth_room){
		.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .patience_s = PATIENCE_S
	};
}

void ww_room_release(struct ww_synth_room *r)
{
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
}

void ww_room_limit(struct ww_synth_room *r, double bytes)
{
	WW_LOCKED(&r->lock);
	r->bytes = bytes;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double factor(const struct ww_synth_room *r)
{
	double sorted[WW_ROOM_SEEN];
	int n = r->seen < WW_ROOM_SEEN ? r->seen : WW_ROOM_SEEN;
	if (n < ENOUGH)
		return FACTOR;
	memcpy(sorted, r->factors, (size_t)n * sizeof(*sorted));
	qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
	return MARGIN * sorted[(int)(SHARE * (n - 1))];
}

double ww_room_expected(struct ww_synth_room *r, double values)
{
	WW_LOCKED(&r->lock);
	double bytes = factor(r) * values;
	return bytes < r->bytes ? bytes : r->bytes;
}

void ww_room_learn(struct ww_synth_room *r, double values, double peak)
{
	WW_LOCKED(&r->lock);
	if (values > 0 && peak > 0)
		r->factors[r->seen++ % WW_ROOM_SEEN] = peak / values;
}

static void changed(struct ww_synth_room *r, double more)
{
	r->used += more;
	if (r->used < 1)
		r->used = 0; /* doubles do not subtract to exactly 0 */
	pthread_cond_broadcast(&r->changed);
}

/* back: it holds its inputs, so waiting for its own memory would free nothing. */
static int has_room(const struct ww_synth_place *p, const struct waiter *w, double more, int back)
{
	const struct ww_synth_room *r = p->room;
	if (r->alone)
		return 0;
	if (p->bytes < 0)
		return !r->running && r->used <= (p->stays ? LITTLE : SPARE) * r->bytes;
	if (back)
		return !r->running || r->used + more <= r->bytes;
	const struct waiter *first = (const struct waiter *)r->to_begin.first;
	if (r->waiting || (first != w && ww_seconds_since(first->since_ns) > r->patience_s))
		return 0;
	return r->used <= 0 || r->used + more <= r->bytes;
}

static void enter(struct ww_synth_place *p, int back)
{
	struct ww_synth_room *r = p->room;
	int alone = p->bytes < 0;
	double more = alone ? 0 : p->bytes - (back ? p->idle : 0);
	struct waiter w = { .since_ns = ww_now_ns() };
	WW_LOCKED(&r->lock);
	r->waiting += alone && back;
	if (!back)
		ww_queue_add(&r->to_begin, &w.queued);
	while (!has_room(p, &w, more, back))
		ww_cond_wait(&r->changed, &r->lock, LONG_S);
	ww_queue_remove(&r->to_begin, &w.queued);
	r->waiting -= alone && back;
	r->alone = alone;
	r->running++;
	changed(r, more);
}

void ww_room_take(struct ww_synth_place *p) { enter(p, 0); }

void ww_room_back(struct ww_synth_place *p)
{
	if (!p->stays)
		enter(p, 1);
}

void ww_room_known(struct ww_synth_place *p, double peak)
{
	struct ww_synth_room *r = p->room;
	WW_LOCKED(&r->lock);
	double had = p->bytes < 0 ? r->bytes : p->bytes;
	if (p->stays || peak >= had)
		return;
	r->alone = p->bytes < 0 ? 0 : r->alone;
	changed(r, p->bytes < 0 ? peak : peak - had);
	p->bytes = peak;
	p->idle = p->idle < peak ? p->idle : peak;
}

static void leave(struct ww_synth_place *p, double keeps)
{
	struct ww_synth_room *r = p->room;
	int alone = p->bytes < 0;
	WW_LOCKED(&r->lock);
	r->running--;
	r->alone = alone ? 0 : r->alone;
	changed(r, alone ? 0 : keeps - p->bytes);
}

void ww_room_rest(struct ww_synth_place *p)
{
	if (!p->stays)
		leave(p, p->idle);
}

void ww_room_give(struct ww_synth_place *p) { leave(p, 0); }

int ww_room_again(const struct ww_synth_room *r, struct ww_synth_try *t, int no_room, int broke)
{
	if (broke) {
		int before = t->broke;
		t->broke = 1;
		return !before;
	}
	if (!r || !no_room || t->stays)
		return 0;
	t->stays = t->bytes < 0;
	t->bytes = t->stays || 2 * t->bytes > r->bytes ? -1 : 2 * t->bytes;
	return 1;
}
