/* cpu_host.h - the smallest host of the plan ABI: runs a plan's cpu launches in this process.
 *
 * The lab (cpu_lab.c) and the unit tests of the cpu cookbook need to run recipes and kernels without the judge around
 * them: no sandbox, no guards, no poison, only memory set and copy and launches of functions found by name.  A plan is
 * recorded into arrays of fixed size and replayed by `threads` workers, which take blocks from one atomic counter, so
 * that blocks run in no promised order, as under the judge.  Errors stop the process with a message: this is a bench,
 * not a service.
 *
 * The including file says how kernels are found: void (*host_find(const char *name))(const struct ww_block *, void
 * *const *). */
#ifndef WW_BENCH_CPU_HOST_H
#define WW_BENCH_CPU_HOST_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ww/plan.h>

#ifndef WW_CPU_H
struct ww_block {
	long long x, y, z, nx, ny, nz;
	int thread, threads;
	void *shared;
	long long shared_bytes;
};
#endif

#define HOST_NODES 64
#define HOST_ARGS 64
#define HOST_BUFS 64

typedef void (*host_kernel)(const struct ww_block *, void *const *);
host_kernel host_find(const char *name);

struct host_node {
	host_kernel fn;
	long long gx, gy, gz, shared;
	int args;
	union {
		long long i64;
		int i32;
		float f32;
		double f64;
		void *ptr;
	} value[HOST_ARGS];
	void *arg[HOST_ARGS];
	void *dst;
	const void *src;
	long long bytes;
	int byte; /* fn == NULL: copy, or set where src is NULL */
};

struct ww_plan {
	struct ww_tensor tensor[3][HOST_BUFS]; /* inputs, parameters, outputs */
	int tensors[3];
	void *buf[HOST_BUFS];
	int bufs;
	void *scratch[HOST_BUFS]; /* to be freed */
	int scratches;
	struct ww_device device;
	struct host_node node[HOST_NODES];
	int nodes;
	char text[4096];
	size_t used;
	long long shared;
};

static inline void host_die(const char *what, const char *more)
{
	fprintf(stderr, "cpu_host: %s: %s\n", what, more);
	abort();
}

static inline struct ww_plan *host_new(int threads)
{
	struct ww_plan *p = calloc(1, sizeof(*p));

	if (!p)
		host_die("calloc", "no memory");
	p->device = (struct ww_device){ .target = WW_TARGET_CPU,
		.threads = threads,
		.vector_bytes = 64,
		.shared_per_block_bytes = 64 << 20,
		.l1_bytes = 48 << 10,
		.l2_bytes = 1 << 20,
		.l3_bytes = 32 << 20 };
	return p;
}

/* kind: 0 input, 1 parameter, 2 output. */
static inline void host_tensor(
	struct ww_plan *p, int kind, const char *name, int dtype, int rank, const long long *size, void *data)
{
	struct ww_tensor *t = &p->tensor[kind][p->tensors[kind]++];
	long long step = 1;

	if (p->tensors[kind] > HOST_BUFS || p->bufs == HOST_BUFS)
		host_die("too many tensors", name);
	t->name = name;
	t->dtype = dtype;
	t->rank = rank;
	t->itemsize = dtype == WW_I64 || dtype == WW_F64 ? 8 : 4;
	for (int i = WW_MAX_RANK - 1; i >= 0; i--) {
		t->size[i] = i < rank ? size[i] : 1;
		t->stride[i] = i < rank ? step : 0;
		step *= t->size[i];
	}
	t->numel = step;
	t->bytes = step * t->itemsize;
	t->contiguous = 1;
	t->buf = p->bufs;
	p->buf[p->bufs++] = data;
}

static inline void host_free(struct ww_plan *p)
{
	for (int i = 0; i < p->scratches; i++)
		free(p->scratch[i]);
	free(p);
}

/* ---- The plan ABI ------------------------------------------------------------------------------------------------ */

