/* without_launches.c - how much of a plan's outputs do its launches make?
 *
 * A plan of library nodes alone is correct and earns at most 1 (docs/design/rules.md, section 4).  The same must hold
 * for a plan in which a library does most of the task and a kernel adds one row of 768, or nothing.  A kernel's
 * arguments do not tell what it writes, so the plan is run once more without its launches, on a fresh draw, with
 * poisoned outputs.  If less than half of all output elements are then beyond the elementwise limit of the rule in
 * force, the library has made the greater part.
 *
 * Only plans that have both kinds of nodes are tried, at the cost of one load and one call.  A launch that copies the
 * library's results to the outputs is not found here, since every output is wrong without it: own_work.c finds it.
 *
 * Hidden calls (cpu).  The library that a node needs is in the kernels' process, where a kernel can find a function of
 * it and call it for work that no node names.  So the operating system samples whose code computes in the calls of such
 * a plan (forms/sampler.h), and the run without launches tells how long the nodes take by themselves.  Twice that time
 * and GLUE_US a call are excused.  If the library's code took longer than that, and longer than the solution's own, the
 * library does the work.  Where the system does not allow sampling, nothing is found.
 *
 * Rejected: following buffers from node to node (every buffer that is passed to a kernel would count as written). */
#include "judge/stages.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const double EXPLAINED = 2, GLUE_US = 50;

/* The image without launches and what belongs to them; NULL where memory is out.  Sections keep their order
 * (image_data.h). */
static struct ww_image *without_launches(const struct ww_image *m)
{
	struct ww_image *out = calloc(1, m->total_bytes);
	if (!out)
		return NULL;
	*out = *m;
	memcpy((char *)out + m->buffers_at, ww_image_buffers(m), m->n_buffers * sizeof(struct ww_image_buffer));
	struct ww_image_node *to = (void *)((char *)out + m->nodes_at);
	out->n_nodes = 0;
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (ww_image_nodes(m)[i].kind != WW_NODE_LAUNCH && ww_image_nodes(m)[i].kind != WW_NODE_PYTORCH)
			to[out->n_nodes++] = ww_image_nodes(m)[i];
	out->n_args = out->n_tmaps = out->n_macros = 0;
	out->args_at = out->tmaps_at = out->macros_at = m->nodes_at + out->n_nodes * (uint32_t)sizeof(*to);
	out->strings_at = out->args_at;
	out->strings_bytes = 1; /* "" */
	*((char *)out + out->strings_at) = 0;
	out->total_bytes = out->strings_at + 1;
	return out;
}

static int is_hidden(const struct ww_seen_calls *calls, double nodes_us)
{
	struct ww_seen seen;
	ww_seen_total(calls, &seen);
	ww_log(WW_LOG_DEBUG, "whose code: in %d calls %d own, %d of a library; its nodes take %.0f us by themselves",
		seen.calls, seen.n[WW_CODE_OWN], seen.n[WW_CODE_LIBRARY], nodes_us);
	return ww_seen_is_library(&seen, EXPLAINED * nodes_us + GLUE_US);
}

enum ww_rc ww_judge_without_launches(const struct ww_session *whole, int *library_only, struct ww_err *err)
{
	struct ww_judge_task *t = whole->t;
	struct ww_verdict v;
	struct ww_compiled none;
	struct ww_run_result res = { .used_ns = 0 };
	struct ww_session s = { .t = t, .v = &v, .diag = WW_STR_INIT(4096), .limit_s = whole->limit_s };
	struct ww_image *stripped = NULL;
	enum ww_rc rc = WW_OK;

	*library_only = 0;
	ww_verdict_init(&v);
	ww_compiled_init(&none);
	s.image = stripped = without_launches(whole->image);
	if (!stripped)
		return ww_nomem(err);
	WW_TRY(ww_session_open(&s, &none, err));
	if (!s.failed)
		WW_TRY(ww_session_draw(t, 1, 0, WW_REF_PARAMS_REDRAW, err));
	if (!s.failed)
		WW_TRY(ww_session_run(&s, WW_RUN_POISON, &res, err));
	if (!s.failed)
		WW_TRY(ww_session_check(&s, "without launches", NULL, err));
	*library_only = (!whole->v->partial && s.compared > 0 && 2 * s.wrong < s.compared) ||
		is_hidden(&whole->timed, (double)res.used_ns * 1e-3) || is_hidden(&whole->all, (double)res.used_ns * 1e-3);
out:
	ww_session_close(&s);
	ww_str_release(&s.diag);
	ww_verdict_release(&v);
	free(stripped);
	return rc;
}
