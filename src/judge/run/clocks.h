/* clocks.h - three clocks time each call of a candidate's graph; which one counts.  (plugin_clock.c reads
 * them.)
 *
 *     event_us    between two events around the graph: exact, but the time stamps lie where device code can write
 *     span_us     from before the flush to behind the graph, by two stamps of our own: nobody can change the first,
 *                 since it has been read before the graph is submitted, nor the second, which is written when the graph
 *                 has ended
 *     host_us     the host's clock around all of it
 *
 * A call without a graph has the same three.  So a span, less that of a call without a graph, is the graph's time, only
 * less exact than the events by what the flush before it varies (on an H200 by 1.5 us).  A single call whose span says
 * more than its events by so much that no flush explains it counts as long as the span says; so a forger gains at most
 * the slack, and in the middle of all calls, which is what a verdict reports, less than half of that (timing.c).  The
 * host's clock tells only gross lies, but also those of a kernel that works on behind a forged end of everything.
 *
 * Where the call without a graph before it took far longer than such calls do, another process has a share of the
 * device (or earlier work of the candidate goes on): clocks then disagree without a lie.  That is no contradiction, and
 * the call counts as long as the host says, the call before it included, so nobody gains by keeping the device busy. */
#pragma once

#include <math.h>

struct ww_clocks {
	double event_us, span_us, host_us;
};
/* Calls without a graph, from when no candidate had run in this process: medians, and how far apart four fifths of the
 * spans lie. */
struct ww_clocks_empty {
	struct ww_clocks mid;
	double noise_us;
};

struct ww_believed {
	double device_us; /* what the call took */
	double stamp_us,
		host_us;      /* by the stamps, NAN where they make no sense, and by the host, less what no graph takes */
	int contradicted; /* the events say much less than another clock */
};

/* call: with the graph; before and after it: calls without. */
static inline struct ww_believed ww_clocks_believe(const struct ww_clocks *call, const struct ww_clocks *before,
	const struct ww_clocks *after, const struct ww_clocks_empty *empty)
{
	static const double SLACK_US = 4, SLACK_SHARE = 0.02, GROSS_SHARE = 0.5, GROSS_ROUNDS = 4, GROSS_US = 200;
	struct ww_believed b = { .device_us = call->event_us };
	double low = fmin(before->span_us, after->span_us), high = fmax(before->span_us, after->span_us);
	double base = fmax(low, fmin(high, empty->mid.span_us)); /* the one in the middle of the three */

	b.stamp_us = call->span_us - base + empty->mid.event_us;
	b.host_us = call->host_us + after->host_us - 2 * empty->mid.host_us;
	double more = b.host_us - call->event_us, wait = before->host_us - empty->mid.host_us;
	double gross = GROSS_ROUNDS * empty->mid.host_us + GROSS_US;
	b.contradicted = more > GROSS_SHARE * b.host_us && more > gross;
	if (!isfinite(b.stamp_us)) {
		b.contradicted = 1;
		b.device_us = fmax(b.host_us, call->event_us);
	} else if (b.stamp_us - call->event_us > SLACK_US + empty->noise_us + SLACK_SHARE * b.stamp_us) {
		b.contradicted = 1;
		b.device_us = b.stamp_us;
	}
	if (b.contradicted && wait > gross) {
		b.contradicted = 0;
		b.device_us = fmax(b.device_us, b.host_us + wait);
	}
	return b;
}
