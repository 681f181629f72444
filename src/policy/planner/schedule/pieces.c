/* pieces.c - concatenations of what kernels of their own store: a scan, rows, the pass behind a library's product, on
 * the cpu a product or a convolution itself.
 *
 * Such a piece would be written, and read and written again by the pointwise kernel of the concatenation.  Where
 * no other kernel reads it, its buffer becomes a part of the concatenation's, and that kernel does the other pieces,
 * also those that it makes of this one.  They must lie side by side, so pieces are taken from both ends; one is left.
 */
#include "policy/planner/lower/lower.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

/* The concatenation that v is, or that it stores in an order of its own; NULL: none. */
static struct val *concatenation(const struct pl *pl, struct val *v)
{
	struct val *of = v->kind == V_VIEW && !v->cond ? v->arg[0] : v;

	for (int d = 0; of != v && d < v->rank; d++)
		if (of->rank != v->rank || !ix_same(v->map[d], pl->place[d]))
			return NULL;
	return of->pieces ? of : NULL;
}

/* How often does kernel k, or PyTorch, read the buffer?  It is asked of every kernel for every concatenation, so what
 * the walks leave is given back. */
static int reads(struct pl *pl, struct kern *k, const struct buf *b)
{
	struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
	const struct ix *off[512];
	struct buf *buf[512];
	int n = k->segment ? 0 : pl_all_loads(pl, k, off, buf, 512), count = n >= 512;

	for (int i = 0; i < n && n < 512; i++)
		count += buf[i] == b;
	for (int i = 0; k->anchor && i < k->anchor->n_in; i++)
		count += k->anchor->in[i].buf == b;
	for (int i = 0; k->segment && i < k->segment->n_read; i++)
		count += k->segment->read[i]->root == b;
	ww_arena_rewind(&pl->arena, mark);
	return count;
}

/* Does k, whose only result is v, store by its own threads, element by element or by vectors?  On the cpu the functors
 * of these templates do. */
static int stores_elements(struct pl *pl, const struct kern *k)
{
	struct pl_end end;

	if (k->kind == K_ROW)
		return 1;
	if (k->kind != K_ANCHOR)
		return 0;
	switch (k->anchor->kind) {
	case S_SCAN:
	case S_ATTN: return 1;
	case S_GEMM: return pl->target == WW_TARGET_CPU || (!pl_is_bare(k) && !pl_ends_as(pl, k, &end));
	case S_CONV: return pl->target == WW_TARGET_CPU || k->out[0] != k->anchor->out;
	default: return 0;
	}
}

/* Do rows of the concatenation's buffer, and those of a piece `at` elements behind its beginning, begin with a sector
 * of 32 bytes?  Else the kernels of two pieces write, and one reads, parts of the same. */
static int in_sectors(const struct buf *all, const struct ix *at)
{
	int64_t size = pl_itemsize(all->dt), parts = ix_num(at) * size % 32;

	for (int d = 0; d < all->rank; d++)
		if (ix_num(all->size[d]) > 1 && !ix_is(all->stride[d], 1))
			parts |= ix_num(all->stride[d]) * size % 32;
	return !parts;
}

/* The kernel ahead of `reader` that stores piece i, v, for it alone, or NULL.  Other pieces may be made of v, too: they
 * read it where it is then. */
static struct kern *storing_kernel(struct pl *pl, struct kern *reader, const struct pieces *p, int i)
{
	const struct val *v = p->v[i], *all = reader->out[0];
	struct kern *found = NULL;
	int n;

	if (!v->root || v->root->kind != B_SCRATCH || v->root->dt != all->root->dt || v->last != all->last || v->root->of ||
		!(v->root->contiguous || v->last))
		return NULL;
	n = reads(pl, reader, v->root);
	if (n != 1 && !(n && in_sectors(all->root, ix_mul(pl, p->at[i], all->root->stride[p->dim]))))
		return NULL;
	for (int j = 0; j < pl->n_kern; j++) {
		struct kern *k = pl->kern[j];

		if (k == reader)
			continue;
		for (int o = 0; o < k->n_out; o++)
			if (k->out[o] == v)
				found = k;
		if (reads(pl, k, v->root))
			return NULL;
	}
	return found && found->n_out == 1 && stores_elements(pl, found) ? found : NULL;
}

/* The part of the concatenation's buffer that begins with piece i and has the sizes of v. */
static struct buf *part_of(struct pl *pl, struct buf *all, const struct pieces *p, int i, const struct val *v)
{
	struct buf *b = pl_alloc(pl, sizeof(*b));

	*b = *all;
	b->of = all;
	b->contiguous = b->again = 0;
	b->at = ix_mul(pl, p->at[i], all->stride[p->dim]);
	memcpy(b->size, v->size, sizeof(b->size));
	return b;
}

static void forget(struct pl *pl, const struct buf *b)
{
	int n = 0;

	for (int i = 0; i < pl->n_buf; i++)
		if (pl->buf[i] != b)
			pl->buf[n++] = pl->buf[i];
	pl->n_buf = n;
}

/* Give piece i its place; 0: it has no kernel that could store there. */
static int place(struct pl *pl, struct kern *k, const struct pieces *p, int i)
{
	struct val *v = p->v[i], *all = k->out[0];
	int again;

	if (!storing_kernel(pl, k, p, i))
		return 0;
	again = reads(pl, k, v->root) > 1;
	forget(pl, v->root);
	v->root = part_of(pl, all->root, p, i, v);
	v->root->again = again;
	return 1;
}

/* Kernel k, whose result is the concatenation `cat`, does pieces `from` to `to` - 1 of it. */
static void leave(struct pl *pl, struct kern *k, const struct val *cat, int from, int to)
{
	struct pieces *p = cat->pieces;
	struct val *all = k->out[0], *rest;

	rest = to - from > 1 ? pl_concatenated(pl, p->v + from, to - from, p->dim)
						 : pl_view(pl, p->v[from], cat->rank, p->v[from]->size, pl->place);
	rest->node = cat->node;
	if (all != cat)
		rest = pl_view(pl, rest, cat->rank, rest->size, pl->place);
	rest->node = all->node;
	rest->last = all->last;
	rest->scheduled = 1;
	rest->root = part_of(pl, all->root, p, from, rest);
	pl_becomes_points(pl, k, rest);
}

void pl_store_pieces(struct pl *pl)
{
	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];
		struct val *cat = k->kind == K_POINT && k->n_out == 1 && !k->out[0]->chain ? concatenation(pl, k->out[0])
																				   : NULL;
		int from = 0, to = cat ? cat->pieces->n : 0;

		while (from < to && place(pl, k, cat->pieces, from))
			from++;
		while (from < to && place(pl, k, cat->pieces, to - 1))
			to--;
		if (cat && from == to) {
			memmove(&pl->kern[i], &pl->kern[i + 1], (size_t)(pl->n_kern - i - 1) * sizeof(*pl->kern));
			pl->n_kern--;
			i--;
		} else if (cat && to - from < cat->pieces->n) {
			leave(pl, k, cat, from, to);
		}
	}
}
