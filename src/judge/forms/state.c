/* state.c - cpu: state that the task's forward() changes is restored by the judge, while the candidate stands.
 *
 * A module's state (running statistics, a cache) is private memory of the candidate's process, and begins each call
 * with the draw's values.  The harness once copied them there within the call, on the candidate's side as on the
 * baseline's: a solution that put a stop to that, and read the judge's own buffer, was 15 times as fast as PyTorch and
 * as its honest twin where the state is large and a call uses little of it; and the copy counted as a library's work.
 *
 * The address is what the process says.  A false one reaches memory of its own that it may write to, or none.  What is
 * written there is no output: a copy of the state that a task returns, the baseline makes within its call. */
#include "judge/forms/form.h"
#include "judge/forms/internal.h"
#include "judge/forms/outputs.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

static enum ww_rc add(struct ww_candidate *c, const struct ww_ref_buffer *b, int64_t to, struct ww_err *err)
{
	if (!WW_GROW(c->state, &c->max_state, c->n_state + 1))
		return ww_nomem(err);
	void *m = mmap(NULL, b->alloc_bytes, PROT_READ, MAP_SHARED, b->fd, 0);
	if (m == MAP_FAILED)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot map the task's state");
	c->state[c->n_state++] = (struct ww_state){ m, b->alloc_bytes, b->bytes, to };
	return WW_OK;
}

enum ww_rc ww_form_restores(
	const struct ww_judge_task *t, struct ww_candidate *c, const json_t *body, struct ww_err *err)
{
	const struct ww_facts *f = &t->facts;
	for (int i = 0; i < f->n_params; i++) {
		int64_t to = ww_form_number_of(json_object_get(body, "state"), f->params[i].name);
		if (to)
			WW_CHECK(add(c, &t->buffers.b[f->n_inputs + i], to, err));
	}
	return WW_OK;
}

void ww_candidate_restore(const struct ww_candidate *c)
{
	for (int i = 0; !c->gpu && i < c->n_state; i++) {
		const struct ww_state *s = &c->state[i];
		ssize_t n = 1;
		for (size_t at = 0; n > 0 && at < s->bytes; at += (size_t)n) {
			struct iovec here = { (char *)s->from + at, s->bytes - at },
						 there = { (void *)(uintptr_t)(s->to + (int64_t)at), s->bytes - at };
			n = process_vm_writev(c->pid, &here, 1, &there, 1, 0);
		}
	}
}

int ww_form_keeps_state(const struct ww_candidate *c, const int64_t *places, const struct ww_tensor *out, int n,
	const int *apart, char *why, size_t why_bytes)
{
	int good = 1;
	for (int i = 0; good && !c->gpu && i < c->n_state; i++)
		good = ww_outputs_not_given(c->pid, places, out, n, apart, c->state[i].to, c->state[i].bytes, why, why_bytes);
	return good;
}

void ww_candidate_forget_state(struct ww_candidate *c)
{
	for (int i = 0; i < c->n_state; i++)
		munmap(c->state[i].from, c->state[i].map_bytes);
	free(c->state);
}
