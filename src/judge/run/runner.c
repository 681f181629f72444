/* runner.c - the runner process: reads requests from its socket and hands them to a back end.
 *
 * The loop knows the order of a run (proto.h) and nothing of devices.  It ends when the judge closes the socket, after
 * a FAULT (the device's state is not to be trusted any more) and on anything that is not the protocol.
 *
 * The cuda back end is a plug-in found beside the binary, or in ../lib/warpwright of an installation, so that the
 * binary starts on machines without a driver.
 *
 * Rights.  On cpu untrusted native code runs in here, and the back end closes the filter itself before it does
 * (cpu.c). On cuda none does, but the driver reads an untrusted cubin and device code can break what it reaches; so
 * once the context stands this process gives up everything that the driver and the libraries do not need any more:
 * programs, sockets, children, every write to a file, every read outside of libraries, /proc, /sys and /dev. */
#include "judge/run/proto.h"

#include "host/cudalibs.h"
#include "base/fs.h"
#include "base/str.h"
#include "sandbox/sandbox.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct runner {
	const struct ww_run_backend *be;
	void *self;
	struct ww_image *image; /* our mapping of the judge's memfd */
	size_t image_bytes;
	char *payload; /* WW_RUN_MAX_PAYLOAD + 2 bytes; the symbol map stays in it while a plan is loaded */
	char *symbols;
	int loaded;
};

/* What a plan or a profile may need of CUDA's libraries.  Their places are looked up before the process is confined:
 * afterwards the directories around them cannot be listed any more. */
static const char *const *const libraries[] = { ww_cudalib_nvrtc, ww_cudalib_cublaslt, ww_cudalib_cudnn,
	ww_cudalib_cupti };
static char library_paths[WW_ARRAY_LEN(libraries)][PATH_MAX]; /* "": not there, or not looked for yet */

static int find_library(const char *const *names, char *out)
{
	struct ww_err err = WW_ERR_INIT;
	for (size_t i = 0; i < WW_ARRAY_LEN(libraries); i++)
		if (library_paths[i][0] && !strcmp(libraries[i][0], names[0])) {
			memcpy(out, library_paths[i], PATH_MAX);
			return 1;
		}
	return ww_cudalib_find(names, out, &err) == WW_OK;
}

static volatile uint32_t answering; /* the operation in progress */

static void die(const struct ww_run_reply *r)
{
	struct ww_err err = WW_ERR_INIT;
	(void)!ww_run_send(WW_RUN_SOCKET_FD, answering, r, sizeof(*r), NULL, 0, &err);
	_exit(70);
}

static const struct ww_run_host host = { find_library, die };

static const struct ww_run_backend *load_plugin(const char *file, struct ww_run_reply *r)
{
	const struct ww_run_backend *(*get)(void) = NULL;
	struct ww_err ignored;
	char path[PATH_MAX];
	if (ww_fs_plugin(file, path, &ignored) != WW_OK) {
		snprintf(r->text, sizeof(r->text), "no %s beside the program: build it where cuda.h is found", file);
		return NULL;
	}
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (h)
		*(void **)&get = dlsym(h, WW_RUN_PLUGIN_SYMBOL);
	if (get && get()->abi == WW_RUN_ABI)
		return get();
	snprintf(
		r->text, sizeof(r->text), "the plug-in %.300s cannot be used: %.100s", path, h ? "another version" : dlerror());
	return NULL;
}

/* The tree that a library was installed with: cuDNN and cuBLASLt open parts of themselves when they are first used. */
static void bind_library_tree(size_t library, char *path, struct ww_sandbox_bind *b)
{
	int found = find_library(libraries[library], path);
	if (found)
		memcpy(library_paths[library], path, PATH_MAX);
	*b = (struct ww_sandbox_bind){ "", WW_BIND_READ }; /* no such path: no right */
	for (int up = 0; found && up < 2; up++) {
		char *slash = strrchr(path, '/');
		if (!slash || slash == path)
			return;
		*slash = 0;
		b->path = path;
	}
}

