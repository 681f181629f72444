/* recipe/rnn_stack_tile.h - how blocks share the units of recurrent layers that run beside each other, and an estimate
 * of the time on an H200.  The planner chooses between this kernel, <ww/rnn.cuh> and cuDNN by it. */
#ifndef WW_RECIPE_RNN_STACK_TILE_H
#define WW_RECIPE_RNN_STACK_TILE_H

struct ww_rnn_stack_size {
	long long gates, cells;  /* 4 and 1 for LSTM, 3 and 0 for GRU, 1 and 0 for RNN */
	long long chains, below; /* chains; 1: each but the first reads the one before */
	long long steps, batch, hidden;
	long long sms, shared; /* multiprocessors; bytes of shared memory of a block */
};

/* lanes: that share a unit's sums; held: its weights of a gate in a lane's registers, 0: they do not fit; each: rows at
 * a time; rows: of the batch, staged at a time; units, threads and bytes of shared memory of a block.  alone: a block
 * has a whole chain, of `each` rows of the batch.  lanes 0: no launch fits. */
struct ww_rnn_stack_tile {
	int alone, lanes, held, each, rows, units, threads;
	long long bytes;
	double us;
};

static long long ww_rnn_stack_up(long long a, long long b) { return (a + b - 1) / b * b; }

/* Rows that shared memory holds, and its bytes. */
static void ww_rnn_stack_room(const struct ww_rnn_stack_size *s, struct ww_rnn_stack_tile *t)
{
	const long long row = 4 * (4 * ww_rnn_stack_up(s->hidden, 4 * t->lanes) + 3 * s->gates * t->units);
	const long long cells = 4 * s->cells * s->batch * t->units;
	const long long fit = s->shared > cells ? (s->shared - cells) / row / t->each * t->each : 0;
	const long long all = ww_rnn_stack_up(s->batch, t->each);

	t->rows = (int)(all < fit ? all : fit);
	t->bytes = t->rows * row + cells;
}

/* Counted, not measured.  A scheduler issues the instructions of its warps' products and sums; shared memory hands over
 * 128 bytes a clock.  A state's way to the other blocks, through the second level, takes some 900 clocks.  Both halves
 * of the warps share the multiprocessor: the one that is ahead computes while the other one waits. */
static void ww_rnn_stack_time(const struct ww_rnn_stack_size *s, struct ww_rnn_stack_tile *t)
{
	const int k = t->held, warps = t->threads / 64, each = t->each, halves = s->below ? 2 : 1;
	const long long chunks = ww_rnn_stack_up(s->batch, t->rows) / t->rows, rows = ww_rnn_stack_up(s->batch, each);
	const long long blocks = s->chains * (ww_rnn_stack_up(s->hidden, t->units) / t->units);
	double sums = 12, shuffles = 0, issued, handed, all, own, step;

	for (int d = t->lanes / 2, n = each; d > 0; d /= 2) {
		sums += (double)s->gates * (n > 1 ? 2 * n : 2);
		shuffles += (double)(s->gates * (n > 1 ? n / 2 : 1));
		n = n > 1 ? n / 2 : 1;
	}
	issued = (double)rows * (double)(s->gates * k + k / 4) + (double)(rows / each) * sums;
	handed = (double)rows * (k / 4. * (t->lanes > 8 ? t->lanes / 8. : 1)) + (double)(rows / each) * shuffles;
	all = (halves * warps + 3) / 4 * issued;
	all = all > halves * warps * handed ? all : halves * warps * handed;
	own = (warps + 3) / 4 * issued;
	own = own > warps * handed ? own : warps * handed;
	own = own > 1.5 * issued ? own : 1.5 * issued;
	step = 1.1 * own + (double)chunks * 1250 + (double)(s->batch * s->hidden) * 4 / 40 +
		(double)(ww_rnn_stack_up(s->batch * (32 / t->lanes), 32) / 32) * 100;
	step = step > 1.1 * all + 200 ? step : 1.1 * all + 200;
	all = (double)(blocks * halves * s->batch * s->hidden) * 4 / 2500; /* of the second level */
	step = step > all ? step : all;
	t->us = 10 + (double)(s->chains * s->steps * s->batch * s->hidden) * 4 / 2.5e6 +
		((double)s->steps + (s->below ? (double)s->chains - 1 : 0)) * step / 1755;
}

