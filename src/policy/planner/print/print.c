/* print.c - the two files of a solution. */
#include "policy/planner/print/print.h"

void pl_print(struct pl *pl)
{
	int cuda = pl->target == WW_TARGET_CUDA;
	struct ww_str body = pl_text(pl), one = pl_text(pl);

	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		(cuda ? pl_print_cuda : pl_print_cpu)(pl, k, &one);
		if (!k->shared)
			ww_str_adds(&body, one.p);
		body.cut |= one.cut;
		ww_str_reset(&one);
	}
	ww_str_addf(&pl->dev_text, "/* Written by the planner. */\n%s\n", (cuda ? pl_headers_cuda : pl_headers_cpu)(pl));
	for (int i = 0; i < pl->n_sym; i++)
		ww_str_addf(
			&pl->dev_text, "#define %s ((ix_t)%s_)\t/* %s */\n", pl->sym_name[i], pl->sym_name[i], pl->sym_def[i]);
	ww_str_addf(&pl->dev_text, "\n%s", body.p);
	pl->dev_text.cut |= body.cut;
	pl_print_plan(pl);
}