/* Landlock holds this thread and those that it starts from here; the filter holds every thread. */
static int confine_cuda(struct ww_run_reply *r)
{
	static const char *const system_dirs[] = { "/usr", "/lib", "/lib64", "/etc", "/opt", "/proc", "/sys" };
	struct ww_sandbox_bind binds[WW_ARRAY_LEN(system_dirs) + WW_ARRAY_LEN(libraries) + 2];
	char paths[WW_ARRAY_LEN(libraries)][PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	enum ww_sandbox_level reached;
	int n = 0;

	for (size_t i = 0; i < WW_ARRAY_LEN(system_dirs); i++)
		binds[n++] = (struct ww_sandbox_bind){ system_dirs[i], WW_BIND_READ };
	for (size_t i = 0; i < WW_ARRAY_LEN(libraries); i++)
		bind_library_tree(i, paths[i], &binds[n++]);
	binds[n++] = (struct ww_sandbox_bind){ "/dev", WW_BIND_DEVICE };
	binds[n++] = (struct ww_sandbox_bind){ "/proc/self/task", WW_BIND_WRITE }; /* the driver names its threads there */
	const struct ww_sandbox_opts o = { .profile = WW_PROFILE_RUNNER_CUDA, .binds = binds, .n_binds = n };
	if (ww_sandbox_enter(&o, &reached, &err) == WW_OK)
		return WW_RUN_OK;
	snprintf(r->text, sizeof(r->text), "%.400s", err.msg);
	return WW_RUN_BROKEN;
}

/* The reply and what follows it. */
static enum ww_rc reply(
	uint32_t op, const struct ww_run_reply *r, const void *more, size_t more_bytes, struct ww_err *err)
{
	char *both = malloc(sizeof(*r) + more_bytes);
	if (!both)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	memcpy(both, r, sizeof(*r));
	if (more_bytes)
		memcpy(both + sizeof(*r), more, more_bytes);
	enum ww_rc rc = ww_run_send(WW_RUN_SOCKET_FD, op, both, sizeof(*r) + more_bytes, NULL, 0, err);
	free(both);
	return rc;
}

static void unload(struct runner *x)
{
	if (x->loaded)
		x->be->unload(x->self);
	if (x->image)
		munmap(x->image, x->image_bytes);
	free(x->symbols);
	x->symbols = NULL;
	x->image = NULL;
	x->loaded = 0;
}

static int load(struct runner *x, const struct ww_run_head *h, const int *fds, struct ww_run_reply *r)
{
	struct ww_run_load req;
	if (h->bytes < sizeof(req) || h->n_fds != 2 || x->loaded)
		return WW_RUN_BROKEN;
	memcpy(&req, x->payload, sizeof(req));
	void *m = req.image_bytes >= sizeof(struct ww_image) && req.image_bytes <= WW_IMAGE_MAX_BYTES
		? mmap(NULL, req.image_bytes, PROT_READ, MAP_PRIVATE, fds[0], 0)
		: MAP_FAILED;
	size_t n = h->bytes - sizeof(req);
	if (m == MAP_FAILED || !(x->symbols = calloc(1, n + 2)))
		return WW_RUN_BROKEN;
	memcpy(x->symbols, x->payload + sizeof(req), n);
	x->image = m;
	x->image_bytes = req.image_bytes;
	x->loaded = 1;
	return x->be->load(x->self, x->image, fds[1], req.binary_bytes, x->symbols, r);
}

static int bind_buffer(struct runner *x, const struct ww_run_head *h, const int *fds, struct ww_run_reply *r)
{
	struct ww_run_bind b;
	if (h->bytes != sizeof(b) || h->n_fds != 1 || !x->loaded)
		return WW_RUN_BROKEN;
	memcpy(&b, x->payload, sizeof(b));
	if (b.buf >= x->image->n_buffers || b.offset_bytes > b.map_bytes || b.bytes > b.map_bytes - b.offset_bytes)
		return WW_RUN_BROKEN;
	return x->be->bind(x->self, &b, fds[0], r);
}

static unsigned flags_of(const struct runner *x, const struct ww_run_head *h)
{
	struct ww_run_flags f = { 0, 0 };
	if (h->bytes == sizeof(f))
		memcpy(&f, x->payload, sizeof(f));
	return f.flags;
}

/* What every row holds before the back end fills it in. */
static void profile_init(struct ww_run_profile *p, uint32_t n_nodes)
{
	memset(p, 0, sizeof(*p));
	p->n_nodes = n_nodes;
	p->plan_us = p->clock_us = NAN;
	for (uint32_t i = 0; i < n_nodes; i++) {
		struct ww_run_profile_node *n = &p->nodes[i];
		n->us = n->alone_us = n->busy_threads = NAN;
		n->registers = n->local_bytes = n->static_shared_bytes = n->blocks_per_sm = -1;
		for (int c = 0; c < WW_COUNTER_COUNT; c++)
			n->counter[c] = NAN;
	}
}

static int profile(
	struct runner *x, const struct ww_run_head *h, struct ww_run_profile **out, size_t *bytes, struct ww_run_reply *r)
{
	struct ww_run_profile_ask ask;
	if (h->bytes != sizeof(ask) || !x->loaded)
		return WW_RUN_BROKEN;
	memcpy(&ask, x->payload, sizeof(ask));
	if (ask.repeats < 1 || ask.repeats > WW_RUN_PROFILE_MAX_REPEATS || ask.flush_bytes > WW_RUN_PROFILE_MAX_FLUSH)
		return WW_RUN_BROKEN;
	*bytes = sizeof(**out) + x->image->n_nodes * sizeof((*out)->nodes[0]);
	*out = malloc(*bytes);
	if (!*out)
		return WW_RUN_NOMEM;
	profile_init(*out, x->image->n_nodes);
	return x->be->profile(x->self, &ask, *out, r);
}

static int repeat(struct runner *x, const struct ww_run_head *h, struct ww_run_reply *r)
{
	struct ww_run_repeat q;
	if (h->bytes != sizeof(q) || !x->loaded || !x->be->repeat)
		return WW_RUN_BROKEN;
	memcpy(&q, x->payload, sizeof(q));
	return x->be->repeat(x->self, &q, r);
}

static int go(struct runner *x, const struct ww_run_head *h, struct ww_run_reply *r)
{
	struct ww_run_go q;
	if (h->bytes != sizeof(q) || !x->loaded)
		return WW_RUN_BROKEN;
	memcpy(&q, x->payload, sizeof(q));
	if (q.part.from > q.part.to || q.part.to > x->image->n_nodes)
		return WW_RUN_BROKEN;
	int kind = q.flags ? x->be->prepare(x->self, q.flags, r) : WW_RUN_OK;
	if (kind == WW_RUN_OK)
		kind = x->be->go(x->self, &q.part, r);
	if (kind == WW_RUN_OK && (q.flags & WW_RUN_GUARDS))
		kind = x->be->guards ? x->be->guards(x->self, r) : WW_RUN_BROKEN;
	return kind;
}

/* One request.  Returns 0 when the loop shall end. */
static int serve(struct runner *x, const struct ww_run_head *h, const int *fds)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_run_reply r;
	struct ww_run_facts facts;
	struct ww_run_profile *rows = NULL;
	const void *more = NULL;
	size_t more_bytes = 0;
	int kind = WW_RUN_OK;

	memset(&r, 0, sizeof(r));
	memset(&facts, 0, sizeof(facts));
	answering = h->op;
	switch (h->op) {
	case WW_RUN_HELLO:
		kind = x->be->hello(x->self, flags_of(x, h), &facts, &r);
		more = &facts;
		more_bytes = sizeof(facts);
		break;
	case WW_RUN_LOAD: kind = load(x, h, fds, &r); break;
	case WW_RUN_BIND: kind = bind_buffer(x, h, fds, &r); break;
	case WW_RUN_READY: kind = x->loaded ? x->be->ready(x->self, &r) : WW_RUN_BROKEN; break;
	case WW_RUN_PREPARE: kind = x->be->prepare(x->self, flags_of(x, h), &r); break;
	case WW_RUN_GO: kind = go(x, h, &r); break;
	case WW_RUN_REPEAT: kind = repeat(x, h, &r); break;
	case WW_RUN_UNLOAD: unload(x); break;
	case WW_RUN_PROFILE:
		kind = profile(x, h, &rows, &more_bytes, &r);
		more = rows;
		break;
	default: return 0;
	}
	r.kind = (uint32_t)kind;
	int sent = reply(h->op, &r, more, more ? more_bytes : 0, &err) == WW_OK;
	free(rows);
	return sent && kind != WW_RUN_FAULT;
}

