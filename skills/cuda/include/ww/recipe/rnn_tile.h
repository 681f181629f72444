/* recipe/rnn_tile.h - estimates the time of a recurrent layer's steps on an H200.  The planner chooses between them and
 * cuDNN's by it, the plan between blocks that own units and blocks that own rows of the batch. */
#ifndef WW_RECIPE_RNN_TILE_H
#define WW_RECIPE_RNN_TILE_H

struct ww_rnn_size {
	long long gates, cells; /* 4 and 1 for LSTM, 3 and 0 for GRU, 1 and 0 for RNN */
	long long steps, batch, hidden;
	long long sms, shared; /* multiprocessors; bytes of shared memory of a block */
};

/* A block owns rows of the batch: `each` of a thread, `rows` in all; each 0: it cannot.  held: the weights of a unit,
 * along k, that its thread has in registers; 0: all are read from shared memory in each step. */
struct ww_rnn_rows {
	int each, rows, threads, held;
	long long bytes; /* of shared memory */
	double us;
};

static long long ww_rnn_up(long long a, long long b) { return (a + b - 1) / b * b; }

/* Blocks own units.  Fitted to six layers (bench/results/coverage.md, fresh.md), hidden 32 to 2,048 and batches of 8 to
 * 1,024: a barrier, loading the state, and for each unit and four rows loads, sums across lanes and gates. */
static double ww_rnn_units_us(const struct ww_rnn_size *s)
{
	const long long sms = s->sms > 0 ? s->sms : 1, units = ww_rnn_up(s->hidden, sms) / sms;
	const long long padded = ww_rnn_up(s->hidden, 4) * 4,
					tasks = ww_rnn_up(units * (ww_rnn_up(s->batch, 4) / 4), 8) / 8;
	const int kept = s->gates * units * padded + 4 * padded <= s->shared;
	const double sums = kept ? .03 * (double)(ww_rnn_up(s->hidden, 128) / 128)
							 : .6 * (double)(ww_rnn_up(s->hidden, 32) / 32);

	return (double)s->steps * (3 + (double)(s->batch * s->hidden) * 4 / 20e3 + (double)tasks * (1.75 + sums));
}

/* Blocks own rows, `groups` of `each`.  Counted, not measured: what shared memory hands over (16 bytes of the state a
 * clock, and a word of W that is not held) and what is issued, both for all blocks of an SM; a barrier, gates and the
 * latency of a step. */
static struct ww_rnn_rows ww_rnn_of_rows(const struct ww_rnn_size *s, int groups, int each)
{
	enum { HELD = 128, OTHERS = 80, FILE = 65536 }; /* registers: of weights, of a thread's rest, of an SM */
	const long long up = ww_rnn_up(s->hidden, 32), k = ww_rnn_up(s->hidden, 4), threads = groups * up;
	const long long rows = groups * each, bytes = 4 * (s->gates * k * (up + 1) + 2 * rows * up);
	const int held = s->gates * k <= HELD ? (int)k : 0;
	const long long sms = s->sms > 0 ? s->sms : 1, fit = FILE / (threads * (OTHERS + s->gates * held));
	const long long blocks = ww_rnn_up(s->batch, rows) / rows, on_one = ww_rnn_up(blocks, sms) / sms;
	const long long room = s->shared / bytes < fit ? s->shared / bytes : fit;
	const long long wave = room < 1 ? 1 : on_one < room ? on_one : room, warps = threads / 32;
	const double loads = (double)(k / 4 * ((held ? 0 : 4 * s->gates) + each)), adds = (double)(k * s->gates * each);
	const double all = (double)(wave * warps) * (loads > (loads + adds) / 4 ? loads : (loads + adds) / 4);
	const double alone = 1.3 * (loads + adds);
	const double step = (all > alone ? all : alone) + 400 + 60. * (double)(s->gates * each);
	const double start = 1200. * (double)(s->gates * ww_rnn_up(up, 8 * warps) / (8 * warps) * ww_rnn_up(k, 32) / 32);

	return (struct ww_rnn_rows){ each, (int)rows, (int)threads, held, bytes,
		3 + (double)((on_one + wave - 1) / wave) * (start + (double)s->steps * step) / 1755 };
}

static struct ww_rnn_rows ww_rnn_choose_rows(const struct ww_rnn_size *s)
{
	struct ww_rnn_rows best = { 0 };

	for (int each = 2; each <= 8; each *= 2)
		for (int groups = 1; groups * ww_rnn_up(s->hidden, 32) <= 256; groups++) {
			const struct ww_rnn_rows now = ww_rnn_of_rows(s, groups, each);

			if (now.bytes <= s->shared && s->gates * each <= 16 && (!best.each || now.us < best.us))
				best = now;
		}
	return best;
}

#endif
