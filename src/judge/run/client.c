/* client.c - starts runners and speaks proto.h with them.
 *
 * The judge trusts nothing in a reply but the fact that a frame arrived.  A runner that does not answer in time is
 * killed; one that died is reaped and its end put into words.
 *
 * On the cpu target the process that answers holds untrusted native code, which may have taken over the protocol, left
 * threads behind or kept memory.  So from the first GO on a cpu runner runs only while it answers a request; otherwise
 * it is stopped (SIGSTOP, waited for).  Inputs that a caller writes after PREPARE and before GO, as timing.c does,
 * cannot have been read when the clock starts.  The clock starts before the process continues and stops at the answer.
 * The processor time that the process uses until /proc says that every thread sleeps is added, and so is what each
 * thread computes until it is stopped, beyond STOP_NS, the cost of stopping.  So a kernel that answers early and works
 * on, or sleeps while it is watched, pays for each of its threads, or is stopped with its output half written.
 * (Continuing costs about 10 us, falling asleep 5; baselines are timed the same way, without these two.) Rejected: let
 * the clock run until every thread sleeps.  The judge, woken by the answer, takes the processor of the thread that sent
 * it, and that thread then falls asleep only at the end of a tick, 4 ms.
 *
 * Memory, on cpu: scratch that is more than MEMORY_SHARE of what the machine has left is refused before it is asked
 * for, since poison touches all of it; once the runner is READY it gets no more than SPARE_BYTES of further address
 * space, so that a kernel can map memory, but not all of it. */
#include "judge/run/client.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "base/target.h"
#include "host/machine.h"
#include "host/timed_call.h"
#include "judge/forms/sampler.h"
#include "judge/run/owned.h"
#include "sandbox/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double MEMORY_SHARE = 0.8;
enum {
	MAX_TOOL_ARGS = 16,
	START_LIMIT_S = 60,
	SMALL_LIMIT_S = 30,
	QUIET_LIMIT_S = 5,
	STOP_NS = 20000,
	PAUSE_NS = 20000,
	LOOK_MS = 50,
	SPARE_BYTES = 256 << 20
};

struct ww_runner {
	struct ww_proc proc;
	enum ww_target target;
	int threads;
	int usable, greeted;
	int stopped;                     /* cpu: by SIGSTOP */
	int strange;                     /* cpu: untrusted code has run in it */
	const volatile int *interrupted; /* may be NULL */
	const struct ww_image *image;    /* of the plan that is loaded; borrowed */
	struct ww_owned owned;           /* cpu: what the plan writes */
	struct shared {
		struct ww_run_bind bind;
		int fd;
	} *shared; /* cpu: scratch that PyTorch's operators read or write, one a buffer of the image; fd -1: others */
	uint32_t n_shared;
	unsigned flags;             /* cuda: what the next GO prepares */
	int guarded, clocked;       /* cuda: the last run was looked at for overruns; its clock is set */
	struct ww_sampler *sampler; /* cpu: samples its calls; NULL: they are not sampled */
	struct ww_seen seen;
	int watched; /* runs under a tool, which ends after it and must not be killed */
};

