/* trace.c - does a solution in a PyTorch form do the work itself, or a library?  (docs/forms.md, "What it leaves to
 * PyTorch")
 *
 * Two things are looked at.  The operators that the dispatcher sees, listed by the candidate's process: where they are
 * all that the task asks for, PyTorch does the task.  And whose code computes, which does not depend on how it was
 * called: on the cpu where the judge finds the threads (sampler.h), on cuda the kernels that are launched.  Library
 * work that no traced operator explains is hidden; the verdict is library_only where more of it is hidden than is the
 * solution's own, and where next to nothing is the solution's own: a single sample among hundreds that are hidden
 * excuses nothing, and where calls were few (a busy machine), fewer samples have to say it clearly.
 *
 * cpu: the calls that were timed are judged by themselves, and all calls together, which are more.  A solution that
 * does its own work while it is verified, and a library's while it is timed, is found by the first; one of few samples
 * in a call, by the second.  A call of which libraries take less than GLUE_US may hide nothing, and is the solution's
 * own where it has any code: so a kernel of microseconds, which no sample may ever meet, is not taken for a library's.
 *
 * The trace, which a solution can notice and forge, only excuses library work: of each kind of operator no more than
 * the task needs for it.  What that is nobody can forge: the samples of a library's code in the calls of PyTorch's
 * baseline, shared out as the reference worker's trace of the task says.  Nothing is excused where libraries compute
 * more than ANOTHER times as much in the traced call as in others.
 *
 * The first call under a trace pays for what later ones find done: milliseconds of a library's time where a timed call
 * has less than one.  So TRACED calls are traced, and what excuses must hold in each of them, but for the library's
 * time: the least counts.  A solution that asks openly in one of them alone has asked for nothing. */
#include "judge/forms/form.h"

#include "base/json.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRACE_LIMIT_S = 30, ENOUGH = 40, FEW = 20, NEXT_TO_NOTHING = 50, WATCHED = 3, TRACED = 3 };
static const double EXPLAINED = 2, ANOTHER = 2, GLUE_US = 50, TRACING_US = 800;
static const double LATER = 1.5, WATCHING_US = 500, EACH_US = 100, MOST_COUNTED = 50;

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

