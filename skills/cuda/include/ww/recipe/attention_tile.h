/* recipe/attention_tile.h - estimates the times of attention_mma and attention16 with each tile, and chooses the best
 * ones.  Plans choose the tile by it; the planner chooses between these kernels, that of attention.cuh, and products
 * with a softmax between them.
 *
 * It counts the instructions of each kind that an SM of an H200 issues, and how long one warp takes for a tile by
 * itself, which is fitted to six measured kernels (bench/results/attention.md).  Only the order of tiles matters. */
#ifndef WW_RECIPE_ATTENTION_TILE_H
#define WW_RECIPE_ATTENTION_TILE_H

enum { WW_ATTENTION_ALL = 1 << 30 }; /* the end of a band: no limit */

struct ww_attention_size {
	long long batch, group; /* heads of all batches; how many of them share one of k and v */
	long long t_q, t_k, width, width_v;
	int bytes; /* of an element, 4 or 2 */
	int causal, masked;
	long long span; /* of a band: how many keys a row sees; 0: no band */
	long long sms;
};

/* A block has warps * mt * 16 rows, and `teams` times as many warps; blocks: on an SM at once, as far as registers go.
 */
struct ww_attention_tile {
	int warps, mt, keys, stages, teams, blocks;
	double us;
};

static long long ww_attention_up(long long a, long long b) { return (a + b - 1) / b * b; }

/* Elements that `rows` rows take in shared memory, padding included. */
static long long ww_attention_padded(long long rows, long long width, int by_row)
{
	return by_row ? rows * (width + 8) : width * (rows + 8);
}

/* The same as attention_mma_shape's. */
static long long ww_attention_mma_bytes(
	const struct ww_attention_size *s, const struct ww_attention_tile *t, int q_row, int k_row, int v_row)
{
	const long long w = ww_attention_up(s->width, 16), v = ww_attention_up(s->width_v, 16),
					rows = t->warps * t->mt * 16;
	const long long q = 2 * ww_attention_padded(rows, w, q_row);
	const long long kv = 2 * (ww_attention_padded(t->keys, w, k_row) + ww_attention_padded(t->keys, v, v_row));

	const long long tiles = (s->bytes == 2 ? t->stages : 2) * kv, state = t->teams > 1 ? 8 * rows * (6 + v / 2) : 0;
	const long long teams = t->teams * (tiles > state ? tiles : state);

	if (s->bytes == 2)
		return q + teams;
	return 2 * q + (teams > 4 * rows * w ? teams : 4 * rows * w) + t->teams * 4 * t->keys * (w + v);
}

/* Blocks of 4 warps that fit into the registers of an SM (nvcc 13.0 for sm_90, no spills). */
static int ww_attention_held(const struct ww_attention_size *s, int mt)
{
	const long long w = ww_attention_up(s->width > s->width_v ? s->width : s->width_v, 16);

	if (s->bytes == 4)
		return w <= 16 ? 4 : w <= 80 ? 3 : 2;
	return mt == 2 ? (w <= 16 && !s->masked ? 3 : 2) : w <= 32 ? 4 : w <= 64 ? 3 : 2;
}

/* How many of t_k keys a row sees, in a band from `below` before its own to `above` after it. */
static long long ww_attention_span(long long below, long long above, long long t_k)
{
	const long long span = below + above + 1;

	return span < 1 ? 1 : span < t_k ? span : t_k;
}

static double ww_attention_most(double a, double b) { return a > b ? a : b; }

/* Clocks of an SM for a tile of one team: products, loads of fragments, and the rest; the longest of the three hides
 * most of the others. */
static double ww_attention_work(const struct ww_attention_size *s, const struct ww_attention_tile *t)
{
	const int words = s->bytes == 4;
	const double w = (double)(ww_attention_up(s->width, 16) + ww_attention_up(s->width_v, 16)), warps = t->warps;
	const double scores = warps * t->mt * 16 * t->keys, rows = warps * t->mt * 16;
	const double products = 2. * (words ? 3 : 1) * scores * w / 2048;
	const double q = s->width > 128 ? 16. * t->mt * (double)ww_attention_up(s->width, 16) : 0; /* not in registers */
	const double reads = 4. * (words ? 2 : 1) * warps * (t->keys * w + q) / 256;
	const double each = (words ? 9 : 6) + (s->masked ? 4 : 0);
	const double scale = rows * (double)s->width_v * (words ? 3 : 1), copies = t->keys * w * (words ? 9 : 1);
	const double other = ww_attention_most(scores * each / 128, scores / 16) + (scale + copies) / 128 + 40 * warps;
	const double most = ww_attention_most(products, ww_attention_most(reads, other));

	return most + .35 * (products + reads + other - most);
}

/* The part of all keys that a block of `rows` rows goes through. */
static double ww_attention_part(const struct ww_attention_size *s, long long rows)
{
	const double of = (double)(s->span + rows) / (double)s->t_k;

	if (s->span)
		return of < 1 ? of : 1;
	return s->causal ? .5 + .5 * (double)rows / (double)s->t_q : 1;
}

