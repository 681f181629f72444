/* trace.c - whose work is a call of a solution in a PyTorch form?  (docs/forms.md, "What it leaves to PyTorch")
 *
 * Two things are looked at.  The operators that the dispatcher sees, listed by the candidate's process: where they are
 * all that the task asks for, PyTorch does the task.  And whose code computes, which does not depend on how it was
 * called: on the cpu where the judge finds the threads (sampler.h), on cuda the kernels that are launched.  Library
 * work that no traced operator explains is hidden; the verdict is library_only where more of it is hidden than is the
 * solution's own, and where next to nothing is the solution's own.
 *
 * cpu: the calls that were timed are judged by themselves, and all calls together, which are more.  A solution that
 * does its own work while it is verified, and a library's while it is timed, is found by the first; one of few samples
 * in a call, by the second.  A call of which libraries take less than GLUE_US may hide nothing, and is the solution's
 * own where it has any code: so a kernel of microseconds, which no sample may ever meet, is not held for a library's.
 *
 * The trace, which a solution can notice, only excuses library work.  Operators of a kind count for no more than the
 * task itself needs for operators of that kind, as the reference worker finds, and for nothing where the traced call
 * computes more than ANOTHER times what others do. */
#include "judge/forms/form.h"

#include "base/json.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRACE_LIMIT_S = 30, TRACES = 3, ENOUGH = 40 };
static const double EXPLAINED = 1.5, ANOTHER = 2, GLUE_US = 50;

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

/* ---- cpu: code --------------------------------------------------------------------------------------------------- */

static int on_cuda(const struct ww_session *s) { return s->t->judge->opts.target == WW_TARGET_CUDA; }

/* A call as it is timed, on inputs of its own. */
static enum ww_rc prepare(struct ww_session *s, struct ww_err *err)
{
	WW_CHECK(ww_session_prepare(s, WW_RUN_POISON | WW_RUN_FLUSH, err));
	return ww_session_draw_unchecked(s->t, WW_REF_PARAMS_REDRAW, err);
}

/* What the operators of a traced call explain, in microseconds: of each kind no more than the task needs. */
static double explained_us(const json_t *mine, const json_t *tasks)
{
	double sum = 0;
	const char *kind;
	json_t *x;
	json_object_foreach((json_t *)(uintptr_t)mine, kind, x)
		sum += fmin(json_number_value(x), ww_json_num(tasks, kind, 0));
	return sum;
}

/* Whether these calls are a library's, of which so much processor time in a call is excused.  Two standard deviations
 * are left to chance. */
static int is_library(const struct ww_seen *seen, double excused_us)
{
	int copied = seen->checked ? seen->n[WW_CODE_OWN] * seen->copied / seen->checked : 0;
	int own = seen->n[WW_CODE_OWN] - copied, library = seen->n[WW_CODE_LIBRARY] + copied;
	double each_us = seen->calls ? (double)WW_SAMPLE_US / seen->calls : 0;
	return (own == 0 && library >= ENOUGH && library * each_us > GLUE_US) ||
		(library - own - 2 * sqrt(library + own)) * each_us > excused_us;
}

static double call_us(const struct ww_seen *seen)
{
	int all = 0;
	for (int k = 0; k < WW_CODE_KINDS; k++)
		all += seen->n[k];
	return seen->calls ? (double)all * WW_SAMPLE_US / seen->calls : 0;
}

static void log_seen(const char *which, const struct ww_seen *x, double excused_us)
{
	ww_log(WW_LOG_DEBUG,
		"whose code: of %d %s calls of %.0f us %d own (%d of %d copied), %d of libraries, %d other; %.0f us excused",
		x->calls, which, call_us(x), x->n[WW_CODE_OWN], x->copied, x->checked, x->n[WW_CODE_LIBRARY],
		x->n[WW_CODE_OTHER], excused_us);
}

static void whose_code(struct ww_session *s, double traced_us, double explained_us)
{
	const struct ww_seen *timed = ww_form_seen(s, 1), *all = ww_form_seen(s, 0);
	struct ww_candidate_answer *a;
	struct ww_candidate *c = ww_form_candidate(s, &a);
	double most_us = ANOTHER * (timed->calls ? call_us(timed) : call_us(all));
	double excused_us = GLUE_US + (traced_us <= most_us + GLUE_US ? EXPLAINED * explained_us : 0);
	log_seen("timed", timed, excused_us);
	log_seen("all", all, excused_us);
	if (!all->calls)
		ww_str_adds(&s->diag,
			"note: this system does not let the judge see whose code computes, so it counts as PyTorch's; "
			"set kernel.perf_event_paranoid to 2\n");
	s->v->library_only = !all->calls || !ww_candidate_has_own_code(c) || is_library(timed, excused_us) ||
		is_library(all, excused_us);
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

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/* Middle of TRACES traced calls: on a busy machine one alone may take any time. */
struct traced {
	int n, covers;
	double us[TRACES], explained_us[TRACES];
};

static enum ww_rc trace_once(struct ww_session *s, const json_t *tasks, struct traced *t, struct ww_err *err)
{
	json_t *body;
	WW_CHECK(prepare(s, err));
	WW_CHECK(watch(s, "trace", &body, err));
	if (!body)
		return WW_OK;
	list_ops(json_object_get(body, "aten"), s->v->aten_ops, sizeof(s->v->aten_ops));
	t->covers |= covers(json_object_get(body, "parts"), json_object_get(tasks, "parts"));
	t->us[t->n] = ww_json_num(body, "cpu_us", 0);
	t->explained_us[t->n++] = explained_us(json_object_get(body, "us"), json_object_get(tasks, "us"));
	json_decref(body);
	return WW_OK;
}

enum ww_rc ww_form_trace(struct ww_session *s, struct ww_err *err)
{
	int cpu = !on_cuda(s), wanted = cpu ? TRACES : 1;
	struct traced t = { 0 };
	json_t *tasks = NULL;
	enum ww_rc rc;

	if (cpu)
		ww_judge_flush(s->t);
	WW_TRY(ww_ref_trace(s->t->ref, &tasks, err));
	for (int k = 0; k < wanted && t.n == k && !s->failed; k++)
		WW_TRY(trace_once(s, tasks, &t, err));
	if (t.n < wanted || s->failed)
		goto out;
	s->v->library_only = t.covers;
	if (!t.covers && cpu)
		whose_code(s, ww_stats_median(t.us, t.n), ww_stats_median(t.explained_us, t.n));
	else if (!t.covers)
		rc = whose_kernels(s, err);
out:
	json_decref(tasks);
	return rc;
}