static const char *const cuda_env[] = { "HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH",
	"WW_CUDA_LIBS", "WW_PYTHON", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH", "WARPWRIGHT_SANDBOX", NULL };
/* Set before OpenBLAS is loaded, which else starts threads of its own. */
static const char *const cpu_env[] = { "LD_LIBRARY_PATH", "OPENBLAS_NUM_THREADS=1", "WARPWRIGHT_SANDBOX", NULL };

/* `tool`: the program that starts the runner in its own way, with tool_args before ours; NULL: none. */
static enum ww_rc start(struct ww_runner **out, enum ww_target target, int device, int threads, int measure,
	const char *tool, const char *const *tool_args, struct ww_err *err)
{
	char dev[16], thr[16], self[PATH_MAX];
	const char *args[MAX_TOOL_ARGS + 8];
	struct ww_proc_opts o = {
		.args = args, .env = target == WW_TARGET_CPU ? cpu_env : cuda_env, .err_mode = WW_STDERR_NULL
	};
	struct ww_run_flags flags = { (measure ? WW_RUN_MEASURE : 0) | (tool ? WW_RUN_EXACT : 0), 0 };
	struct ww_runner *r = calloc(1, sizeof(*r));
	enum ww_rc rc;
	int n = 0;

	if (!r)
		return ww_nomem(err);
	r->proc = (struct ww_proc)WW_PROC_INIT;
	r->target = target;
	r->threads = threads;
	r->watched = tool != NULL;
	o.program = tool;
	o.worker = tool ? NULL : "runner";
	for (; tool && tool_args[n]; n++) {
		WW_BUG(n >= MAX_TOOL_ARGS);
		args[n] = tool_args[n];
	}
	if (tool) {
		WW_TRY(ww_fs_program(self, err));
		args[n++] = self;
		args[n++] = "__runner";
	}
	snprintf(dev, sizeof(dev), "%d", device);
	snprintf(thr, sizeof(thr), "%d", threads);
	args[n++] = ww_target_name(target);
	args[n++] = dev;
	args[n++] = thr;
	args[n] = NULL;
	WW_TRY(ww_proc_spawn(&r->proc, &o, err));
	WW_TRY(ww_run_send_limit(r->proc.fd, SMALL_LIMIT_S * 1000, err));
	WW_TRY(ww_run_send(r->proc.fd, WW_RUN_HELLO, &flags, sizeof(flags), NULL, 0, err));
	r->usable = 1;
	*out = r;
	return WW_OK;
out:
	ww_runner_free(r);
	return ww_err_wrap(err, "cannot start a runner");
}

enum ww_rc ww_runner_new(
	struct ww_runner **out, enum ww_target target, int device, int threads, int measure, struct ww_err *err)
{
	return start(out, target, device, threads, measure, NULL, NULL, err);
}

enum ww_rc ww_runner_new_watched(
	struct ww_runner **out, int device, const char *tool, const char *const *tool_args, struct ww_err *err)
{
	return start(out, WW_TARGET_CUDA, device, 0, 0, tool, tool_args, err);
}

void ww_runner_end(struct ww_runner *r, double limit_s)
{
	struct ww_err ignored = WW_ERR_INIT;
	int status;
	if (!r)
		return;
	ww_fd_close(&r->proc.fd);
	if (r->proc.pid)
		(void)!ww_proc_wait(&r->proc, ww_deadline_ns(limit_s), &status, &ignored);
	ww_runner_free(r);
}

static void drop_shared(struct ww_runner *r)
{
	for (uint32_t i = 0; i < r->n_shared; i++)
		ww_fd_close(&r->shared[i].fd);
	free(r->shared);
	r->shared = NULL;
	r->n_shared = 0;
}

void ww_runner_free(struct ww_runner *r)
{
	if (!r)
		return;
	ww_sampler_close(r->sampler);
	ww_proc_kill(&r->proc);
	ww_owned_release(&r->owned);
	drop_shared(r);
	free(r);
}

pid_t ww_runner_pid(const struct ww_runner *r) { return r->proc.pid; }

int ww_runner_greeted(const struct ww_runner *r) { return r->greeted; }

int ww_runner_usable(const struct ww_runner *r) { return r->usable; }

int ww_runner_clocked(const struct ww_runner *r) { return r->clocked; }

int ww_runner_alive(const struct ww_runner *r) { return r->usable && ww_proc_alive(&r->proc); }

enum ww_rc ww_runner_facts(struct ww_runner *r, struct ww_run_facts *facts, struct ww_err *err)
{
	struct {
		struct ww_run_reply r;
		struct ww_run_facts f;
	} both;
	struct ww_run_head h;
	enum ww_rc rc = ww_run_recv(r->proc.fd, &h, &both, sizeof(both), NULL, 0, ww_deadline_ns(START_LIMIT_S), err);

	if (rc != WW_OK) {
		r->usable = 0;
		return ww_err_wrap(err, "the runner did not start in time");
	}
	if (h.op != WW_RUN_HELLO || h.bytes != sizeof(both) || (both.r.kind == WW_RUN_OK && both.f.abi != WW_RUN_ABI))
		return ww_err_set(
			err, WW_ERR_PROTOCOL, "the runner is of another version than this program; rebuild or reinstall");
	if (both.r.kind != WW_RUN_OK) {
		r->usable = 0;
		both.r.text[sizeof(both.r.text) - 1] = 0;
		return ww_err_set(err, WW_ERR_DEVICE, "%s", both.r.text[0] ? both.r.text : "the runner cannot use the device");
	}
	*facts = both.f;
	r->greeted = 1;
	return WW_OK;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static void no_result(struct ww_run_result *out)
{
	memset(out, 0, sizeof(*out));
	out->device_us = out->stamp_us = out->call_us = NAN;
}

static void clean_text(struct ww_run_result *out, const char *text)
{
	ww_auto_str s = WW_STR_INIT(sizeof(out->text) - 1);
	ww_str_add_bounded(&s, text, strlen(text), 480);
	snprintf(out->text, sizeof(out->text), "%s", s.p);
	for (char *p = out->text; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
}

static void set_died(struct ww_runner *r, struct ww_run_result *out)
{
	ww_auto_str s = WW_STR_INIT(256);
	struct ww_err err = WW_ERR_INIT;
	int status = 0;
	out->kind = WW_RUN_DIED;
	ww_str_adds(&s, "the process that ran the kernels ");
	if (ww_proc_wait(&r->proc, ww_now_ns() + 1000000000ull, &status, &err) == WW_OK)
		ww_proc_status_text(status, &s);
	else
		ww_str_adds(&s, "closed its socket");
	clean_text(out, s.p);
}

/* ---- Stopping (cpu) ---------------------------------------------------------------------------------------------- */

/* Returns when no thread of the process runs any more, or it is gone. */
static void stop(struct ww_runner *r)
{
	siginfo_t si;
	if (r->target != WW_TARGET_CPU || r->stopped || r->proc.pid <= 0 || kill(r->proc.pid, SIGSTOP) < 0)
		return;
	while (waitid(P_PID, (id_t)r->proc.pid, &si, WSTOPPED | WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	r->stopped = 1;
}

static void let_run(struct ww_runner *r)
{
	if (r->stopped && r->proc.pid > 0)
		kill(r->proc.pid, SIGCONT);
	r->stopped = 0;
}

/* Before untrusted code runs, when everything that a plan needs has been mapped. */
static void limit_memory(const struct ww_runner *r)
{
	char path[64];
	unsigned long long pages = 0;
	snprintf(path, sizeof(path), "/proc/%d/statm", (int)r->proc.pid);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%llu", &pages) == 1) {
		rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + SPARE_BYTES;
		struct rlimit l = { bytes, bytes };
		(void)prlimit(r->proc.pid, RLIMIT_AS, &l, NULL); /* where it fails the machine's own limits remain */
	}
	if (f)
		fclose(f);
}

void ww_runner_watch(struct ww_runner *r)
{
	if (r->target == WW_TARGET_CPU && !r->sampler)
		r->sampler = ww_sampler_open_runner(r->proc.pid);
}

void ww_runner_take_seen(struct ww_runner *r, struct ww_seen *seen)
{
	*seen = r->seen;
	memset(&r->seen, 0, sizeof(r->seen));
}

void ww_runner_interruptible(struct ww_runner *r, const volatile int *interrupted) { r->interrupted = interrupted; }

/* Waits until there is something to read or the deadline has passed; receiving finds out which. */
static enum ww_rc await(struct ww_runner *r, uint64_t deadline, struct ww_err *err)
{
	struct pollfd p = { .fd = r->proc.fd, .events = POLLIN };
	while (poll(&p, 1, LOOK_MS) <= 0 && ww_now_ns() < deadline) {
		ww_sampler_take(r->sampler);
		if (r->interrupted && *r->interrupted) {
			r->usable = 0;
			ww_proc_kill(&r->proc);
			return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
		}
	}
	return WW_OK;
}

struct request {
	uint32_t op;
	double limit_s;
	const void *payload;
	size_t bytes;
	const int *fds;
	int n_fds;
	/* Behind a reply that is OK come exactly so many bytes; behind another one these or none. */
	void *more;
	size_t more_bytes;
};

/* A reply as it was received.  The socket is the candidate's, so anything may be in it. */
struct received {
	enum ww_rc rc;
	struct ww_run_head head;
	struct ww_run_reply reply; /* zeros where it is too short */
	size_t more_bytes;
};

/* Send and receive; q->more is filled where it came whole.  An error is one of ours. */
static enum ww_rc exchange(struct ww_runner *r, const struct request *q, struct received *in, struct ww_err *err)
{
	ww_auto_free char *both = malloc(sizeof(in->reply) + q->more_bytes);
	struct ww_err why = WW_ERR_INIT;
	uint64_t start = ww_now_ns(), deadline = start + (uint64_t)(q->limit_s * 1e9);
	memset(in, 0, sizeof(*in));
	if (!both)
		return ww_nomem(err);
	let_run(r);
	in->rc = ww_run_send(r->proc.fd, q->op, q->payload, q->bytes, q->fds, q->n_fds, &why);
	if (in->rc == WW_OK)
		WW_CHECK(await(r, deadline, err));
	if (in->rc == WW_OK)
		in->rc = ww_run_recv(r->proc.fd, &in->head, both, sizeof(in->reply) + q->more_bytes, NULL, 0, deadline, &why);
	ww_log(WW_LOG_DEBUG, "runner: request %u, %.0f us", q->op, ww_seconds_since(start) * 1e6);
	if (in->rc != WW_OK || in->head.bytes < sizeof(in->reply))
		return WW_OK;
	memcpy(&in->reply, both, sizeof(in->reply));
	in->reply.text[sizeof(in->reply.text) - 1] = 0;
	in->more_bytes = in->head.bytes - sizeof(in->reply);
	if (q->more && in->more_bytes == q->more_bytes)
		memcpy(q->more, both + sizeof(in->reply), q->more_bytes);
	return WW_OK;
}

static int keeps_protocol(const struct ww_runner *r, const struct request *q, const struct received *in)
{
	const uint32_t kind = in->reply.kind;
	return in->head.op == q->op && in->head.bytes >= sizeof(in->reply) && kind <= WW_RUN_BROKEN &&
		!(kind == WW_RUN_BROKEN && r->strange) &&
		(in->more_bytes == q->more_bytes || (in->more_bytes == 0 && kind != WW_RUN_OK));
}

static void take_reply(const struct ww_runner *r, const struct ww_run_reply *reply, struct ww_run_result *out)
{
	out->kind = (enum ww_run_kind)reply->kind;
	clean_text(out, reply->text);
	if (r->target != WW_TARGET_CUDA)
		return;
	out->device_us = reply->device_us;
	out->stamp_us = reply->stamp_us;
	out->call_us = reply->call_us;
	out->contradicted = reply->contradicted != 0;
	out->made = (int)reply->made;
	out->differs = reply->differs != 0;
	out->digest = reply->digest;
}

/* One request and its reply.  Every failure of the exchange is charged to the candidate. */
static enum ww_rc call(struct ww_runner *r, const struct request *q, struct ww_run_result *out, struct ww_err *err)
{
	struct received in;
	no_result(out);
	if (!r->usable)
		return ww_err_set(err, WW_ERR_WORKER, "internal error: a runner was used after it had failed");
	WW_CHECK(exchange(r, q, &in, err));
	if (in.rc == WW_ERR_TIMEOUT) {
		out->kind = WW_RUN_LATE;
		snprintf(out->text, sizeof(out->text), "no end after %.1f s", q->limit_s);
	} else if (in.rc != WW_OK) {
		set_died(r, out);
	} else if (!keeps_protocol(r, q, &in)) {
		out->kind = WW_RUN_DIED;
		snprintf(out->text, sizeof(out->text), "the runner broke its protocol");
	} else {
		take_reply(r, &in.reply, out);
	}
	if (r->strange && q->op != WW_RUN_GO)
		stop(r);
	if (out->kind == WW_RUN_FAULT || out->kind == WW_RUN_DIED || out->kind == WW_RUN_LATE ||
		out->kind == WW_RUN_BROKEN) {
		r->usable = 0;
		if (!r->watched && (out->kind != WW_RUN_DIED || r->proc.pid))
			ww_proc_kill(&r->proc);
	}
	if (out->kind == WW_RUN_BROKEN)
		return ww_err_set(err, WW_ERR_DEVICE, "the runner failed: %s", out->text[0] ? out->text : "unknown operation");
	return WW_OK;
}

/* A request that carries a struct and no descriptor. */
static enum ww_rc ask(struct ww_runner *r, uint32_t op, const void *payload, size_t bytes, double limit_s,
	struct ww_run_result *out, struct ww_err *err)
{
	return call(r, &(struct request){ .op = op, .limit_s = limit_s, .payload = payload, .bytes = bytes }, out, err);
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* cpu: 0 and the reason in *out where the plan's scratch does not fit beside everything else. */
static int scratch_fits(const struct ww_runner *r, const struct ww_image *m, struct ww_run_result *out)
{
	double scratch = 0;
	uint64_t available; /* by the kernel's estimate; without one, no limit */
	(void)ww_host_memory_bytes(&available);
	double left = available ? (double)available : INFINITY;
	for (uint32_t i = 0; i < m->n_buffers; i++)
		if (ww_image_buffers(m)[i].role == WW_BUF_SCRATCH)
			scratch += (double)ww_image_buffers(m)[i].bytes;
	if (r->target != WW_TARGET_CPU || scratch <= MEMORY_SHARE * left)
		return 1;
	no_result(out);
	out->kind = WW_RUN_NOMEM;
	snprintf(out->text, sizeof(out->text), "%.0f MiB of scratch, the machine has %.0f MiB left", scratch / 1048576,
		left / 1048576);
	return 0;
}

enum ww_rc ww_runner_load(struct ww_runner *r, const struct ww_image *image, const void *binary, size_t binary_bytes,
	const struct ww_exec_kernel *kernels, int n_kernels, double limit_s, struct ww_run_result *out, struct ww_err *err)
{
	r->image = image;
	if (!scratch_fits(r, image, out))
		return WW_OK;
	struct ww_run_load load = { image->total_bytes, binary_bytes };
	ww_auto_str payload = WW_STR_INIT(WW_RUN_MAX_PAYLOAD);
	int fds[2] = { ww_fd_memfd("plan", image, image->total_bytes), ww_fd_memfd("kernels", binary, binary_bytes) };
	enum ww_rc rc;

	ww_str_add(&payload, &load, sizeof(load));
	for (int i = 0; i < n_kernels; i++) {
		ww_str_add(&payload, kernels[i].kernel, strlen(kernels[i].kernel) + 1);
		ww_str_add(&payload, kernels[i].symbol, strlen(kernels[i].symbol) + 1);
	}
	if (fds[0] < 0 || fds[1] < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "memfd");
	else if (payload.cut)
		rc = ww_err_set(err, WW_ERR_LIMIT,
			"the names of the plan's kernels take more than %d bytes together; shorten them", WW_RUN_MAX_PAYLOAD);
	else
		rc = call(r,
			&(struct request){ .op = WW_RUN_LOAD,
				.limit_s = limit_s,
				.payload = payload.p,
				.bytes = payload.len,
				.fds = fds,
				.n_fds = 2 },
			out, err);
	ww_fd_close(&fds[0]);
	ww_fd_close(&fds[1]);
	return rc;
}

/* cpu: what is bound to be read is handed over as a descriptor that cannot be mapped for writing; what is written is
 * mapped here too. */
enum ww_rc ww_runner_bind(
	struct ww_runner *r, const struct ww_run_bind *b, int fd, struct ww_run_result *out, struct ww_err *err)
{
	char path[64];
	int own = -1;
	if (r->target == WW_TARGET_CPU && !b->writable) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		own = open(path, O_RDONLY | O_CLOEXEC);
		if (own < 0)
			return ww_err_errno(err, WW_ERR_SYSTEM, "cannot open a shared buffer read-only");
		fd = own;
	} else if (r->target == WW_TARGET_CPU) {
		WW_BUG(b->buf >= r->image->n_buffers);
		const struct ww_image_buffer *m = &ww_image_buffers(r->image)[b->buf];
		WW_CHECK(ww_owned_map(&r->owned, b, fd, m->role, m->index, err));
	}
	const struct request q = {
		.op = WW_RUN_BIND, .limit_s = SMALL_LIMIT_S, .payload = b, .bytes = sizeof(*b), .fds = &fd, .n_fds = 1
	};
	enum ww_rc rc = call(r, &q, out, err);
	ww_fd_close(&own);
	return rc;
}

static int is_shared(const struct ww_image *m, uint32_t buf)
{
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const struct ww_image_node *n = &ww_image_nodes(m)[i];
		for (uint32_t k = 0; n->kind == WW_NODE_PYTORCH && k < n->pytorch.n_args; k++)
			if ((uint32_t)ww_image_args(m)[n->pytorch.first_arg + k].buf == buf)
				return 1;
	}
	return 0;
}

int ww_runner_shared_scratch(const struct ww_runner *r, uint32_t buf, struct ww_run_bind *where)
{
	if (buf >= r->n_shared || r->shared[buf].fd < 0)
		return -1;
	*where = r->shared[buf].bind;
	return r->shared[buf].fd;
}

/* cpu: scratch is memory of ours, bound like outputs. */
static enum ww_rc bind_scratch(struct ww_runner *r, struct ww_run_result *out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	out->kind = WW_RUN_OK;
	drop_shared(r);
	if (!(r->shared = calloc(r->image->n_buffers + 1u, sizeof(*r->shared))))
		return ww_nomem(err);
	for (; r->n_shared < r->image->n_buffers; r->n_shared++)
		r->shared[r->n_shared].fd = -1;
	for (uint32_t i = 0; i < r->image->n_buffers && rc == WW_OK && out->kind == WW_RUN_OK; i++) {
		const struct ww_image_buffer *m = &ww_image_buffers(r->image)[i];
		struct ww_run_bind b = { .buf = i };
		int fd = -1;
		if (m->role != WW_BUF_SCRATCH)
			continue;
		rc = ww_owned_scratch(m->bytes, &b, &fd, err);
		if (rc == WW_OK)
			rc = ww_runner_bind(r, &b, fd, out, err);
		if (rc == WW_OK && is_shared(r->image, i)) {
			r->shared[i] = (struct shared){ b, fd };
			fd = -1;
		}
		ww_fd_close(&fd);
	}
	return rc;
}

enum ww_rc ww_runner_ready(struct ww_runner *r, double limit_s, struct ww_run_result *out, struct ww_err *err)
{
	int cpu = r->target == WW_TARGET_CPU;
	enum ww_rc rc = cpu ? bind_scratch(r, out, err) : WW_OK;
	if (rc == WW_OK && (!cpu || out->kind == WW_RUN_OK))
		rc = ask(r, WW_RUN_READY, NULL, 0, limit_s, out, err);
	if (rc == WW_OK && out->kind == WW_RUN_OK && cpu)
		limit_memory(r);
	r->clocked |= rc == WW_OK && out->kind == WW_RUN_OK;
	return rc;
}

/* cpu: after the answer, when the runner is stopped or has not run untrusted code yet. */
enum ww_rc ww_runner_prepare(struct ww_runner *r, unsigned flags, struct ww_run_result *out, struct ww_err *err)
{
	struct ww_run_flags f = { flags, 0 };
	no_result(out);
	r->flags = flags;
	if (r->target == WW_TARGET_CUDA)
		return WW_OK;
	enum ww_rc rc = ask(r, WW_RUN_PREPARE, &f, sizeof(f), SMALL_LIMIT_S, out, err);
	if (rc == WW_OK && out->kind == WW_RUN_OK && (flags & WW_RUN_POISON))
		ww_owned_poison(&r->owned);
	return rc;
}

void ww_runner_poison(struct ww_runner *r) { ww_owned_poison(&r->owned); }

/* A cpu call has been answered: wait until every thread sleeps, and stop the process there.  A thread needs a processor
 * to fall asleep, so we sleep between looks; what the threads compute meanwhile is known from their processor time and
 * added. used_before: processor time of the process at the start. */
static void end_call(struct ww_runner *r, struct ww_timed_call *called, uint64_t start, uint64_t used_before,
	double limit_s, struct ww_run_result *out)
{
	static const struct timespec pause = { 0, PAUSE_NS };
	uint64_t answered_ns = ww_now_ns(), used_at_answer = ww_process_used_ns(r->proc.pid);
	out->waited_us = ww_timed_call_end(called);
	while (!ww_threads_asleep(r->proc.pid)) {
		if (ww_now_ns() - start > (uint64_t)((limit_s + QUIET_LIMIT_S) * 1e9)) {
			out->kind = WW_RUN_LATE;
			snprintf(out->text, sizeof(out->text), "threads went on after the end of the call");
			r->usable = 0;
			ww_proc_kill(&r->proc);
			return;
		}
		nanosleep(&pause, NULL);
	}
	uint64_t used_asleep = ww_process_used_ns(r->proc.pid);
	stop(r);
	uint64_t used = ww_process_used_ns(r->proc.pid), more = ww_grown(used_asleep, used);
	out->elapsed_ns = answered_ns - start + ww_grown(used_at_answer, used_asleep) +
		(more > (uint64_t)STOP_NS * (uint64_t)r->threads ? more : 0);
	out->used_ns = ww_grown(used_before, used);
}

enum ww_rc ww_runner_go(struct ww_runner *r, double limit_s, struct ww_run_result *out, struct ww_err *err)
{
	const struct ww_run_part all = { 0, r->image ? r->image->n_nodes : 0 };
	return ww_runner_go_part(r, &all, limit_s, out, err);
}

enum ww_rc ww_runner_go_part(
	struct ww_runner *r, const struct ww_run_part *part, double limit_s, struct ww_run_result *out, struct ww_err *err)
{
	int cpu = r->target == WW_TARGET_CPU;
	const struct ww_run_go q = { cpu ? 0 : r->flags, 0, *part };
	struct ww_seen seen;
	ww_sampler_begin(r->sampler);
	struct ww_timed_call *called = ww_timed_call_begin(cpu ? r->proc.pid : 0);
	uint64_t used = cpu ? ww_process_used_ns(r->proc.pid) : 0, start = ww_now_ns();
	r->strange = cpu;
	enum ww_rc rc = ask(r, WW_RUN_GO, &q, sizeof(q), limit_s, out, err);
	r->guarded = (q.flags & WW_RUN_GUARDS) != 0;
	r->flags = 0;
	if (rc == WW_OK && out->kind == WW_RUN_OK && cpu)
		end_call(r, called, start, used, limit_s, out);
	else
		(void)ww_timed_call_end(called);
	ww_sampler_end(r->sampler, &seen);
	ww_seen_add(&r->seen, &seen);
	return rc;
}

enum ww_rc ww_runner_repeat(
	struct ww_runner *r, const struct ww_run_repeat *q, double limit_s, struct ww_run_result *out, struct ww_err *err)
{
	r->guarded = 1;
	return ask(r, WW_RUN_REPEAT, q, sizeof(*q), q->limit_ms * 1e-3 + limit_s, out, err);
}

void ww_runner_guards(const struct ww_runner *r, struct ww_run_result *out)
{
	no_result(out);
	WW_BUG(r->target == WW_TARGET_CUDA && !r->guarded);
	if (r->target == WW_TARGET_CPU)
		out->kind = ww_owned_intact(&r->owned, out->text, sizeof(out->text)) ? WW_RUN_OK : WW_RUN_OVERRUN;
}

enum ww_rc ww_runner_profile(struct ww_runner *r, const struct ww_run_profile_ask *what, uint32_t n_nodes,
	double limit_s, struct ww_run_profile **rows, struct ww_run_result *out, struct ww_err *err)
{
	size_t bytes = sizeof(**rows) + n_nodes * sizeof((*rows)->nodes[0]);
	*rows = calloc(1, bytes);
	if (!*rows)
		return ww_nomem(err);
	const struct request q = { .op = WW_RUN_PROFILE,
		.limit_s = limit_s,
		.payload = what,
		.bytes = sizeof(*what),
		.more = *rows,
		.more_bytes = bytes };
	enum ww_rc rc = call(r, &q, out, err);
	r->usable = 0; /* profiling libraries are loaded in it: no verdict may use it any more */
	(*rows)->n_nodes = n_nodes;
	(*rows)->counters_why[sizeof((*rows)->counters_why) - 1] = 0;
	return rc;
}

enum ww_rc ww_runner_unload(struct ww_runner *r, struct ww_run_result *out, struct ww_err *err)
{
	ww_owned_release(&r->owned);
	drop_shared(r);
	r->image = NULL;
	return ask(r, WW_RUN_UNLOAD, NULL, 0, SMALL_LIMIT_S, out, err);
}
