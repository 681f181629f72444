/* repeat.c - finds races: one draw is run again and again, its outputs compared bit by bit with the first run's.
 *
 * Problem.  A race that is right nine times in ten passes five draws more often than not; 44 repeats let 1% of such
 * races through (0.9^44).  A comparison with the reference costs as much as the reference did, so repeats are compared
 * by a digest of the outputs' bits, and only a run whose bits differ is compared with the reference: atomic additions
 * in another order are no fault, an element beyond the tolerance is.
 *
 * Which process digests.  On cuda the runner's host code is ours and the candidate has device code only, so the runner
 * replays and digests on the device, many repeats per request (plugin_cuda.c).  On cpu the candidate's code runs inside
 * the runner, which is therefore not trusted: the judge maps the output buffers itself and digests them while the
 * runner is stopped.
 *
 * The digest of a buffer is the sum over its 8-byte words w[i] of mix(w[i] ^ (key + i * odd)); mix is a bijection, so a
 * single changed word always changes the sum, and several cancel with a chance of 2^-64.  The key is new for each
 * judgement and secret, so that no two outputs can be made to agree.  Rejected: a copy of the outputs (twice the
 * memory, and on cuda one more buffer that device code could reach); on cpu a digest made by the runner. */
#include "judge/stages.h"

#include "base/rng.h"
#include "base/time.h"

#include <string.h>
#include <sys/mman.h>

enum { REPEATS = 44 };
static const double MAX_SECONDS = 2;

struct repeats {
	uint64_t key, first; /* digest of the first run's outputs, with has_first */
	int has_first;
	const unsigned char *map[WW_MAX_OUTPUTS]; /* cpu: the output buffers */
	size_t map_bytes[WW_MAX_OUTPUTS];
};

static uint64_t digest_of(uint64_t key, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	uint64_t sum = 0, w;
	for (size_t i = 0; i < n; i += 8) {
		w = 0;
		memcpy(&w, p + i, n - i < 8 ? n - i : 8);
		w ^= key + i / 8 * 0x9e3779b97f4a7c15u;
		w = (w ^ w >> 32) * 0xd6e8feb86659fd93u;
		w = (w ^ w >> 32) * 0xd6e8feb86659fd93u;
		sum += w ^ w >> 32;
	}
	return sum;
}

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

static enum ww_rc map_outputs(const struct ww_judge_task *t, struct repeats *x, struct ww_err *err)
{
	int first = t->facts.n_inputs + t->facts.n_params;
	for (int i = 0; i < t->facts.n_outputs; i++) {
		const struct ww_ref_buffer *b = &t->buffers.b[first + i];
		void *m = mmap(NULL, b->alloc_bytes, PROT_READ, MAP_SHARED, b->fd, 0);
		if (m == MAP_FAILED)
			return ww_err_errno(err, WW_ERR_SYSTEM, "cannot map output %d", i);
		x->map[i] = m;
		x->map_bytes[i] = b->alloc_bytes;
	}
	return WW_OK;
}

static void unmap_outputs(struct repeats *x)
{
	for (int i = 0; i < WW_MAX_OUTPUTS; i++)
		if (x->map[i])
			munmap((void *)(uintptr_t)x->map[i], x->map_bytes[i]);
}

/* The digest of the outputs; the runner is stopped between its calls (client.h). */
static uint64_t digest_now(const struct ww_session *s, const struct repeats *x)
{
	const struct ww_judge_task *t = s->t;
	int first = t->facts.n_inputs + t->facts.n_params;
	uint64_t sum = 0;
	for (int i = 0; i < t->facts.n_outputs; i++)
		sum += digest_of(x->key + (uint64_t)i, x->map[i], t->buffers.b[first + i].bytes);
	return sum;
}

