/* print.c - writes the two files of a solution: kernels.cu (or .c) and plan.c. */
#include "policy/planner/print/print.h"

void pl_print(struct pl *pl)
{
	int cuda = pl->target == WW_TARGET_CUDA;
	struct ww_str body = pl_text(pl), one = pl_text(pl);

	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		if (k->segment) {
			k->launch = pl_print_segment(pl, k->segment);
			continue;
		}
		(cuda ? pl_print_cuda : pl_print_cpu)(pl, k, &one);
		if (!k->shared)
			ww_str_adds(&body, one.p);
		body.cut |= one.cut;
		ww_str_reset(&one);
	}
	ww_str_addf(&pl->dev_text, "/* Written by the planner. */\n%s%s\n", (cuda ? pl_headers_cuda : pl_headers_cpu)(pl),
		pl->n_sym ? "#include <ww/planner_sizes.h>\n" : "");
	ww_str_adds(&pl->dev_text, body.p);
	pl->dev_text.cut |= body.cut;
	pl_print_plan(pl);
}
