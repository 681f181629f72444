/* cpu.h - inside the cpu back end of the runner: its memory, and its report of a fault. */
#pragma once

#include "judge/run/exec.h"
#include "judge/run/proto.h"

/* One buffer: [unmapped][slack in front | bytes | slack behind][unmapped]. */
struct ww_cpu_buffer {
	char *reserve; /* start of the whole reservation; NULL: not bound */
	size_t reserve_bytes;
	char *map; /* first mapped page */
	size_t map_bytes;
	char *data; /* first byte of the buffer */
	size_t bytes;
	uint32_t role, index; /* as in the image */
};

enum { WW_CPU_GUARD_BYTES = 16 << 20, WW_CPU_SHARED_BYTES = 16 << 20 };

/* Map map_bytes of fd; the buffer is `bytes` at offset_bytes in it.  0 where that fails. */
int ww_cpu_buffer_map(
	struct ww_cpu_buffer *b, int fd, size_t map_bytes, size_t offset_bytes, size_t bytes, int writable);
void ww_cpu_buffer_unmap(struct ww_cpu_buffer *b);

/* Describe faults by these buffers (borrowed, n of them) and end through host->die. */
void ww_cpu_fault_install(const struct ww_cpu_buffer *buffers, unsigned n, const struct ww_run_host *host);
/* Each thread needs a stack of its own for the handler. */
void ww_cpu_fault_thread(void);

/* Facts: caches, vector width, name; the copy bandwidth of `threads` threads where it is to be measured. */
void ww_cpu_facts(struct ww_run_facts *f, int threads, int measure);

/* Time every node by this process's own clock.  prepare(self, ...) is called ahead of each run of the plan. */
int ww_cpu_profile(struct ww_exec *e, void *const *addresses, const struct ww_run_profile_ask *ask,
	int (*prepare)(void *self, unsigned flags, struct ww_run_reply *r), void *self, struct ww_run_profile *out,
	struct ww_run_reply *r);