static enum ww_rc repeat_cpu(struct ww_session *s, struct repeats *x, int *made, int *differs, struct ww_err *err)
{
	struct ww_run_result res;
	*made = *differs = 0;
	if (!x->has_first) {
		WW_CHECK(map_outputs(s->t, x, err));
		x->first = digest_now(s, x);
		x->has_first = 1;
	}
	WW_CHECK(ww_session_run(s, WW_RUN_POISON, &res, err));
	if (s->failed)
		return WW_OK;
	*made = 1;
	*differs = digest_now(s, x) != x->first;
	return WW_OK;
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

static enum ww_rc repeat_cuda(
	struct ww_session *s, struct repeats *x, int n, double seconds, int *made, int *differs, struct ww_err *err)
{
	struct ww_run_repeat q = { .n = (uint32_t)n,
		.limit_ms = (uint32_t)(seconds * 1e3) + 1,
		.key = x->key,
		.first = x->first,
		.has_first = (uint32_t)x->has_first };
	struct ww_run_result res;
	*made = *differs = 0;
	WW_CHECK(ww_judge_interrupted(s->t->judge, err));
	WW_CHECK(ww_session_repeat(s, &q, &res, err));
	if (s->failed)
		return WW_OK;
	if (res.made < 1 || res.made > n)
		return ww_err_set(err, WW_ERR_PROTOCOL, "the runner made %d repeats of %d", res.made, n);
	x->first = res.digest;
	x->has_first = 1;
	*made = res.made;
	*differs = res.differs;
	return WW_OK;
}

/* PyTorch runs a part of it in its process: the judge calls both in turn, and the runner digests. */
static enum ww_rc repeat_mixed(struct ww_session *s, struct repeats *x, int *made, int *differs, struct ww_err *err)
{
	uint64_t digest = 0;
	*made = *differs = 0;
	if (!x->has_first)
		WW_CHECK(ww_pytorch_digest(s, 0, x->key, &x->first, err));
	x->has_first = 1;
	if (!s->failed)
		WW_CHECK(ww_pytorch_digest(s, 1, x->key, &digest, err));
	if (s->failed)
		return WW_OK;
	*made = 1;
	*differs = digest != x->first;
	return WW_OK;
}

/* ---- Another form ------------------------------------------------------------------------------------------------ */

/* Only the reference worker can read its outputs on the device, so every repeat is compared with the reference. */
static enum ww_rc repeat_form(struct ww_session *s, int *made, struct ww_err *err)
{
	struct ww_run_result res;
	*made = 0;
	WW_CHECK(ww_session_run(s, WW_RUN_POISON, &res, err));
	if (s->failed)
		return WW_OK;
	WW_CHECK(ww_session_check(s, "a repeat of inputs on which the first run was right: a race", NULL, err));
	*made = 1;
	return WW_OK;
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static enum ww_rc compare_again(struct ww_session *s, struct ww_err *err)
{
	char when[96];
	s->v->nondeterministic++;
	snprintf(when, sizeof(when), "repeat %d of inputs on which the first run was right: a race", s->v->repeats);
	return ww_session_check(s, when, NULL, err);
}

static enum ww_rc check_guards(struct ww_session *s, struct ww_err *err)
{
	struct ww_run_result res;
	enum ww_rc rc = s->ops->guards(s->candidate, &res, err);
	if (rc == WW_OK)
		ww_session_fail_run(s, &res, "repeats");
	return rc;
}

enum ww_rc ww_judge_repeat(struct ww_session *s, struct ww_err *err)
{
	struct repeats x = { .key = ww_rng_secret() };
	struct ww_verdict *v = s->v;
	uint64_t start = ww_now_ns();
	double asked = s->t->judge->opts.max_repeat_s, limit = asked > 0 ? asked : MAX_SECONDS, left = limit;
	enum ww_rc rc = WW_OK;

	for (v->repeats = 0; v->repeats < REPEATS && left > 0 && !s->failed; left = limit - ww_seconds_since(start)) {
		int made, differs = 0;
		if (s->t->judge->opts.target == WW_TARGET_CPU)
			WW_TRY(repeat_cpu(s, &x, &made, &differs, err));
		else if (!s->runner)
			WW_TRY(repeat_form(s, &made, err));
		else if (ww_pytorch_count(s->image))
			WW_TRY(repeat_mixed(s, &x, &made, &differs, err));
		else
			WW_TRY(repeat_cuda(s, &x, REPEATS - v->repeats, left, &made, &differs, err));
		v->repeats += made;
		if (differs && !s->failed)
			WW_TRY(compare_again(s, err));
	}
	if (!s->failed)
		WW_TRY(check_guards(s, err));
out:
	unmap_outputs(&x);
	return rc;
}
