/* direction.c - which kernels go from the end of what they read to its beginning (cuda).
 *
 * A kernel that has gone through a tensor larger than the second level of cache leaves its end there.  Another one that
 * reads the tensor from its beginning finds nothing of it, and by the time it comes to the end has replaced that, too.
 * Blocks begin in the order of their numbers, so the next kernel takes them from the last one on: what it begins with
 * is in the cache.  The one after it begins with the first again.  Not kernels that share their text with others, whose
 * turn may be another. */
#include "policy/planner/schedule/loop.h"

enum {
	LARGE = 40 << 20,  /* bytes of a tensor of which the cache, of 50 MiB on an H200, keeps no beginning */
	BETWEEN = 8 << 20, /* bytes that kernels in between may have replaced */
	MOST = 64          /* buffers of a kernel */
};

static const struct buf *whole(const struct buf *b) { return b->of ? b->of : b; }

/* Does the kernel's slowest axis go through most of buffer b, upwards, by this offset? */
static int goes_up(struct pl *pl, const struct kern *k, const struct buf *b, const struct ix *off)
{
	const struct ix *step, *rest;

	for (int d = 0; d < k->n_row; d++)
		if (!ix_is(k->row[d]->b, 1))
			return ix_affine(pl, off, k->row[d], &step, &rest) && !ix_varies(step) && ix_num(step) > 0 &&
				2 * ix_num(step) * ix_num(k->row[d]->b) >= pl_buf_numel(b);
	return 0;
}

/* Large tensors that kernel k of ours goes through from one end to the other; *all: bytes of whatever it touches. */
static int passes_of(struct pl *pl, struct kern *k, const struct buf **list, int64_t *all)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int n = 0, found = 0;

	*all = 0;
	for (int i = 0; i < k->n_arg; i++)
		*all += pl_buf_bytes(whole(k->arg[i]));
	if (k->segment || (k->kind == K_ROW && k->loop->along == ROWS))
		return 0;
	if (k->anchor) { /* tiles, images and rows one after the other, of which the result is what was touched last */
		int in_order = k->anchor->kind == S_GEMM || k->anchor->kind == S_CONV || k->anchor->kind == S_ATTN ||
			(k->anchor->kind == S_SCAN && k->anchor->scan.dim == k->anchor->out->rank - 1);

		for (int o = 0; o < k->n_out && in_order; o++)
			if (k->out[o]->root && pl_buf_bytes(whole(k->out[o]->root)) > LARGE)
				list[found++] = whole(k->out[o]->root);
		return found;
	}
	n = pl_kern_loads(pl, k, off, buf, (int)WW_ARRAY_LEN(off));
	for (int o = 0; o < k->n_out && n < (int)WW_ARRAY_LEN(off); o++) {
		off[n] = pl_offset(pl, k->out[o]->root, k->out_idx[o]);
		buf[n++] = k->out[o]->root;
	}
	for (int i = 0; i < n && found < MOST; i++)
		if (pl_buf_bytes(whole(buf[i])) > LARGE && goes_up(pl, k, whole(buf[i]), off[i]))
			list[found++] = whole(buf[i]);
	return found;
}

/* Is the text of k that of another kernel, too? */
static int is_shared(const struct pl *pl, const struct kern *k)
{
	for (int i = 0; i < pl->n_kern; i++)
		if (pl->kern[i]->shared == k)
			return 1;
	return k->shared != NULL;
}

/* Did the last kernel ahead of the i-th one that went through a tensor that this one goes through go upwards? */
static int follows_upwards(struct pl *pl, int i)
{
	const struct buf *mine[MOST], *others[MOST];
	int64_t between = 0, all;
	int n = passes_of(pl, pl->kern[i], mine, &all);

	for (int j = i - 1; n && j >= 0 && between <= BETWEEN; j--) {
		struct kern *k = pl->kern[j];
		int m = passes_of(pl, k, others, &all);

		for (int a = 0; a < n; a++)
			for (int b = 0; b < m; b++)
				if (mine[a] == others[b])
					return !k->loop->backwards;
		between += all;
	}
	return 0;
}

void pl_choose_directions(struct pl *pl)
{
	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		if (k->anchor) /* <ww/library.cuh> */
			k->loop->backwards = k->loop->store && (k->loop->library & BY_LIBRARY);
		else if (!k->segment && (k->kind == K_POINT || k->loop->along != ROWS) && !is_shared(pl, k))
			k->loop->backwards = follows_upwards(pl, i);
	}
}
