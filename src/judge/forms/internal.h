/* internal.h - what candidates.c, candidate.c and wire.c share. */
#pragma once

#include "judge/forms/forms.h"

#include <limits.h>

enum { WW_CANDIDATE_LOG_BYTES = 4096 };

struct ww_candidate {
	int sock, log_fd, status_fd, pidfd;
	pid_t pid; /* in our pid namespace; signals go by pidfd */
	int gone;  /* killed, or ended by itself */
	int stopped;
	uint64_t max_resident_bytes;
	int gpu; /* it has one */
	const volatile int *interrupted;
	struct ww_sampler *sampler;       /* cpu, of what is called; NULL where the system has none */
	struct ww_seen seen;              /* in its last call */
	char log[WW_CANDIDATE_LOG_BYTES]; /* the end of what it printed */
	size_t log_len;
};

/* Bytes, and frames of the bridge (task/frame.h) on a non-blocking-by-flag socket; wait() returns once `events` may be
 * there.  A broken frame is WW_ERR_PROTOCOL, the end of the stream WW_ERR_WORKER.  At most one descriptor is kept of
 * what comes. */
struct ww_wire {
	int sock;
	enum ww_rc (*wait)(void *ctx, short events, struct ww_err *err);
	void *ctx;
};
enum ww_rc ww_wire_put(const struct ww_wire *w, const void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_wire_get(const struct ww_wire *w, void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_wire_send(
	const struct ww_wire *w, const json_t *body, const int *fds, int n_fds, struct ww_err *err) WW_MUST_CHECK;
/* n descriptors, each message of them with one byte; *got are the caller's to close, also after an error. */
enum ww_rc ww_wire_get_fds(const struct ww_wire *w, int *fds, int n, int *got, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_wire_receive(const struct ww_wire *w, json_t **body, int *fd, struct ww_err *err) WW_MUST_CHECK;
