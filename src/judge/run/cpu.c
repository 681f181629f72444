/* cpu.c - the cpu back end of the runner: memory and the sandbox around exec_cpu.c.
 *
 * The shared object comes as a memfd and is loaded through /proc/self/fd; the judge has refused constructors and
 * writable data, so loading it runs none of its code.  (An indirect function once got past that check.)  So before it
 * is loaded this process gives up its capabilities and, by Landlock, every file.  Right after that, and after the
 * pool's threads have started, the system-call filter closes: from then on the process can compute, map memory, wait,
 * and use the descriptors it has.
 *
 * Buffers are memory of the judge's, who poisons them and looks at the bytes beside them (owned.h).  The threads'
 * shared memory is poisoned here before every call; that the state of a native process cannot be controlled further
 * than this (registers, its heap, the C library's data) is why a cpu verdict's guarantees are weaker than those on
 * cuda. */
#include "judge/run/cpu.h"

#include "sandbox/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

struct cpu {
	int threads;
	const struct ww_run_host *host;
	struct ww_exec *exec;
	const struct ww_image *image;
	struct ww_cpu_buffer *buffers; /* image->n_buffers */
	void **addresses;              /* of the buffers, for ww_exec_issue() */
	int ready;
	unsigned poisoned; /* how often */
};

static int cpu_open(void **self, int device, int threads, const struct ww_run_host *host, struct ww_run_reply *r)
{
	struct cpu *x = calloc(1, sizeof(*x));
	(void)device, (void)r;
	if (!x)
		return WW_RUN_BROKEN;
	x->threads = threads;
	x->host = host;
	*self = x;
	return WW_RUN_OK;
}

static int cpu_hello(void *self, unsigned flags, struct ww_run_facts *facts, struct ww_run_reply *r)
{
	struct cpu *x = self;
	(void)r;
	ww_cpu_facts(facts, x->threads, (flags & WW_RUN_MEASURE) != 0);
	return WW_RUN_OK;
}

static int kind_of(int exec_error)
{
	switch (exec_error) {
	case WW_EXEC_OK: return WW_RUN_OK;
	case WW_EXEC_REFUSED: return WW_RUN_REFUSED;
	case WW_EXEC_UNAVAILABLE: return WW_RUN_UNAVAILABLE;
	case WW_EXEC_NOMEM: return WW_RUN_NOMEM;
	default: return WW_RUN_FAULT;
	}
}

static int close_sandbox(struct ww_run_reply *r)
{
	struct ww_err err = WW_ERR_INIT;
	if (ww_sandbox_filter(WW_PROFILE_RUNNER_CPU, &err) == WW_OK)
		return WW_RUN_OK;
	snprintf(r->text, sizeof(r->text), "%.400s", err.msg);
	return WW_RUN_BROKEN;
}

/* Landlock without a rule.  Descriptors that are open, the binary's among them, stay.  The judge samples this process
 * and reads its mappings, so it stays dumpable. */
static int close_files(const struct ww_image *image, struct ww_run_reply *r)
{
	const struct ww_sandbox_opts nothing = { .profile = WW_PROFILE_RUNNER_CPU };
	struct ww_err err = WW_ERR_INIT;
	enum ww_sandbox_level reached;
	ww_exec_open_library(image);
	if (ww_sandbox_isolate(&nothing, &reached, &err) == WW_OK && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0)
		return WW_RUN_OK;
	snprintf(r->text, sizeof(r->text), "%.400s", err.msg);
	return WW_RUN_BROKEN;
}

static void thread_start(void *ctx, int thread)
{
	(void)ctx, (void)thread;
	ww_cpu_fault_thread();
}

/* The symbol map is not needed here: a C function has the name that the plan gives it. */
static int cpu_load(void *self, const struct ww_image *image, int binary_fd, size_t binary_bytes, const char *symbols,
	struct ww_run_reply *r)
{
	struct cpu *x = self;
	char path[64];
	(void)symbols;

