/* once.c - which operands leave the second level of cache first (cuda).
 *
 * Whoever reads a large operand pays for what kernels before have written and left in that level: each line that comes
 * takes the place of the oldest one, which is written back to memory first.  Lines that are marked as the first to go
 * take each other's places, and the others stay for who needs them.  It pays where a kernel mostly reads: sums of rows,
 * losses, places of a maximum.  One that stores as much as it reads has lines of its own to write back. */
#include "policy/planner/schedule/loop.h"

#include <math.h>

/* Bytes.  LEAST: what does not stay for the next kernel anyway.  MOST: the hint costs some percent of memory's rate (3
 * to 7, H200), more than 4 us from here on.  SHARE: what is stored, at most, of what is read. */
enum { LEAST = 32 << 20, MOST = 192 << 20, SHARE = 8 };

/* Is b an operand of the task that only kernel k touches, whose text is its own? */
static int is_its_own(const struct pl *pl, const struct kern *k, const struct buf *b)
{
	for (int i = 0; i < pl->n_kern; i++) {
		const struct kern *other = pl->kern[i];

		if (other == k)
			continue;
		if (other->segment || other->shared == k)
			return 0;
		for (int a = 0; a < other->n_arg; a++)
			if (other->arg[a] == b || other->arg[a]->of == b)
				return 0;
	}
	return b->kind == B_INPUT && !b->of;
}

/* Elements of b that row kernel k reads; INFINITY: not all of them by whole vectors without a condition. */
static double elements_read(struct pl *pl, struct kern *k, const struct buf *b)
{
	const struct ix *off[512];
	struct buf *buf[512];
	const struct loop *l = k->loop;
	int loads = pl_kern_loads(pl, k, off, buf, 512), others = 0, vectors = 0;

	for (int i = 0; i < loads; i++)
		others += buf[i] == b;
	for (int p = 0; p < l->n_pass; p++)
		for (int i = 0; i < l->pass[p].n_load; i++) {
			const struct vload *v = &l->pass[p].load[i];

			if (v->buf != b)
				continue;
			if (v->cond || v->one || v->apart || v->repeats || v->any || v->step || ix_looks_up(v->base))
				return INFINITY;
			vectors++;
		}
	return vectors && vectors >= others ? (double)vectors * (double)ix_num(l->outer) * (double)ix_num(l->len)
										: INFINITY;
}

static int is_read_once(struct pl *pl, struct kern *k, const struct buf *b)
{
	return pl_computed_as_float(b->dt) && is_its_own(pl, k, b) && elements_read(pl, k, b) <= (double)pl_buf_numel(b);
}

static void mark_in(struct pl *pl, struct kern *k)
{
	struct loop *l = k->loop;
	int64_t read = 0, stored = 0;

	for (int i = 0; i < k->n_arg; i++)
		if (is_read_once(pl, k, k->arg[i]))
			read += pl_buf_bytes(k->arg[i]);
	for (int o = 0; o < k->n_out; o++)
		stored += pl_buf_bytes(k->out[o]->root);
	if (read < LEAST || read > MOST || SHARE * stored > read)
		return;
	for (int p = 0; p < l->n_pass; p++) {
		struct vload *load = pl_alloc(pl, (size_t)l->pass[p].n_load * sizeof(*load) + 1);

		for (int i = 0; i < l->pass[p].n_load; i++) {
			load[i] = l->pass[p].load[i];
			load[i].once = is_read_once(pl, k, load[i].buf);
		}
		l->pass[p].load = load;
	}
}

void pl_mark_read_once(struct pl *pl)
{
	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		if (k->kind == K_ROW && !k->anchor && !k->segment && !k->shared && k->loop->along == COLUMNS &&
			!k->loop->ring && !k->loop->staged)
			mark_in(pl, k);
	}
}
