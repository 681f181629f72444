/* trace.c - whose work is a call of a solution in a PyTorch form?  (docs/forms.md, "What it leaves to PyTorch")
 *
 * Two things are looked at.  The operators that the dispatcher sees, listed by the candidate's process: where they are
 * all that the task asks for, PyTorch does the task.  And whose code computes, which does not depend on how it was
 * called: on the cpu where the judge finds the threads (sampler.h), on cuda the kernels that are launched.  Library
 * work that no traced operator explains is hidden; the verdict is library_only where more of it is hidden than is the
 * solution's own, and where next to nothing is the solution's own. */
#include "judge/forms/form.h"

#include "base/json.h"
#include "base/log.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>

enum { TRACE_LIMIT_S = 30, MAX_STOPS = 1200, ENOUGH = 200, FEW = 60, PLAIN_CALLS = 3, STOPS_PER_CALL = 24 };
static const double SAMPLE_S = 1.5, MIN_OWN = 0.02, EXPLAINED = 1.25, GLUE_US = 50, SHORTEST_US = 30;

/* Asks the candidate for one more call under a trace.  A call that cannot be traced counts as PyTorch's own. */
static enum ww_rc watch(struct ww_session *s, const char *how, json_t **body, struct ww_err *err)
{
	struct ww_candidate_answer *a;
	struct ww_candidate *c = ww_form_candidate(s, &a);
	struct ww_run_result res;
	enum ww_rc rc = ww_candidate_ask(c, json_pack("{s:s}", "request", how), NULL, 0, TRACE_LIMIT_S, a, &res, err);
	*body = rc == WW_OK && res.kind == WW_RUN_OK ? json_incref(a->body) : NULL;
	if (rc == WW_OK && !*body) {
		ww_str_adds(&s->diag, "note: the call could not be traced and counts as PyTorch's own: ");
		ww_form_describe(&res, a, "trace", &s->diag);
		s->v->library_only = 1;
	}
	return rc;
}

/* ---- Operators --------------------------------------------------------------------------------------------------- */

static json_int_t calls_of(const json_t *list, const char *name)
{
	size_t i;
	json_t *x;
	json_array_foreach((json_t *)(uintptr_t)list, i, x) {
		const char *n = json_string_value(json_array_get(x, 0));
		if (n && !strcmp(n, name))
			return json_integer_value(json_array_get(x, 1));
	}
	return 0;
}

/* Every computing operator of the task, as often as the task asks for it. */
static int covers(const json_t *mine, const json_t *tasks)
{
	size_t i;
	json_t *x;
	json_array_foreach((json_t *)(uintptr_t)tasks, i, x) {
		const char *n = json_string_value(json_array_get(x, 0));
		if (!n || calls_of(mine, n) < json_integer_value(json_array_get(x, 1)))
			return 0;
	}
	return json_array_size(tasks) > 0;
}

