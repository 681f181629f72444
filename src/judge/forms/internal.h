/* internal.h - what candidates.c and candidate.c share. */
#pragma once

#include "judge/forms/forms.h"
#include "task/frame.h"

#include <limits.h>

enum { WW_CANDIDATE_LOG_BYTES = 4096 };

/* State that the task's forward() changes (state.c): `bytes` bytes at `from`, in the judge's mapping, belong at address
 * `to` of the process, as that says. */
struct ww_state {
	void *from;
	size_t map_bytes, bytes;
	int64_t to;
};

struct ww_candidate {
	int sock, log_fd, status_fd, pidfd;
	pid_t pid; /* in our pid namespace; signals go by pidfd */
	int gone;  /* killed, or ended by itself */
	int stopped;
	uint64_t max_resident_bytes;
	int max_tasks;
	int gpu; /* it has one */
	const volatile int *interrupted;
	struct ww_sampler *sampler;       /* cpu, of what is called; NULL where the system has none */
	struct ww_seen seen;              /* in its last call */
	char log[WW_CANDIDATE_LOG_BYTES]; /* the end of what it printed */
	size_t log_len;
	struct ww_state *state; /* cpu */
	int n_state;
	size_t max_state;
};

/* Before a call or a request, while it stands. */
void ww_candidate_restore(const struct ww_candidate *c);
void ww_candidate_forget_state(struct ww_candidate *c);