/* Every computing operator of the task, as often as the task asks for it. */
static int covers(const json_t *mine, const json_t *tasks)
{
	size_t i;
	json_t *x;
	json_array_foreach((json_t *)(uintptr_t)tasks, i, x) {
		const char *n = json_string_value(json_array_get(x, 0));
		if (!n || ww_form_number_of(mine, n) < json_integer_value(json_array_get(x, 1)))
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

/* Prepare as for a timed call: a draw of its own, cold caches. */
static enum ww_rc prepare(struct ww_session *s, struct ww_err *err)
{
	WW_CHECK(ww_session_prepare(s, WW_RUN_POISON, err));
	WW_CHECK(ww_session_draw_unchecked(s->t, WW_REF_PARAMS_REDRAW, err));
	ww_session_flush(s->t);
	return WW_OK;
}

/* The share of the task's time in operators that the solution asks for through the dispatcher, 0 to 1: of each kind of
 * operator at most as many calls as the task makes, and no more time than they take. */
static double explained(const json_t *mine, const json_t *tasks)
{
	double sum = 0, all = 0;
	const char *kind;
	json_t *x;
	json_object_foreach((json_t *)(uintptr_t)tasks, kind, x) {
		double calls = json_number_value(json_array_get(x, 0)), us = json_number_value(json_array_get(x, 1));
		const json_t *my = json_object_get(mine, kind);
		double my_calls = json_number_value(json_array_get(my, 0)), my_us = json_number_value(json_array_get(my, 1));
		all += us;
		sum += calls > 0 ? fmin(us * fmin(1, my_calls / calls), my_us) : 0;
	}
	return all > 0 ? sum / all : 0;
}

/* Processor time of a call in code of this kind. */
static double us_in(const struct ww_seen *seen, enum ww_code kind)
{
	return seen->calls ? (double)seen->n[kind] * WW_SAMPLE_US / seen->calls : 0;
}

/* What is known of the calls that were traced. */
struct traced {
	double share;      /* of the task that each of them asks for openly, as explained() has it */
	double library_us; /* processor time in libraries, of the call with the least */
};

/* Library time of a call that is not held against the solution: what the task's own operators take of PyTorch's time,
 * as far as the solution asks for them openly.  Where no baseline was called nothing can be won, and all library time
 * is excused if it asks for any. */
static double excused_us(const struct ww_session *s, const struct ww_seen *calls, const struct traced *traced)
{
	double library_us = us_in(calls, WW_CODE_LIBRARY);
	if (traced->library_us > ANOTHER * library_us + TRACING_US)
		return GLUE_US;
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++)
		if (s->t->form_base_seen[b].calls)
			return GLUE_US + EXPLAINED * traced->share * us_in(&s->t->form_base_seen[b], WW_CODE_LIBRARY);
	return traced->share > 0 ? GLUE_US + library_us : GLUE_US;
}

/* 1 where a library computed in these calls, `excused` microseconds of its time in a call not counted.  Where some code
 * is the solution's own it may be a small part of what PyTorch is asked for openly, as what follows a large product: it
 * is next to nothing only beside what is hidden. */
static int is_library(const struct ww_seen *seen, double excused)
{
	int own = ww_seen_own(seen), library = ww_seen_library(seen);
	double each_us = seen->calls ? (double)WW_SAMPLE_US / seen->calls : 0;
	double counts = own > 0 && each_us > 0 ? library - (excused - GLUE_US) / each_us : library;
	double surely = counts >= ENOUGH ? counts : counts - 2 * sqrt(fmax(0, counts));
	return (own * NEXT_TO_NOTHING <= counts && counts >= FEW && surely * each_us > GLUE_US) ||
		ww_seen_is_library(seen, excused);
}

static int calls_are_library(const struct ww_session *s, const struct ww_seen *calls, const struct traced *traced)
{
	double excused = excused_us(s, calls, traced);
	ww_log(WW_LOG_DEBUG,
		"whose code: in %d calls %d own (%d of %d copied, %d of %d under way), %d of libraries, %d other; "
		"%.0f us of a library's in a call, %.0f "
		"traced, %.0f excused",
		calls->calls, calls->n[WW_CODE_OWN], calls->copied, calls->checked, calls->found, calls->looked,
		calls->n[WW_CODE_LIBRARY], calls->n[WW_CODE_OTHER], us_in(calls, WW_CODE_LIBRARY), traced->library_us, excused);
	return is_library(calls, excused);
}

static void whose_code(struct ww_session *s, const struct traced *traced)
{
	struct ww_seen timed, all;
	ww_form_seen(s, 1, &timed);
	ww_form_seen(s, 0, &all);
	struct ww_candidate_answer *a;
	struct ww_candidate *c = ww_form_candidate(s, &a);
	if (!all.calls)
		ww_str_adds(&s->diag,
			"note: this system does not let the judge see whose code computes, so it counts as PyTorch's; "
			"set kernel.perf_event_paranoid to 2\n");
	s->v->library_only = !all.calls || !ww_candidate_has_own_code(c) || calls_are_library(s, &timed, traced) ||
		calls_are_library(s, &all, traced);
}

/* ---- cuda: kernels ----------------------------------------------------------------------------------------------- */

/* Kernels of PyTorch's and NVIDIA's libraries, and those that torch.compile writes, by how they are named.  A few of
 * PyTorch's stand outside its namespaces.  torch.compile may be told to call all of its kernels `triton_`, or to leave
 * the operators out of their names.  Kernels that were too many to be listed have none. */
static int is_library_kernel(const char *name)
{
	static const char *const marks[] = { "at::native", "at_cuda_detail", "cublas", "cudnn", "cutlass_75_",
		"cutlass_80_", "cutlass_90_", "cutlass_100_", "xmma_", "gemmSN", "gemv2", "splitKreduce", "nvjet",
		"implicit_convolve", "winograd", "ampere_sgemm", "ampere_dgemm", "ampere_fp16_", "ampere_bf16_", "turing_fp16_",
		"volta_sgemm", "volta_fp16_", "maxwell_sgemm", "gemvNSP", "regular_fft", "vector_fft", "cusparse", "cusolver",
		"triton_poi_fused", "triton_red_fused", "triton_per_fused", "triton_tem_fused", "triton_for_fused",
		"triton_unk_fused", "triton_poi__", "triton_red__", "triton_per__", "triton_tem__", "triton_for__",
		"triton_unk__", "nvfuser", "(anonymous namespace)::softmax_warp_",
		"pytorch_flash::", "PyTorchMemEffAttention" };
	for (size_t i = 0; i < WW_ARRAY_LEN(marks); i++)
		if (strstr(name, marks[i]))
			return 1;
	return !*name || !strcmp(name, "triton_");
}

struct launches {
	int own, hidden; /* kernels of the solution; a library's outside of every operator of PyTorch's */
	double own_us, hidden_us;
};

/* rows: [name, launches, those outside of PyTorch's operators, microseconds or 0].  A kernel within an operator is
 * PyTorch's, whatever its name: some are compiled when they are first used, and bear the operator's. */
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
		if (hidden <= 0)
			continue;
		if (n && !is_library_kernel(n)) {
			l.own++;
			l.own_us += us;
		} else {
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

/* A solution might compute in one way while it is traced and in another while it is timed.  So a few traced calls are
 * also timed and compared, on inputs of their own, like all others: a solution that uses its own kernels only in traced
 * calls would have to be as fast with them.  A traced call may take LATER times as long as a timed one, plus
 * WATCHING_US, plus EACH_US for each operator and launch. */
static enum ww_rc watched_call(struct ww_session *s, json_t **body, double *us, struct ww_err *err)
{
	struct ww_run_result res;
	json_t *ready;
	*body = NULL;
	WW_CHECK(watch(s, "watch", &ready, err));
	if (!ready)
		return WW_OK;
	json_decref(ready);
	WW_CHECK(ww_session_prepare(s, WW_RUN_POISON | WW_RUN_FLUSH | WW_RUN_GUARDS, err));
	if (!s->failed)
		WW_CHECK(ww_session_draw(s->t, 1, 0, WW_REF_PARAMS_REDRAW, err));
	if (!s->failed)
		WW_CHECK(ww_session_go(s, &res, err));
	if (!s->failed)
		WW_CHECK(ww_session_check(s, "a watched call", NULL, err));
	if (s->failed)
		return WW_OK;
	*us = (double)res.elapsed_ns * 1e-3;
	return watch(s, "watched", body, err);
}

static double later_us(const struct ww_session *s, const json_t *body)
{
	double n = 0;
	size_t i;
	json_t *x;
	json_array_foreach(json_object_get(body, "aten"), i, x)
		n += (double)json_integer_value(json_array_get(x, 1));
	json_array_foreach(json_object_get(body, "kernels"), i, x)
		n += (double)json_integer_value(json_array_get(x, 1));
	return LATER * s->v->time.device_us + WATCHING_US + EACH_US * fmin(n, MOST_COUNTED);
}

static enum ww_rc watch_calls(struct ww_session *s, const json_t *tasks, struct ww_err *err)
{
	double least = INFINITY;
	for (int k = 0; k < WATCHED && !s->v->library_only; k++) {
		json_t *body;
		double us = 0;
		WW_CHECK(watched_call(s, &body, &us, err));
		if (!body)
			return WW_OK;
		struct launches l = count(json_object_get(body, "kernels"));
		s->v->library_only = covers(json_object_get(body, "parts"), json_object_get(tasks, "parts")) ||
			(json_array_size(json_object_get(body, "kernels")) && l.own == 0);
		least = fmin(least, us - later_us(s, body));
		json_decref(body);
	}
	ww_log(WW_LOG_DEBUG, "watched calls are %.0f us from their limit; a timed one takes %.0f", least,
		s->v->time.device_us);
	if (least > 0) {
		ww_str_adds(&s->diag,
			"note: traced calls take far longer than timed ones, so they compute in another way; "
			"the work counts as PyTorch's own\n");
		s->v->library_only = 1;
	}
	return WW_OK;
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/* One call more under a trace; *more: whether there is anything left to find out. */
static enum ww_rc trace_call(
	struct ww_session *s, const json_t *tasks, struct traced *traced, int *more, struct ww_err *err)
{
	json_auto_t *body = NULL;
	struct ww_candidate_answer *a;
	*more = 0;
	if (!on_cuda(s))
		WW_CHECK(prepare(s, err));
	if (s->failed)
		return WW_OK;
	WW_CHECK(watch(s, "trace", &body, err));
	if (!body)
		return WW_OK;
	list_ops(json_object_get(body, "aten"), s->v->aten_ops, sizeof(s->v->aten_ops));
	s->v->library_only = covers(json_object_get(body, "parts"), json_object_get(tasks, "parts"));
	double share = explained(json_object_get(body, "kinds"), json_object_get(tasks, "kinds"));
	double library_us = us_in(ww_candidate_seen(ww_form_candidate(s, &a)), WW_CODE_LIBRARY);
	ww_log(WW_LOG_DEBUG, "traced: %.0f us of a library's, %.2f of the task asked for", library_us, share);
	traced->share = fmin(traced->share, share);
	traced->library_us = fmin(traced->library_us, library_us);
	*more = !s->v->library_only;
	return WW_OK;
}

enum ww_rc ww_form_trace(struct ww_session *s, struct ww_err *err)
{
	json_auto_t *tasks = NULL;
	struct traced traced = { 1, INFINITY };
	int more = 1;

	WW_CHECK(ww_ref_trace(s->t->ref, &tasks, err));
	for (int k = 0; more && k < (on_cuda(s) ? 1 : TRACED); k++)
		WW_CHECK(trace_call(s, tasks, &traced, &more, err));
	if (!more)
		return WW_OK;
	if (!on_cuda(s)) {
		whose_code(s, &traced);
		return WW_OK;
	}
	WW_CHECK(whose_kernels(s, err));
	if (s->v->library_only || !isfinite(s->v->time.device_us))
		return WW_OK;
	WW_CHECK(ww_judge_turn(s->t, WW_TURN_ALONE, err));
	return watch_calls(s, tasks, err);
}