/* The same of a block that has a whole chain: a step waits for two meetings, a sum across lanes and the gates. */
static void ww_rnn_stack_alone_time(const struct ww_rnn_stack_size *s, struct ww_rnn_stack_tile *t)
{
	const int k = t->held, warps = t->threads / 64, each = t->each, halves = s->below ? 2 : 1;
	double sums = 80, issued, step;

	for (int d = t->lanes / 2, n = each; d > 0; d /= 2, n = n > 1 ? n / 2 : 1)
		sums += (double)s->gates * (n > 1 ? 2 * n : 2);
	issued = (double)each * (double)(s->gates * k + k / 4) + sums;
	step = (halves * warps + 3) / 4 * issued;
	step = 1.1 * step > 1.5 * issued ? 1.1 * step : 1.5 * issued;
	step += 450;
	t->us = (s->below ? 10 : 5) + ((double)s->steps + (s->below ? 3 * ((double)s->chains - 1) : 0)) * step / 1755;
}

/* The fastest launch whose blocks have whole chains; lanes 0: weights do not fit the registers of 16 warps, or rows the
 * multiprocessors. */
static struct ww_rnn_stack_tile ww_rnn_stack_alone(const struct ww_rnn_stack_size *s)
{
	enum { OTHERS = 56, FILE = 65536, MOST = 248, HALF_WARPS = 8 };
	struct ww_rnn_stack_tile best = { 0 }, t;

	for (int lanes = 2; lanes <= 32; lanes *= 2)
		for (int each = 1; each <= lanes && each <= 8; each *= 2) {
			const long long held = ww_rnn_stack_up(s->hidden, 4 * lanes) / lanes;
			const long long warps = ww_rnn_stack_up(s->hidden, 32 / lanes) / (32 / lanes);
			const long long needs = s->gates * (held + each) + OTHERS;

			if (warps > HALF_WARPS || needs > MOST || needs > FILE / (64 * warps) ||
				s->chains * (ww_rnn_stack_up(s->batch, each) / each) > s->sms)
				continue;
			t = (struct ww_rnn_stack_tile){ .alone = 1,
				.lanes = lanes,
				.held = (int)held,
				.each = each,
				.rows = each,
				.units = (int)warps * (32 / lanes),
				.threads = 64 * (int)warps };
			t.bytes = each * (24 * ww_rnn_stack_up(s->hidden, 4 * lanes) + 16 * s->gates * t.units);
			ww_rnn_stack_alone_time(s, &t);
			if (!best.lanes || t.us < best.us)
				best = t;
		}
	return best;
}

/* The fastest launch of those whose blocks are all resident, one of a multiprocessor, and hold their weights; if there
 * is none, one that reads them in each step. */
static struct ww_rnn_stack_tile ww_rnn_stack_choose(const struct ww_rnn_stack_size *s)
{
	enum { OTHERS = 40, FILE = 65536, MOST = 248, HALF_WARPS = 8 };  /* registers: of a thread's rest, of all, of one */
	const long long most = s->sms / (s->chains > 0 ? s->chains : 1); /* blocks of a chain */
	struct ww_rnn_stack_tile best = ww_rnn_stack_alone(s), t;

	if (most < 1)
		return best;
	for (int lanes = 4; lanes <= 32; lanes *= 2)
		for (int warps = 1; warps <= HALF_WARPS; warps++)
			for (int each = 1; each <= lanes && each <= 8; each *= 2) {
				const long long held = ww_rnn_stack_up(s->hidden, 4 * lanes) / lanes;
				const long long needs = s->gates * (held + each) + OTHERS;

				if ((s->hidden + warps * (32 / lanes) - 1) / (warps * (32 / lanes)) > most || needs > MOST ||
					needs > FILE / (64 * warps))
					continue;
				t = (struct ww_rnn_stack_tile){ .lanes = lanes,
					.held = (int)held,
					.each = each,
					.units = warps * (32 / lanes),
					.threads = 64 * warps };
				ww_rnn_stack_room(s, &t);
				if (t.rows < 1)
					continue;
				ww_rnn_stack_time(s, &t);
				if (!best.lanes || t.us < best.us)
					best = t;
			}
	if (!best.lanes) {
		t = (struct ww_rnn_stack_tile){ .lanes = 32,
			.each = 2,
			.threads = 64 * HALF_WARPS,
			.us = 1e30,
			.units = (int)(ww_rnn_stack_up(s->hidden, most) / most) };
		ww_rnn_stack_room(s, &t);
		if (t.rows > 0)
			best = t;
	}
	return best;
}

#endif
