/* room.h - memory of a device, shared by the candidates that run on it.  Internal to src/synth.
 *
 * A candidate waits until the device has what it is expected to need: the bytes of its inputs and values times a factor
 * that the candidates before it have shown.  While it compiles it holds its inputs alone, and once its peak is known no
 * more than that.  One that needs the device alone begins when no other runs and what compiles holds little.  Small
 * ones pass a large one, and one that waits to be alone, for some seconds; then they wait until it is there.
 *
 * Threads may use one room at a time; a place belongs to one thread. */
#pragma once

#include "base/queue.h"

#include <pthread.h>

enum { WW_ROOM_SEEN = 512 };

struct ww_synth_room {
	pthread_mutex_t lock; /* all that follows */
	pthread_cond_t changed;
	double bytes, used;           /* limit of all places together; taken by those that are there */
	double patience_s;            /* how long others pass one that waits */
	int alone;                    /* one has the device alone */
	int waiting;                  /* those that have compiled and wait to have it alone */
	int running;                  /* those that neither wait nor compile */
	struct ww_queue to_begin;     /* those that wait to begin */
	int seen;                     /* candidates whose peak is known */
	double factors[WW_ROOM_SEEN]; /* of the last of them: peak over bytes of inputs and values */
};
void ww_room_init(struct ww_synth_room *r);
void ww_room_release(struct ww_synth_room *r);
void ww_room_limit(struct ww_synth_room *r, double bytes);
/* Bytes that a candidate with so many bytes of inputs and values is expected to need. */
double ww_room_expected(struct ww_synth_room *r, double values);
/* What one has needed. */
void ww_room_learn(struct ww_synth_room *r, double values, double peak);

/* What a candidate takes.  Set bytes and idle, then call in this order: take, any number of (known, rest, back), give.
 */
struct ww_synth_place {
	struct ww_synth_room *room;
	double bytes; /* while it runs; below zero: the device alone */
	double idle;  /* of them while it compiles */
	int stays;    /* with bytes below zero: nobody else runs, from take to give, even while it compiles */
};

/* How a candidate is tried: with its expected bytes first. */
struct ww_synth_try {
	double bytes; /* below zero: with the device alone */
	int stays;    /* as in a place */
	int broke;    /* its device has failed under it */
};
/* How it is tried again, in a new worker; 0: what became of it stands.  no_room: memory did not suffice: with twice as
 * much, then alone beside what compiles, then alone, since the memory of others says nothing about it.  broke: its
 * device failed: once more, with the same room, since what broke it may have been an earlier task of its worker.
 * r: NULL: no device is shared. */
int ww_room_again(const struct ww_synth_room *r, struct ww_synth_try *t, int no_room, int broke);
void ww_room_take(struct ww_synth_place *p);
void ww_room_known(struct ww_synth_place *p, double peak); /* it needs no more than this, so not the device alone */
void ww_room_rest(struct ww_synth_place *p);               /* it compiles */
void ww_room_back(
	struct ww_synth_place *p); /* it runs again; it goes first, since waiting would not free what it has */
void ww_room_give(struct ww_synth_place *p);
