/* einsum.c - torch.einsum as sums, matrix products and permutations.
 *
 * A term is a value with one letter for each of its dimensions.  Operands are multiplied from left to right, two at a
 * time: of the letters that both have, those that are still needed (by the result, or by an operand further to the
 * right) are the batch of a matrix product (batch, m, k) x (batch, k, n), the others are k.  A letter that only one of
 * the two has is m or n where it is needed, else it is summed away before the product.  The order is that of
 * torch.einsum without opt_einsum: another order would round otherwise, and more than two operands are rare.
 *
 * An ellipsis becomes digits: '9' is its last dimension, '8' the one before, so ellipses of different lengths are
 * aligned at the right, as broadcasting does.  Not covered: a letter that occurs twice in an operand (a diagonal).
 */
#include "policy/planner/lower/lower.h"

#include <ctype.h>
#include <string.h>

enum { MAX_TERMS = 8, MAX_LETTERS = PL_MAX_RANK };

/* letter[] ends with a NUL and never holds the same letter twice, so ranks stay within MAX_LETTERS by checking
 * additions. */
struct term {
	struct val *v;
	char letter[MAX_LETTERS + 1];
};

struct equation {
	struct term in[MAX_TERMS], out;
	int n_in, dots; /* operands; dimensions that the longest ellipsis stands for */
};

static void add_letter(struct pl *pl, struct gnode *n, char *list, char c)
{
	size_t len = strlen(list);

	if (strchr(list, c))
		pl_cannot(pl, n, "a letter occurs twice in one operand of its equation (a diagonal)");
	if (len == MAX_LETTERS)
		pl_cannot(pl, n, "its equation has too many letters");
	list[len] = c;
	list[len + 1] = 0;
}

/* ---- Reading the equation ---------------------------------------------------------------------------------------- */

static int count_letters(const char *s)
{
	int count = 0;

	for (; *s && *s != ',' && *s != '-'; s++)
		count += isalpha((unsigned char)*s) != 0;
	return count;
}

/* One term, in which an ellipsis stands for `dots` dimensions; returns where it ends. */
static const char *read_term(struct pl *pl, struct gnode *n, const char *s, int dots, char *list)
{
	for (; *s && *s != ',' && *s != '-'; s++) {
		if (*s == '.' && !strncmp(s, "...", 3)) {
			for (int d = dots; d > 0; d--)
				add_letter(pl, n, list, (char)('9' + 1 - d));
			s += 2;
		} else if (isalpha((unsigned char)*s)) {
			add_letter(pl, n, list, *s);
		} else if (*s != ' ') {
			pl_cannot(pl, n, "its equation has an unknown character");
		}
	}
	return s;
}

/* Without "->" the result has the ellipsis, then the letters that only one operand has, in alphabetical order. */
static void implied_result(struct pl *pl, struct gnode *n, struct equation *e)
{
	for (int d = e->dots; d > 0; d--)
		add_letter(pl, n, e->out.letter, (char)('9' + 1 - d));
	for (char c = 'A'; c <= 'z'; c++) {
		int uses = 0;

		for (int i = 0; i < e->n_in; i++)
			uses += strchr(e->in[i].letter, c) != NULL;
		if (uses == 1)
			add_letter(pl, n, e->out.letter, c);
	}
}

static void read_equation(struct pl *pl, struct gnode *n, struct equation *e)
{
	const char *s = pl_arg_str(n, 0, "equation", "");
	struct garg *l = pl_arg(n, 1, "operands");

	if (!l || l->kind != G_LIST || l->n < 1 || l->n > MAX_TERMS)
		pl_cannot(pl, n, "it has no operands, or too many");
	for (e->n_in = 0; e->n_in < l->n; e->n_in++) {
		struct term *t = &e->in[e->n_in];
		int dots;

		t->v = pl_val_of(pl, &l->item[e->n_in]);
		dots = t->v->rank - count_letters(s);
		s = read_term(pl, n, s, dots, t->letter);
		if ((int)strlen(t->letter) != t->v->rank || *s != (e->n_in + 1 < l->n ? ',' : *s == '-' ? '-' : 0))
			pl_cannot(pl, n, "its equation and its operands do not agree");
		e->dots = dots > e->dots ? dots : e->dots;
		s += *s == ',';
	}
	if (!strncmp(s, "->", 2))
		read_term(pl, n, s + 2, e->dots, e->out.letter);
	else
		implied_result(pl, n, e);
}

/* Broadcasting: an operand of size 1 is expanded where another operand has more for the same letter. */
static void broadcast_letters(struct pl *pl, struct equation *e)
{
	const struct ix *extent[128] = { 0 };

	for (int i = 0; i < e->n_in; i++)
		for (int d = 0; d < e->in[i].v->rank; d++) {
			const struct ix **x = &extent[(int)e->in[i].letter[d]];

			if (!*x || ix_is(*x, 1))
				*x = e->in[i].v->size[d];
		}
	for (int i = 0; i < e->n_in; i++) {
		const struct ix *size[PL_MAX_RANK];

		for (int d = 0; d < e->in[i].v->rank; d++)
			size[d] = extent[(int)e->in[i].letter[d]];
		e->in[i].v = pl_expand(pl, e->in[i].v, e->in[i].v->rank, size);
	}
}

