/* tiles.c - compares the times that <ww/recipe/gemm_tile.h> estimates for gemm_mma with measured ones.
 *
 *     cc -O1 -Iskills/cuda/include bench/planner/tiles.c -lm -o tiles
 *     zcat bench/results/raw/gemm-mma-h200.txt.gz | ./tiles [-v]
 *
 * Standard input: lines of bench/kernels/gemm_mma.cu.  For each product: the fastest tile that was measured, the one
 * that is chosen with its measured and its estimated time; then the error over all tiles, as the root mean square of
 * its logarithm, and the loss by the choices.  -v: each line of the input with its estimate. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <ww/recipe/gemm_tile.h>

enum { MAX_LINES = 4096, SMS = 132 };

struct line {
	struct ww_mma_size size;
	int bm, bn, split;
	char along[4];
	double us, estimate;
};

static struct line lines[MAX_LINES];
static int n_lines;

static int same_product(const struct line *a, const struct line *b)
{
	return !memcmp(&a->size, &b->size, sizeof(a->size)) && !strcmp(a->along, b->along);
}

static double estimated(const struct line *l)
{
	const struct ww_mma_clocks *t = ww_mma_tiles(l->size.bytes);

	while (t->bm && (t->bm != l->bm || t->bn != l->bn))
		t++;
	return ww_mma_us(&l->size, t, l->split);
}

static void read_lines(void)
{
	char text[512], type[8];

	while (n_lines < MAX_LINES && fgets(text, sizeof(text), stdin)) {
		struct line *l = &lines[n_lines];
		int vector;

		memset(l, 0, sizeof(*l));
		if (sscanf(text, "%7s m %lld n %lld k %lld batch %lld tile %dx%d split %d along %3s vec %d: %lf", type,
				&l->size.m, &l->size.n, &l->size.k, &l->size.batch, &l->bm, &l->bn, &l->split, l->along, &vector,
				&l->us) != 11)
			continue;
		l->size.bytes = strcmp(type, "f32") ? 2 : 4;
		l->size.a_vector = l->size.b_vector = vector;
		l->size.sms = SMS;
		l->estimate = estimated(l);
		n_lines++;
	}
}

/* Prints one product; adds the logarithm of what its choice loses. */
static int product(int at, double *lost)
{
	const struct line *first = &lines[at], *best = first, *chosen = NULL;
	const struct ww_mma_size *s = &first->size;
	const struct ww_mma_tile t = ww_mma_choose(s);

	for (const struct line *l = first; l < lines + n_lines; l++) {
		if (!same_product(l, first))
			continue;
		if (l->us < best->us)
			best = l;
		if (l->bm == t.bm && l->bn == t.bn && l->split == t.split)
			chosen = l;
	}
	printf("| %s %lld, %lld, %lld, %lld along %s by %d | %d x %d, %d | %.2f | %d x %d, %d | ",
		s->bytes == 4 ? "fp32" : "fp16", s->m, s->n, s->k, s->batch, first->along, s->a_vector, best->bm, best->bn,
		best->split, best->us, t.bm, t.bn, t.split);
	printf(chosen ? "%.2f" : "-", chosen ? chosen->us : 0);
	printf(" | %.2f |\n", t.us);
	*lost += chosen ? log(chosen->us / best->us) : 0;
	return chosen != NULL;
}

int main(int argc, char **argv)
{
	const int all = argc > 1 && !strcmp(argv[1], "-v");

	read_lines();
	for (int bytes = 4; bytes >= 2; bytes -= 2) {
		double error = 0, lost = 0;
		int n = 0, chosen = 0;

		puts("| m, n, k, batch | fastest tile, parts of K | us | chosen | us | estimated |\n|---|---|---|---|---|---|");
		for (int i = 0; i < n_lines; i++) {
			int seen = 0;

			if (lines[i].size.bytes != bytes)
				continue;
			error += pow(log(lines[i].estimate / lines[i].us), 2);
			n++;
			for (int j = 0; j < i; j++)
				seen |= same_product(&lines[j], &lines[i]);
			if (!seen)
				chosen += product(i, &lost);
			if (all)
				printf("%d x %d, %d: %.2f estimated %.2f\n", lines[i].bm, lines[i].bn, lines[i].split, lines[i].us,
					lines[i].estimate);
		}
		if (n)
			printf("%d lines, error %.3f; the choice takes %.3f times the fastest (%d that were measured)\n\n", n,
				sqrt(error / n), exp(lost / (chosen ? chosen : 1)), chosen);
	}
	return 0;
}
