/* compiler_worker.c - `warpwright __compiler DIR TARGET CC MEMORY SECONDS`: the zygote whose jobs run one compilation
 * each.
 *
 * A compiler that has used its processor time is ended by the kernel: NVRTC with its job, cc alone, and its job says so
 * (cc.c). */
#include "judge/compile/compile.h"

#include "base/fs.h"
#include "judge/compile/compile_wire.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BINDS = 32 };

struct worker {
	const struct ww_compile_backend *backend;
	const char *dir;                   /* DIR */
	char own[PATH_MAX], tmp[PATH_MAX]; /* what the back end keeps, what its jobs get */
	int is_cuda, cc;
	struct ww_sandbox_limits limits;
};

/* Where the back end may keep files that its jobs only read: a tmpfs of our own, else a directory beside those of the
 * jobs. */
static enum ww_rc make_dirs(struct worker *w, struct ww_err *err)
{
	const char *private_dir = ww_sandbox_private_dir();
	snprintf(w->tmp, sizeof(w->tmp), "%s", w->dir);
	if (private_dir) {
		snprintf(w->own, sizeof(w->own), "%s", private_dir);
		return WW_OK;
	}
	WW_CHECK(ww_fs_join(w->own, w->dir, "own", err));
	WW_CHECK(ww_fs_join(w->tmp, w->dir, "jobs", err));
	WW_CHECK(ww_fs_mkdirs(w->own, err));
	return ww_fs_mkdirs(w->tmp, err);
}

static enum ww_rc warm(void *ctx, struct ww_str *hello, enum ww_sandbox_level *level, struct ww_err *err)
{
	struct worker *w = ctx;
	struct ww_sandbox_bind binds[MAX_BINDS];
	struct ww_sandbox_opts so = { .profile = WW_PROFILE_COMPILER, .binds = binds, .tmp = w->tmp, .tmp_bytes = 1 << 30 };
	WW_CHECK(make_dirs(w, err));
	setenv("TMPDIR", w->own, 1); /* NVRTC's front end writes a temporary file; a job's directory is its own */
	WW_CHECK(w->backend->load(w->cc, w->own, hello, err));
	setenv("TMPDIR", ".", 1);
	so.n_binds = w->backend->binds(binds, MAX_BINDS);
	WW_CHECK(ww_sandbox_filter_prepare(WW_PROFILE_COMPILER, err));
	return ww_sandbox_isolate(&so, level, err);
}

static enum ww_rc enter(void *ctx, struct ww_err *err)
{
	const struct worker *w = ctx;
	enum ww_rc rc = ww_sandbox_limit(&w->limits, err);
	return rc == WW_OK ? ww_sandbox_filter(WW_PROFILE_COMPILER, err) : rc;
}

static int job(void *ctx, const unsigned char *request, size_t n, struct ww_job_reply *reply)
{
	const struct worker *w = ctx;
	struct ww_compile_request h;
	struct ww_compile_job j = { .symbols = WW_STR_INIT(WW_COMPILE_NAMES_BYTES),
		.log = WW_STR_INIT(WW_COMPILE_RAW_LOG_BYTES),
		.binary = WW_STR_INIT(WW_COMPILE_MAX_BINARY) };
	if (n < sizeof(h))
		abort();
	memcpy(&h, request, sizeof(h));
	if (sizeof(h) + h.macros_bytes + h.names_bytes + h.source_bytes != n)
		abort();
	j.n_kernels = (int)h.n_kernels;
	j.max_cpu_s = (double)w->limits.cpu_s;
	j.macros = (const char *)request + sizeof(h), j.macros_bytes = h.macros_bytes;
	j.names = j.macros + h.macros_bytes, j.names_bytes = h.names_bytes;
	j.source = j.names + h.names_bytes, j.source_bytes = h.source_bytes;
	struct ww_compile_reply r = { .result = w->backend->run(&j) };
	r.symbols_bytes = (uint32_t)j.symbols.len;
	r.log_bytes = (uint32_t)j.log.len;
	r.binary_bytes = r.result == WW_COMPILE_OK ? (uint32_t)j.binary.len : 0;
	ww_job_reply_add(reply, &r, sizeof(r));
	ww_job_reply_add(reply, j.symbols.p, j.symbols.len);
	ww_job_reply_add(reply, j.log.p, j.log.len);
	ww_job_reply_add(reply, j.binary.p, r.binary_bytes);
	return 0;
}

int ww_compiler_main(int argc, char **argv)
{
	static struct worker w;
	if (argc < 5)
		return 2;
	w.dir = argv[0];
	w.is_cuda = !strcmp(argv[1], "cuda");
	w.backend = w.is_cuda ? &ww_compile_nvrtc : &ww_compile_cc;
	w.cc = atoi(argv[2]);
	w.limits = (struct ww_sandbox_limits){
		.address_space_bytes = atoll(argv[3]), .file_bytes = WW_COMPILE_MAX_BINARY, .cpu_s = atoll(argv[4])
	};
	struct ww_zygote_worker z = { .warm = warm, .enter = enter, .job = job, .ctx = &w, .tmp = w.tmp };
	return ww_zygote_serve(&z);
}