/* Clocks of a warp for a tile if nothing else runs: it waits for each instruction's result. */
static double ww_attention_alone(const struct ww_attention_size *s, const struct ww_attention_tile *t)
{
	const int words = s->bytes == 4;

	return (words ? 700 : 500) + (words ? 36 : 10) * (double)(s->width + s->width_v) * t->keys / 48 +
		(s->masked ? 25 * t->keys * t->mt : 0);
}

static double ww_attention_mma_us(const struct ww_attention_size *s, const struct ww_attention_tile *t)
{
	const long long rows = t->warps * t->mt * 16, blocks = ww_attention_up(s->t_q, rows) / rows * s->batch;
	const long long sms = s->sms > 0 ? s->sms : 1, on_one = (blocks + sms - 1) / sms;
	const long long room = 232448 / (ww_attention_mma_bytes(s, t, 1, 1, 1) + 1024);
	const long long held = room < 1 ? 1 : room < t->blocks ? room : t->blocks, wave = on_one < held ? on_one : held;
	const double w = (double)(s->width + s->width_v), part = ww_attention_part(s, rows);
	const double tiles = ww_attention_most(1, (double)(ww_attention_up(s->t_k, t->keys) / t->keys) * part);
	const double of_team = (double)(long long)(tiles / t->teams + .99);
	const double work = (double)(wave * t->teams) * ww_attention_work(s, t);
	const double tile = ww_attention_most(work, ww_attention_alone(s, t));
	const double ends = 4000 + .1 * (double)(wave * rows) * (double)s->width_v;
	const double joined = (t->teams > 1 ? 500 : 0) + (t->teams - 1) * t->mt * 5 * (double)s->width_v;
	const double clocks = (double)((on_one + wave - 1) / wave) * (of_team * tile + ends + joined);
	const double heads = (double)s->batch, kept = heads / (double)(s->group > 0 ? s->group : 1);
	const double memory = s->bytes * (heads * (double)s->t_q * w + kept * (double)s->t_k * w) / 4.2e6;
	const double cache = (double)blocks * tiles * t->keys * w * s->bytes / 5.5e6;

	return 2 + ww_attention_most(clocks / 1755, ww_attention_most(memory, cache));
}

/* Can tiles of so many keys be used?  fp32 above 32 wide has no registers for 64; 16 only for several teams, or if
 * there are no more keys. */
static int ww_attention_has_keys(const struct ww_attention_size *s, int keys, int teams)
{
	const long long w = s->width > s->width_v ? s->width : s->width_v;

	if (keys == 16)
		return teams > 1 || s->t_k <= 16;
	return keys < 64 || (s->t_k > 32 && !(s->bytes == 4 && w > 32));
}

/* The best tile of so many teams; warps, mt, keys: 0, or what it has. */
static struct ww_attention_tile ww_attention_of_teams(
	const struct ww_attention_size *s, int teams, int warps_, int mt_, int keys_)
{
	struct ww_attention_tile best = { 0 };
	const long long w = s->width > s->width_v ? s->width : s->width_v;
	const int most = s->bytes == 2 && w <= (s->masked ? 32 : 64) ? 2 : 1;

	for (int warps = warps_ ? warps_ : 4; warps >= (warps_ ? warps_ : 1); warps /= 2)
		for (int mt = mt_ ? mt_ : 1; mt <= (mt_ ? mt_ : most); mt++)
			for (int keys = keys_ ? keys_ : 64; keys >= (keys_ ? keys_ : 16); keys /= 2) {
				struct ww_attention_tile now = { warps, mt, keys, s->t_k > keys * teams ? 2 : 1, teams,
					ww_attention_held(s, mt) * 4 / (warps * teams), 0 };

				if (!now.blocks || (!keys_ && !ww_attention_has_keys(s, keys, teams)) ||
					(teams > 1 &&
						ww_attention_mma_bytes(s, &now, 0, 0, 0) > 231424)) /* the kernel has some of its own */
					continue;
				now.us = ww_attention_mma_us(s, &now);
				if (!best.warps || now.us < .98 * best.us)
					best = now;
			}
	return best;
}

/* The best tile; warps, mt, keys: 0, or what it has. */
static struct ww_attention_tile ww_attention_choose_with(const struct ww_attention_size *s, int warps, int mt, int keys)
{
	struct ww_attention_tile best = ww_attention_of_teams(s, 1, warps, mt, keys);

	for (int teams = 2; teams <= 8; teams *= 2) {
		const struct ww_attention_tile now = ww_attention_of_teams(s, teams, warps, mt, keys);

		if (now.warps && now.us < .95 * best.us)
			best = now;
	}
	return best;
}

static struct ww_attention_tile ww_attention_choose(const struct ww_attention_size *s)
{
	return ww_attention_choose_with(s, 0, 0, 0);
}

/* attention16: a block has 64 * groups rows, and `blocks` of them share an SM. */
struct ww_attention16_tile {
	int groups, keys, blocks, stages_q;
	int turns; /* blocks stay and go on to other rows, whose operands come while the last ones are computed and stored
	            */
	double us;
};

