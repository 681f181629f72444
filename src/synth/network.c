/* network.c - small networks: a stem, two to eight pieces, a head.  A piece that keeps its type can be a class of its
 * own, which runs several times with the same weights, or several times with weights of its own.
 */
#include "synth/grammar.h"

#include <stdio.h>
#include <string.h>

/* The constructor's arguments of a block, by names of the class that makes it. */
static void block_args(struct ww_comp *c, const struct cls *block, struct ww_str *out)
{
	for (int i = 0; i < block->n_h; i++)
		ww_str_addf(out, "%s%s", i ? ", " : "", sy_hyper(c, block->h[i].name, block->h[i].value));
}

static void call_block(struct ww_comp *c, struct val *x, const struct cls *block, int times, int shared)
{
	ww_auto_str args = WW_STR_INIT(600);
	block_args(c, block, &args);
	const char *name = sy_attribute(c, times == 1 || shared ? "block" : "blocks");
	if (times == 1 || shared)
		sy_init_line(c, "self.%s = %s(%s)", name, block->name, args.p);
	else
		sy_init_line(c, "self.%s = nn.ModuleList([%s(%s) for _ in range(%d)])", name, block->name, args.p, times);
	if (times == 1) {
		sy_line(c, "%s = self.%s(%s)", x->name, name, x->name);
	} else if (shared) {
		sy_line(c, "for _ in range(%d):", times);
		sy_line(c, "    %s = self.%s(%s)", x->name, name, x->name);
	} else {
		sy_line(c, "for block in self.%s:", name);
		sy_line(c, "    %s = block(%s)", x->name, x->name);
	}
}

/* A class of one or two pieces, and `times` runs of it. */
static int add_block(struct ww_comp *c, struct val *x, int (*piece)(struct ww_comp *, struct val *), int times)
{
	static const char *const names[] = { "Block", "Block2", "Block3", "Block4" };
	struct cls *parent = c->at;
	char name[16];
	double mag = x->mag;
	memcpy(name, x->name, sizeof(name));
	if (c->n_cls > 4)
		return 0;
	struct cls *block = sy_class_begin(c, names[c->n_cls - 1], "x");
	snprintf(x->name, sizeof(x->name), "x");
	snprintf(block->attr[block->n_attr++], sizeof(block->attr[0]), "x");
	int before = c->repeats;
	c->repeats *= times;
	x->facts &= ~(unsigned)RAW;
	int ok = piece(c, x) && (sy_chance(c, 0.4) || piece(c, x));
	sy_line(c, "return %s", x->name);
	c->repeats = before;
	c->at = parent;
	memcpy(x->name, name, sizeof(name));
	if (!ok)
		return 0;
	x->mag += (x->mag - mag > 0 ? x->mag - mag : 0) * (times - 1);
	if (!sy_fits(c, x->mag))
		return 0;
	call_block(c, x, block, times, sy_chance(c, 0.4));
	return 1;
}

static int stack(struct ww_comp *c, struct val *x, int (*piece)(struct ww_comp *, struct val *))
{
	int left = (int)sy_between(c, 2, 6);
	while (left > 0 && !c->failed) {
		int times = (int)sy_between(c, 1, left < 4 ? left : 4);
		if (!add_block(c, x, piece, times))
			return 0;
		left -= times;
	}
	return !c->failed;
}

static int rows_network(struct ww_comp *c, struct val *x)
{
	if (sy_chance(c, 0.25)) {
		*x = sy_input_for(c, sy_op_named("embedding"));
		if (!sy_try_row(c, "embedding", x) || !sy_try_row(c, "add_positions", x))
			return 0;
	} else {
		*x = sy_rows_input(c);
	}
	if (!stack(c, x, sy_rows_piece))
		return 0;
	if (sy_chance(c, 0.6))
		sy_add_norm(c, x);
	if (sy_chance(c, 0.5)) {
		if (sy_chance(c, 0.6) && x->t.d[1] <= 1024 && !x->flat)
			sy_try_row(c, "cross_attention_pool", x);
		sy_add_linear(c, x, "head", sy_draw_dim(c, 16, 2048), 1);
	}
	return 1;
}

static int image_network(struct ww_comp *c, struct val *x)
{
	*x = sy_image_input(c);
	if (sy_chance(c, 0.5)) {
		int64_t n = x->t.d[1] * 2 <= 256 ? x->t.d[1] * 2 : x->t.d[1];
		sy_add_conv_norm_act(c, x, "stem", n, 3, x->t.d[2] > 20 ? 2 : 1, 1);
	}
	if (!stack(c, x, sy_image_piece))
		return 0;
	if (sy_chance(c, 0.4) && x->t.d[2] > 8) {
		sy_add_conv_norm_act(c, x, "down", x->t.d[1] * 2, 3, 2, 1);
	}
	if (sy_chance(c, 0.5) && sy_try_row(c, "global_avg_pool", x))
		sy_add_linear(c, x, "head", sy_draw_dim(c, 10, 1000), 1);
	return 1;
}

/* Layers one behind the other. */
static int mlp_network(struct ww_comp *c, struct val *x)
{
	static const int64_t lo[] = { 16, 16 }, hi[] = { 1 << 16, 4096 };
	*x = sy_main_input(c, 2, lo, hi);
	int n = (int)sy_between(c, 2, 5);
	for (int i = 0; i < n; i++) {
		sy_add_linear(c, x, "fc", i == n - 1 ? sy_draw_dim(c, 8, 1024) : sy_draw_dim(c, 64, 4096), 1);
		if (i == n - 1)
			break;
		if (sy_chance(c, 0.3))
			sy_add_norm(c, x);
		sy_add_act(c, x);
	}
	return 1;
}

int sy_compose_network(struct ww_comp *c, struct val *out)
{
	static const double weights[] = { 4, 4, 1 };
	switch (sy_choose(c, weights, 3)) {
	case 0: return rows_network(c, out) && !c->failed;
	case 1: return image_network(c, out) && !c->failed;
	default: return mlp_network(c, out) && !c->failed;
	}
}