int ww_input_count(struct ww_plan *p) { return p->tensors[0]; }
int ww_output_count(struct ww_plan *p) { return p->tensors[2]; }
const struct ww_tensor *ww_input(struct ww_plan *p, int i) { return &p->tensor[0][i]; }
const struct ww_tensor *ww_output(struct ww_plan *p, int i) { return &p->tensor[2][i]; }
const struct ww_device *ww_device(struct ww_plan *p) { return &p->device; }
void ww_fail(struct ww_plan *p, const char *why)
{
	(void)p;
	host_die("ww_fail", why);
}

const struct ww_tensor *ww_param(struct ww_plan *p, const char *name)
{
	for (int i = 0; i < p->tensors[1]; i++)
		if (!strcmp(p->tensor[1][i].name, name))
			return &p->tensor[1][i];
	host_die("no parameter", name);
	return NULL;
}

const char *ww_fmt(struct ww_plan *p, const char *format, ...)
{
	char *at = p->text + p->used;
	va_list ap;

	va_start(ap, format);
	p->used += (size_t)vsnprintf(at, sizeof(p->text) - p->used, format, ap) + 1;
	va_end(ap);
	if (p->used > sizeof(p->text))
		host_die("ww_fmt", "too long");
	return at;
}

int ww_scratch(struct ww_plan *p, long long bytes)
{
	void *m = aligned_alloc(256, ((size_t)bytes + 255) / 256 * 256);

	if (!m || p->bufs == HOST_BUFS)
		host_die("ww_scratch", "no memory");
	memset(m, 0xff, (size_t)bytes);
	p->scratch[p->scratches++] = m;
	p->buf[p->bufs] = m;
	return p->bufs++;
}

static struct host_node *host_node(struct ww_plan *p)
{
	if (p->nodes == HOST_NODES)
		host_die("plan", "too many nodes");
	return &p->node[p->nodes++];
}

void ww_launch(struct ww_plan *p, const char *kernel, long long gx, long long gy, long long gz, int bx, int by, int bz)
{
	struct host_node *n = host_node(p);

	(void)bx;
	(void)by;
	(void)bz;
	n->fn = host_find(kernel);
	if (!n->fn)
		host_die("no kernel", kernel);
	n->gx = gx;
	n->gy = gy;
	n->gz = gz;
}

void ww_shared(struct ww_plan *p, long long bytes)
{
	p->node[p->nodes - 1].shared = bytes;
	p->shared = p->shared > bytes ? p->shared : bytes;
}

static inline void *host_arg(struct ww_plan *p)
{
	struct host_node *n = &p->node[p->nodes - 1];

	if (n->args == HOST_ARGS)
		host_die("plan", "too many arguments");
	n->arg[n->args] = &n->value[n->args];
	return n->arg[n->args++];
}
void ww_arg_buf(struct ww_plan *p, int buf, long long off) { *(void **)host_arg(p) = (char *)p->buf[buf] + off; }
void ww_arg_i32(struct ww_plan *p, int v) { *(int *)host_arg(p) = v; }
void ww_arg_i64(struct ww_plan *p, long long v) { *(long long *)host_arg(p) = v; }
void ww_arg_f32(struct ww_plan *p, float v) { *(float *)host_arg(p) = v; }
void ww_arg_f64(struct ww_plan *p, double v) { *(double *)host_arg(p) = v; }

void ww_memset(struct ww_plan *p, int buf, long long off, long long bytes, int byte)
{
	struct host_node *n = host_node(p);

	n->dst = (char *)p->buf[buf] + off;
	n->bytes = bytes;
	n->byte = byte;
}

void ww_copy(struct ww_plan *p, int dst, long long dst_off, int src, long long src_off, long long bytes)
{
	struct host_node *n = host_node(p);

	n->dst = (char *)p->buf[dst] + dst_off;
	n->src = (char *)p->buf[src] + src_off;
	n->bytes = bytes;
}

