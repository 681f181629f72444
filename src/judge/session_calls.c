/* session_calls.c - calls of a session's candidate; its faults go into the verdict. */
#include "judge/session.h"
#include "judge/reasons.h"

#include "base/log.h"
#include "base/time.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

void ww_session_fail(struct ww_session *s, enum ww_status status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&s->diag, fmt, ap);
	va_end(ap);
	ww_str_addc(&s->diag, '\n');
	s->v->status = status;
	s->v->correct = 0;
	s->failed = 1;
}

static void fail_quoted(
	struct ww_session *s, enum ww_status status, const char *what, const char *stage, const char *text)
{
	ww_reason_run(what, stage, text, &s->diag);
	s->v->status = status;
	s->v->correct = 0;
	s->failed = 1;
}

void ww_session_fail_run(struct ww_session *s, const struct ww_run_result *res, const char *stage)
{
	switch (res->kind) {
	case WW_RUN_OK:
	case WW_RUN_BROKEN: break;
	case WW_RUN_REFUSED: fail_quoted(s, WW_STATUS_REFUSED, "refused", stage, res->text); break;
	case WW_RUN_UNAVAILABLE: fail_quoted(s, WW_STATUS_REFUSED, "not available here", stage, res->text); break;
	case WW_RUN_NOMEM: fail_quoted(s, WW_STATUS_REFUSED, "out of memory", stage, res->text); break;
	case WW_RUN_OVERRUN: fail_quoted(s, WW_STATUS_MISMATCH, "buffer overrun", stage, res->text); break;
	case WW_RUN_FAULT: fail_quoted(s, WW_STATUS_CRASHED, "crashed", stage, res->text); break;
	case WW_RUN_DIED: fail_quoted(s, WW_STATUS_CRASHED, "crashed", stage, res->text); break;
	case WW_RUN_LATE: ww_session_fail(s, WW_STATUS_TIMEOUT, "timeout (%s): %s", stage, res->text); break;
	}
}

void ww_session_flush(struct ww_judge_task *t)
{
	memset(t->judge->flush, 1, t->judge->flush_bytes);
	ww_ref_settle(t->ref);
	if (t->beside)
		ww_ref_settle(t->beside);
}

enum ww_rc ww_session_prepare(struct ww_session *s, unsigned prepare, struct ww_err *err)
{
	struct ww_run_result res;
	int cpu = s->t->judge->opts.target == WW_TARGET_CPU;
	enum ww_rc rc = ww_judge_interrupted(s->t->judge, err);
	if (rc != WW_OK)
		return rc;
	s->flush = cpu && (prepare & WW_RUN_FLUSH);
	rc = s->ops->prepare(s->candidate, cpu ? prepare & WW_RUN_POISON : prepare, &res, err);
	if (rc == WW_OK)
		ww_session_fail_run(s, &res, "run");
	return rc;
}

/* The host may delay a call or two; where it contradicts the events in three calls of four, the clock was tampered
 * with. */
static void believe_clock(struct ww_session *s, const struct ww_run_result *res)
{
	enum { ENOUGH = 8 };
	s->calls += isfinite(res->call_us);
	s->contradicted += res->contradicted;
	if (isfinite(res->call_us))
		ww_log(WW_LOG_DEBUG, "clocks: %.2f us, %.2f us by the stamps, %.2f us by the host%s", res->device_us,
			res->stamp_us, res->call_us, res->contradicted ? ": a contradiction" : "");
	if (s->contradicted >= ENOUGH && 4 * s->contradicted >= 3 * s->calls)
		ww_session_fail(s, WW_STATUS_REFUSED,
			"refused: the event clock was tampered with: %d of %d timed calls took much longer by "
			"another clock than by their events",
			s->contradicted, s->calls);
}

/* Record whose code computed.  Timed calls are those with cold caches (s->flush). */
static void note_code(struct ww_session *s)
{
	struct ww_seen seen = { .calls = 0 };
	if (s->runner)
		ww_runner_take_seen(s->runner, &seen);
	seen.calls = seen.calls > 0; /* a call in several parts counts once */
	if (seen.calls)
		ww_seen_note(&s->all, &seen);
	if (seen.calls && s->flush && !s->warm)
		ww_seen_note(&s->timed, &seen);
}

enum ww_rc ww_session_go(struct ww_session *s, struct ww_run_result *res, struct ww_err *err)
{
	ww_turn_step(&s->t->turn);
	ww_turn_call(&s->t->turn);
	uint64_t start = ww_now_ns();
	if (s->flush)
		ww_session_flush(s->t);
	enum ww_rc rc = s->ops->go(s->candidate, s->limit_s, res, err);
	s->t->spent.run += ww_seconds_since(start);
	ww_turn_called(&s->t->turn);
	if (rc == WW_OK)
		ww_session_fail_run(s, res, "run");
	if (rc != WW_OK || s->failed)
		return rc;
	believe_clock(s, res);
	s->witness_us = res->stamp_us;
	s->waited_us = res->waited_us;
	if (s->flush && !s->warm && res->used_ns > 0)
		ww_recent_add(&s->used_s, (double)res->used_ns * 1e-9);
	note_code(s);
	return rc;
}

enum ww_rc ww_session_run(struct ww_session *s, unsigned prepare, struct ww_run_result *res, struct ww_err *err)
{
	enum ww_rc rc = ww_session_prepare(s, prepare | WW_RUN_GUARDS, err);
	return rc == WW_OK && !s->failed ? ww_session_go(s, res, err) : rc;
}

enum ww_rc ww_session_repeat(
	struct ww_session *s, const struct ww_run_repeat *q, struct ww_run_result *res, struct ww_err *err)
{
	ww_turn_call(&s->t->turn);
	enum ww_rc rc = ww_runner_repeat(s->runner, q, s->limit_s, res, err);
	ww_turn_called(&s->t->turn);
	if (rc == WW_OK)
		ww_session_fail_run(s, res, "a repeat");
	return rc;
}