static int loop(struct runner *x)
{
	for (;;) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_run_head h;
		int fds[WW_RUN_MAX_FDS];
		enum ww_rc rc = ww_run_recv(WW_RUN_SOCKET_FD, &h, x->payload, WW_RUN_MAX_PAYLOAD, fds, WW_RUN_MAX_FDS, 0, &err);
		if (rc != WW_OK)
			return rc == WW_ERR_WORKER ? 0 : 3;
		int more = serve(x, &h, fds);
		for (uint32_t i = 0; i < h.n_fds; i++)
			close(fds[i]);
		if (!more)
			return 0;
	}
}

int ww_runner_main(int argc, char **argv)
{
	struct runner x = { .be = NULL };
	struct ww_run_reply r;

	memset(&r, 0, sizeof(r));
	if (argc < 3)
		return 2;
	x.payload = malloc(WW_RUN_MAX_PAYLOAD);
	if (!x.payload)
		return 3;
	int is_cpu = !strcmp(argv[0], "cpu");
	x.be = is_cpu ? ww_run_cpu_backend() : load_plugin(WW_RUN_PLUGIN_CUDA, &r);
	int kind = x.be ? x.be->open(&x.self, atoi(argv[1]), atoi(argv[2]), &host, &r) : WW_RUN_BROKEN;
	if (kind == WW_RUN_OK && !is_cpu)
		kind = confine_cuda(&r);
	if (kind != WW_RUN_OK) {
		/* The judge's first request is HELLO whatever happened here; it gets the reason. */
		struct ww_err err = WW_ERR_INIT;
		struct ww_run_head h;
		r.kind = (uint32_t)kind;
		if (ww_run_recv(WW_RUN_SOCKET_FD, &h, x.payload, WW_RUN_MAX_PAYLOAD, NULL, 0, 0, &err) == WW_OK) {
			struct ww_run_facts none;
			memset(&none, 0, sizeof(none));
			(void)!reply(h.op, &r, &none, sizeof(none), &err);
		}
		free(x.payload);
		return 3;
	}
	int code = loop(&x);
	unload(&x);
	x.be->close(x.self);
	free(x.payload);
	return code;
}