static void list_ops(const json_t *aten, char *out, size_t size)
{
	ww_auto_str s = WW_STR_INIT(size - 1);
	size_t i;
	json_t *x;
	json_array_foreach((json_t *)(uintptr_t)aten, i, x) {
		const char *n = json_string_value(json_array_get(x, 0));
		if (n && strspn(n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == strlen(n) &&
			s.len + strlen(n) + 2 < size)
			ww_str_addf(&s, "%s%s", s.len ? " " : "", n);
	}
	snprintf(out, size, "%s", s.p);
}

/* ---- cpu: code -----------------------------------------------------------------------------------------------------
 */

struct work {
	struct ww_sampling sampling;
	double us; /* processor time of a call */
};

/* One call on inputs of its own, as a timed one has them. */
static enum ww_rc one_call(struct ww_session *s, struct work *w, int look, int *alive, struct ww_err *err)
{
	struct ww_candidate_answer *a;
	struct ww_candidate *c = ww_form_candidate(s, &a);
	struct ww_run_result res;
	enum ww_rc rc = ww_session_draw_unchecked(s->t, WW_REF_PARAMS_REDRAW, err);
	if (rc != WW_OK)
		return rc;
	uint64_t before = ww_candidate_cpu_ns(c);
	rc = look ? ww_candidate_sample(c, TRACE_LIMIT_S, &w->sampling, a, &res, err)
			  : ww_candidate_call(c, TRACE_LIMIT_S, a, &res, err);
	*alive = rc == WW_OK && res.kind == WW_RUN_OK;
	if (*alive && !look)
		w->us = (double)(ww_candidate_cpu_ns(c) - before) * 1e-3;
	return rc;
}

static int answers(const struct ww_sampler *x)
{
	return x->seen[WW_CODE_OWN] + x->seen[WW_CODE_MADE] + x->seen[WW_CODE_LIBRARY];
}

static enum ww_rc sample(struct ww_session *s, struct work *w, struct ww_err *err)
{
	struct ww_sampler *found = &w->sampling.found;
	uint64_t start = ww_now_ns();
	int alive = 1;
	enum ww_rc rc = WW_OK;
	ww_rng_init(&w->sampling.rng, ww_rng_secret(), 0);
	for (int k = 0; rc == WW_OK && alive && k < PLAIN_CALLS; k++)
		rc = one_call(s, w, 0, &alive, err);
	double period_us = w->us / STOPS_PER_CALL;
	w->sampling.period_ns = (uint64_t)(1e3 * (period_us > SHORTEST_US ? period_us : SHORTEST_US));
	/* Threads that wait in a loop (OpenMP's) use processor time too, and are no answer. */
	while (rc == WW_OK && alive && found->stops < MAX_STOPS && answers(found) < ENOUGH &&
		ww_seconds_since(start) < (answers(found) < FEW ? 4 : 1) * SAMPLE_S)
		rc = one_call(s, w, 1, &alive, err);
	return rc;
}

static enum ww_rc whose_code(struct ww_session *s, const json_t *body, struct ww_err *err)
{
	struct work w = { .us = 0 };
	enum ww_rc rc = sample(s, &w, err);
	const int *seen = w.sampling.found.seen;
	/* Code that was made at run time by torch.compile is a library's. */
	int compiled = ww_json_bool(body, "compiled", 0), own = seen[WW_CODE_OWN] + (compiled ? 0 : seen[WW_CODE_MADE]);
	int library = seen[WW_CODE_LIBRARY] + (compiled ? seen[WW_CODE_MADE] : 0),
		all = own + library + seen[WW_CODE_OTHER];
	double each_us = all ? w.us / all : 0, traced_us = ww_json_num(body, "cpu_us", 0);
	double hidden_us = library * each_us - EXPLAINED * traced_us - GLUE_US;
	ww_log(WW_LOG_DEBUG, "whose code: %d own, %d of libraries, %d other in %d stops; %.0f us a call, %.0f traced", own,
		library, seen[WW_CODE_OTHER], w.sampling.found.stops, w.us, traced_us);
	s->v->library_only = own < MIN_OWN * (own + library) || own == 0 || hidden_us > own * each_us;
	ww_sampler_release(&w.sampling.found);
	return rc;
}

/* ---- cuda: kernels ----------------------------------------------------------------------------------------------- */

/* Kernels of PyTorch's and NVIDIA's libraries, and those that torch.compile writes, by how they are named.  A few of
 * PyTorch's stand outside its namespaces. */
static int is_library_kernel(const char *name)
{
	static const char *const marks[] = { "at::native", "at_cuda_detail", "cublas", "cudnn", "cutlass_75_",
		"cutlass_80_", "cutlass_90_", "cutlass_100_", "xmma_", "gemmSN", "gemv2", "splitKreduce", "nvjet",
		"implicit_convolve", "winograd", "ampere_sgemm", "ampere_dgemm", "ampere_fp16_", "ampere_bf16_", "turing_fp16_",
		"volta_sgemm", "volta_fp16_", "maxwell_sgemm", "gemvNSP", "regular_fft", "vector_fft", "cusparse", "cusolver",
		"triton_poi_fused", "triton_red_fused", "triton_per_fused", "triton_tem_fused", "nvfuser",
		"(anonymous namespace)::softmax_warp_", "pytorch_flash::", "PyTorchMemEffAttention" };
	for (size_t i = 0; i < WW_ARRAY_LEN(marks); i++)
		if (strstr(name, marks[i]))
			return 1;
	return 0;
}

struct launches {
	int own, hidden; /* launches: kernels of the solution; a library's outside of every traced operator */
	double own_us, hidden_us;
};

/* rows: [name, launches, those outside of operators, microseconds or 0] */
static struct launches count(const json_t *kernels)
{
	struct launches l = { 0, 0, 0, 0 };
	size_t i;
	json_t *x;
	json_array_foreach((json_t *)(uintptr_t)kernels, i, x) {
		const char *n = json_string_value(json_array_get(x, 0));
		int hidden = (int)json_integer_value(json_array_get(x, 2));
		double us = json_number_value(json_array_get(x, 3));
		ww_log(WW_LOG_DEBUG, "a kernel of the call: %.200s, %d hidden, %.1f us", n ? n : "?", hidden, us);
		if (n && !is_library_kernel(n)) {
			l.own++;
			l.own_us += us;
		} else if (hidden > 0) {
			l.hidden++;
			l.hidden_us += us;
		}
	}
	return l;
}

/* Also where no kernel is named: the outputs were right, so either the trace failed, or only copies were launched.
 * Times cost seconds, so they are asked for where they decide. */
static enum ww_rc whose_kernels(struct ww_session *s, struct ww_err *err)
{
	json_t *body;
	enum ww_rc rc = watch(s, "kernels", &body, err);
	if (rc != WW_OK || !body)
		return rc;
	if (!json_array_size(json_object_get(body, "kernels")))
		ww_str_adds(&s->diag, "note: no kernel of the call could be seen; it counts as PyTorch's own\n");
	struct launches l = count(json_object_get(body, "kernels"));
	json_decref(body);
	s->v->library_only = l.own == 0;
	if (l.own == 0 || l.hidden == 0)
		return WW_OK;
	if (l.own_us + l.hidden_us > 0) { /* a call that launches a graph is profiled at once */
		s->v->library_only = l.hidden_us > l.own_us;
		return WW_OK;
	}
	rc = watch(s, "kernel_times", &body, err);
	if (rc != WW_OK || !body)
		return rc;
	l = count(json_object_get(body, "kernels"));
	json_decref(body);
	s->v->library_only = l.hidden_us > l.own_us;
	return WW_OK;
}

enum ww_rc ww_form_trace(struct ww_session *s, struct ww_err *err)
{
	json_t *tasks = NULL, *body = NULL;
	enum ww_rc rc;

	WW_TRY(ww_ref_trace(s->t->ref, &tasks, err));
	WW_TRY(watch(s, "trace", &body, err));
	if (!body)
		goto out;
	list_ops(json_object_get(body, "aten"), s->v->aten_ops, sizeof(s->v->aten_ops));
	s->v->library_only = covers(json_object_get(body, "parts"), json_object_get(tasks, "parts"));
	if (!s->v->library_only)
		rc = s->t->judge->opts.target == WW_TARGET_CUDA ? whose_kernels(s, err) : whose_code(s, body, err);
out:
	json_decref(tasks);
	json_decref(body);
	return rc;
}