/* ---- Workers ----------------------------------------------------------------------------------------------------- */

struct host_pool {
	pthread_t thread[64];
	void *shared[64];
	int threads;
	struct ww_plan *plan;
	atomic_llong next[HOST_NODES];
	atomic_llong done[HOST_NODES]; /* grows for ever: `goal` says what a round waits for */
	long long goal[HOST_NODES];
	atomic_int round; /* spinning workers start when it moves; -1 ends them */
	long long shared_bytes;
};

struct host_worker {
	struct host_pool *pool;
	int index;
};

static inline void host_blocks(struct host_pool *pool, int index, struct host_node *n, int at)
{
	struct ww_block b = { 0, 0, 0, n->gx, n->gy, n->gz, index, pool->threads, pool->shared[index], n->shared };
	const long long total = n->gx * n->gy * n->gz;

	for (long long i; (i = atomic_fetch_add(&pool->next[at], 1)) < total;) {
		b.x = i % n->gx;
		b.y = i / n->gx % n->gy;
		b.z = i / (n->gx * n->gy);
		n->fn(&b, n->arg);
	}
	atomic_thread_fence(memory_order_seq_cst); /* an mfence: streaming stores too */
}

static inline void host_work(struct host_pool *pool, int index)
{
	for (int i = 0; i < pool->plan->nodes; i++) {
		struct host_node *n = &pool->plan->node[i];
		const long long goal = pool->goal[i]; /* read before this worker reports: the next round may move it */

		if (n->fn)
			host_blocks(pool, index, n, i);
		else if (index == 0 && n->src)
			memcpy(n->dst, n->src, (size_t)n->bytes);
		else if (index == 0)
			memset(n->dst, n->byte, (size_t)n->bytes);
		atomic_fetch_add(&pool->done[i], 1);
		for (int spin = 0; atomic_load(&pool->done[i]) < goal; spin++)
			if (spin > 20000) /* the others may wait for this processor */
				sched_yield();
	}
}

static inline void *host_thread(void *arg)
{
	struct host_worker w = *(struct host_worker *)arg;
	int seen = 0, now;

	free(arg);
	for (;;) {
		for (int spin = 0; (now = atomic_load(&w.pool->round)) == seen; spin++)
			if (spin > 20000)
				sched_yield();
		if (now < 0)
			return NULL;
		seen = now;
		host_work(w.pool, w.index);
	}
}

static inline struct host_pool *host_pool_new(int threads, long long shared_bytes)
{
	struct host_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		host_die("calloc", "no memory");
	pool->threads = threads;
	pool->shared_bytes = shared_bytes;
	for (int i = 0; i < threads; i++) {
		struct host_worker *w = malloc(sizeof(*w));

		pool->shared[i] = aligned_alloc(64, ((size_t)shared_bytes + 64) / 64 * 64);
		if (!w || !pool->shared[i])
			host_die("malloc", "no memory");
		memset(pool->shared[i], 0xff, (size_t)shared_bytes);
		*w = (struct host_worker){ pool, i };
		if (i == 0)
			free(w);
		else if (pthread_create(&pool->thread[i], NULL, host_thread, w))
			host_die("pthread_create", "failed");
	}
	return pool;
}

static inline void host_run(struct host_pool *pool, struct ww_plan *p)
{
	if (p->shared > pool->shared_bytes)
		host_die("pool", "too little scratch");
	pool->plan = p; /* the others wait for `round` */
	for (int i = 0; i < p->nodes; i++) {
		atomic_store(&pool->next[i], 0);
		pool->goal[i] += pool->threads;
	}
	atomic_fetch_add(&pool->round, 1);
	host_work(pool, 0);
}

static inline void host_pool_free(struct host_pool *pool)
{
	atomic_store(&pool->round, -1);
	for (int i = 0; i < pool->threads; i++) {
		if (i)
			pthread_join(pool->thread[i], NULL);
		free(pool->shared[i]);
	}
	free(pool);
}

#endif