/* ---- Terms ------------------------------------------------------------------------------------------------------- */

/* Permute the dimensions of a term to the order of these letters. */
static void arrange(struct pl *pl, struct gnode *n, struct term *t, const char *order)
{
	int perm[PL_MAX_RANK];

	if (strlen(order) != strlen(t->letter))
		pl_cannot(pl, n, "its result has a letter that no operand has");
	for (int d = 0; order[d]; d++) {
		const char *at = strchr(t->letter, order[d]);

		if (!at)
			pl_cannot(pl, n, "its result has a letter that no operand has");
		perm[d] = (int)(at - t->letter);
	}
	t->v = pl_permute(pl, t->v, perm);
	memcpy(t->letter, order, strlen(order));
}

/* Sum over the letters of t that neither list has. */
static void sum_others(struct pl *pl, struct gnode *n, struct term *t, const char *list, const char *list2)
{
	char keep[MAX_LETTERS + 1] = "";
	unsigned mask = 0;

	for (int d = 0; t->letter[d]; d++)
		if (strchr(list, t->letter[d]) || strchr(list2, t->letter[d]))
			add_letter(pl, n, keep, t->letter[d]);
		else
			mask |= 1u << d;
	if (mask)
		t->v = pl_reduce(pl, RED_SUM, t->v, mask, 0);
	memcpy(t->letter, keep, sizeof(keep));
}

/* Reshape t to (batch..., first group, second group): its first `batch` letters stay dimensions of their own, the next
 * `first` letters become one, the rest another. */
static struct val *matrices(struct pl *pl, const struct term *t, size_t batch, size_t first)
{
	const struct ix *size[PL_MAX_RANK];
	struct val *v = t->v;

	size[batch] = size[batch + 1] = ix_const(pl, 1);
	for (size_t d = 0; t->letter[d]; d++)
		if (d < batch)
			size[d] = v->size[d];
		else
			size[batch + (d >= batch + first)] = ix_mul(pl, size[batch + (d >= batch + first)], v->size[d]);
	return pl_reshape(pl, v, (int)batch + 2, size);
}

/* a becomes the product of a and b, with the letters of both that `needed` has. */
static void multiply(struct pl *pl, struct gnode *n, struct term *a, struct term *b, const char *needed)
{
	char batch[MAX_LETTERS + 1] = "", m[MAX_LETTERS + 1] = "", k[MAX_LETTERS + 1] = "", other[MAX_LETTERS + 1] = "";
	char order[3 * MAX_LETTERS + 1];
	const struct ix *size[3 * PL_MAX_RANK];
	size_t nb, nm, nn;

	sum_others(pl, n, a, b->letter, needed);
	sum_others(pl, n, b, a->letter, needed);
	for (const char *c = a->letter; *c; c++)
		add_letter(pl, n, !strchr(b->letter, *c) ? m : strchr(needed, *c) ? batch : k, *c);
	for (const char *c = b->letter; *c; c++)
		if (!strchr(a->letter, *c))
			add_letter(pl, n, other, *c);
	nb = strlen(batch);
	nm = strlen(m);
	nn = strlen(other);
	if (nb + nm + nn > MAX_LETTERS || nb + 2 > MAX_LETTERS)
		pl_cannot(pl, n, "a product has too many dimensions");
	snprintf(order, sizeof(order), "%s%s%s", batch, m, k);
	arrange(pl, n, a, order);
	snprintf(order, sizeof(order), "%s%s%s", batch, k, other);
	arrange(pl, n, b, order);
	for (size_t d = 0; d < nb + nm; d++)
		size[d] = a->v->size[d];
	for (size_t d = 0; d < nn; d++)
		size[nb + nm + d] = b->v->size[nb + strlen(k) + d];
	a->v = pl_reshape(
		pl, pl_gemm(pl, n, matrices(pl, a, nb, nm), matrices(pl, b, nb, strlen(k))), (int)(nb + nm + nn), size);
	snprintf(order, sizeof(order), "%s%s%s", batch, m, other);
	memcpy(a->letter, order, nb + nm + nn + 1);
}

void pl_einsum(struct pl *pl, struct gnode *n)
{
	struct equation *e = pl_alloc(pl, sizeof(*e));
	struct term *t = e->in;

	memset(e, 0, sizeof(*e));
	read_equation(pl, n, e);
	broadcast_letters(pl, e);
	for (int i = 1; i < e->n_in; i++) {
		char needed[(MAX_TERMS + 1) * MAX_LETTERS + 1];
		size_t len = (size_t)snprintf(needed, sizeof(needed), "%s", e->out.letter);

		for (int j = i + 1; j < e->n_in; j++)
			len += (size_t)snprintf(needed + len, sizeof(needed) - len, "%s", t[j].letter);
		multiply(pl, n, &t[0], &t[i], needed);
	}
	sum_others(pl, n, &t[0], e->out.letter, "");
	arrange(pl, n, &t[0], e->out.letter);
	n->out[0] = t[0].v;
}