/* Dynamic shared memory: that of attention16_shape, its barriers, and room to align it. */
static long long ww_attention16_bytes(const struct ww_attention_size *s, const struct ww_attention16_tile *t)
{
	const long long parts = ww_attention_up(s->width, 64) / 64, v = ww_attention_up(s->width_v, 32);

	return t->stages_q * parts * 64 * t->groups * 128 + 2 * (parts * t->keys * 128 + 2 * t->keys * v) + 12 * 8 + 1024;
}

/* Do so many blocks of one group have registers and shared memory?  Four have 104 registers a thread, three 136, for
 * scores, weights, results and some 40 more. */
static int ww_attention16_holds(const struct ww_attention_size *s, const struct ww_attention16_tile *t, int blocks)
{
	const long long needed = t->keys / 2 + t->keys / 4 + ww_attention_up(s->width_v, 32) / 2 + (s->masked ? 80 : 40);

	return blocks * (ww_attention16_bytes(s, t) + 1024) <= 233472 &&
		(blocks < 3 || needed <= (blocks == 3 ? 136 : 104));
}

static long long ww_attention16_rows(const struct ww_attention_size *s, int groups)
{
	return ww_attention_up(s->t_q, 64 * groups) / (64 * groups) * s->batch;
}

/* The tile of so many groups and keys.  Blocks stay where all rows have the same keys: else the block that ends first
 * would have to take the next rows. */
static struct ww_attention16_tile ww_attention16_of(const struct ww_attention_size *s, int groups, int keys)
{
	struct ww_attention16_tile t = { groups, keys, 1, 1, 0, 0 };

	t.turns = !s->causal && !s->span && ww_attention16_rows(s, groups) > 2 * s->sms;
	for (t.stages_q = t.turns ? 2 : 1; t.stages_q > 1 && !ww_attention16_holds(s, &t, 1);)
		t.stages_q--;
	if (groups == 1)
		for (t.blocks = 4; t.blocks > 2 && !ww_attention16_holds(s, &t, t.blocks);)
			t.blocks--;
	return t;
}

/* A block of two groups has an SM's registers, and two of one group or more share them.  Products take half a clock for
 * a column of 64 rows and 16 of k.  Nothing is hidden: 384 heads of 512 rows and keys of 128 columns take some 143 us,
 * 1,565 of 549 some 860 (a tile of both takes 4,300 clocks, a beginning and an end 3,800), 40 of 1,600 rows and 2,048
 * keys some 130 in turns. */
static double ww_attention16_us(const struct ww_attention_size *s, const struct ww_attention16_tile *t)
{
	const long long rows = 64 * t->groups, blocks = ww_attention16_rows(s, t->groups);
	const long long sms = s->sms > 0 ? s->sms : 1, on_one = (blocks + sms - 1) / sms;
	const long long room = ww_attention16_holds(s, t, t->blocks) ? t->blocks : 1;
	const long long wave = on_one < room ? on_one : room;
	const double w = (double)(ww_attention_up(s->width, 16) + ww_attention_up(s->width_v, 32));
	const double scores = (double)(rows * t->keys), products = 2 * scores * w / 4096, powers = scores / 16;
	const double other = (scores * (s->masked ? 9 : 5) + (double)(rows * s->width_v)) / 128;
	const double all = 1.1 * (products + powers + other), part = ww_attention_part(s, rows);
	const double tiles = ww_attention_most(
		1, (double)(ww_attention_up(s->t_k, t->keys) / t->keys) * (part < 1 ? part : 1));
	const double tile = (double)wave * all + 400. / (double)wave;
	const double ends = t->turns ? 600 + (double)(4 * wave * t->groups * s->width_v) : 4000;
	const double clocks = (double)((on_one + wave - 1) / wave) * (tiles * tile + ends);
	const double heads = (double)s->batch, kept = heads / (double)(s->group > 0 ? s->group : 1);
	const double memory = 2 * (heads * (double)s->t_q * w + kept * (double)s->t_k * w) / 4.2e6;
	const double cache = (double)blocks * tiles * t->keys * w * 2 / 5.5e6;

	return 2 + ww_attention_most(clocks / 1755, ww_attention_most(memory, cache));
}

/* The best tile; groups, keys: 0, or what it has. */
static struct ww_attention16_tile ww_attention16_choose_with(const struct ww_attention_size *s, int groups_, int keys_)
{
	const int wide = s->masked || s->width > 128 || s->width_v > 128; /* no registers for 128 keys */
	struct ww_attention16_tile best = { 0 };

	for (int groups = groups_ ? groups_ : 2; groups >= (groups_ ? groups_ : 1); groups--)
		for (int keys = keys_ ? keys_ : wide ? 64 : 128; keys >= (keys_ ? keys_ : 64); keys /= 2) {
			struct ww_attention16_tile now = ww_attention16_of(s, groups, keys);

			now.us = ww_attention16_us(s, &now);
			if (!best.groups || now.us < .98 * best.us)
				best = now;
		}
	return best;
}

static struct ww_attention16_tile ww_attention16_choose(const struct ww_attention_size *s)
{
	return ww_attention16_choose_with(s, 0, 0);
}

#endif