	x->image = image;
	x->poisoned = 0;
	x->buffers = calloc(image->n_buffers + 1u, sizeof(*x->buffers));
	x->addresses = calloc(image->n_buffers + 1u, sizeof(*x->addresses));
	if (!x->buffers || !x->addresses)
		return WW_RUN_NOMEM;
	for (uint32_t i = 0; i < image->n_buffers; i++) {
		x->buffers[i].role = ww_image_buffers(image)[i].role;
		x->buffers[i].index = ww_image_buffers(image)[i].index;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", binary_fd);
	int kind = close_files(image, r);
	if (kind != WW_RUN_OK)
		return kind;
	int e = ww_exec_load(&x->exec, image, path, binary_bytes, NULL, 0, x->threads, r->text);
	if (e != WW_EXEC_OK)
		return kind_of(e);
	ww_exec_parallel(x->exec, thread_start, NULL);
	ww_cpu_fault_install(x->buffers, image->n_buffers, x->host);
	return close_sandbox(r);
}

static int cpu_bind(void *self, const struct ww_run_bind *b, int fd, struct ww_run_reply *r)
{
	struct cpu *x = self;
	struct ww_cpu_buffer *to = &x->buffers[b->buf];
	if (to->reserve || !ww_cpu_buffer_map(to, fd, b->map_bytes, b->offset_bytes, b->bytes, (int)b->writable)) {
		snprintf(r->text, sizeof(r->text), "cannot map buffer %u (%llu bytes)", b->buf, (unsigned long long)b->bytes);
		return WW_RUN_BROKEN;
	}
	return WW_RUN_OK;
}

static int cpu_ready(void *self, struct ww_run_reply *r)
{
	struct cpu *x = self;
	for (uint32_t i = 0; i < x->image->n_buffers; i++) {
		if (!x->buffers[i].reserve) {
			snprintf(r->text, sizeof(r->text), "buffer %u was not bound", i);
			return WW_RUN_BROKEN;
		}
		x->addresses[i] = x->buffers[i].data;
	}
	x->ready = 1;
	return WW_RUN_OK;
}

static void poison_shared(void *ctx, int thread)
{
	struct cpu *x = ctx;
	size_t n;
	void *shared = ww_exec_shared(x->exec, thread, &n);
	if (shared)
		memset(shared, ww_run_poison(x->poisoned), n);
}

static int cpu_prepare(void *self, unsigned flags, struct ww_run_reply *r)
{
	struct cpu *x = self;
	(void)r;
	if ((flags & WW_RUN_POISON) && x->ready) {
		ww_exec_parallel(x->exec, poison_shared, x);
		x->poisoned++;
	}
	return WW_RUN_OK;
}

static int cpu_go(void *self, const struct ww_run_part *part, struct ww_run_reply *r)
{
	struct cpu *x = self;
	return x->ready ? kind_of(ww_exec_issue_part(x->exec, x->addresses, part->from, part->to, NULL, r->text))
					: WW_RUN_BROKEN;
}

static int cpu_profile(
	void *self, const struct ww_run_profile_ask *ask, struct ww_run_profile *out, struct ww_run_reply *r)
{
	struct cpu *x = self;
	return x->ready ? ww_cpu_profile(x->exec, x->addresses, ask, cpu_prepare, x, out, r) : WW_RUN_BROKEN;
}

static void cpu_unload(void *self)
{
	struct cpu *x = self;
	ww_exec_free(x->exec);
	for (uint32_t i = 0; x->buffers && i < x->image->n_buffers; i++)
		ww_cpu_buffer_unmap(&x->buffers[i]);
	free(x->buffers);
	free(x->addresses);
	x->exec = NULL;
	x->buffers = NULL;
	x->addresses = NULL;
	x->image = NULL;
	x->ready = 0;
}

static void cpu_close(void *self) { free(self); }

const struct ww_run_backend *ww_run_cpu_backend(void)
{
	static const struct ww_run_backend be = { WW_RUN_ABI, cpu_open, cpu_hello, cpu_load, cpu_bind, cpu_ready,
		cpu_prepare, cpu_go, NULL, NULL, cpu_profile, cpu_unload, cpu_close };
	return &be;
}
