/* nvrtc.c - kernels.cu to a cubin, inside a compile worker.
 *
 * NVRTC is loaded at run time, so the program builds and starts without it; the handful of functions used here are
 * declared below by hand (their ABI is stable since CUDA 11.8, precompiled headers since 12.8).  Headers of half types
 * cost most of a small compilation, so the zygote compiles them once into a precompiled header; jobs are copies of it
 * with the same addresses, which is what NVRTC's format needs.  Macros of the plan must not change the command line
 * (the precompiled header would no longer fit), so they are #define lines between the headers and the solution.
 */
#include "judge/compile/compile_wire.h"

#include "base/fs.h"
#include "host/cudalibs.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct _nvrtcProgram *nvrtcProgram; /* NVIDIA's name */
static struct {
	int (*Version)(int *major, int *minor);
	int (*CreateProgram)(nvrtcProgram *p, const char *src, const char *name, int n, const char *const *headers,
		const char *const *names);
	int (*DestroyProgram)(nvrtcProgram *p);
	int (*CompileProgram)(nvrtcProgram p, int n, const char *const *options);
	int (*AddNameExpression)(nvrtcProgram p, const char *name);
	int (*GetLoweredName)(nvrtcProgram p, const char *name, const char **lowered);
	int (*GetCUBINSize)(nvrtcProgram p, size_t *n);
	int (*GetCUBIN)(nvrtcProgram p, char *out);
	int (*GetProgramLogSize)(nvrtcProgram p, size_t *n);
	int (*GetProgramLog)(nvrtcProgram p, char *out);
	const char *(*GetErrorString)(int r);
} nv;

const char *const ww_nvrtc_flags[] = { "--std=c++17", NULL };

enum { MAX_OPTIONS = 16 };
static struct {
	char arch[64], cuda[PATH_MAX], cookbook[PATH_MAX], inc_cuda[PATH_MAX + 2], inc_cookbook[PATH_MAX + 2];
	char pch[PATH_MAX], pch_dir[PATH_MAX + 16];
	int has_pch;
} g;

static const char headers[] = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#pragma nv_hdrstop\n";

static enum ww_rc bind_functions(void *lib, struct ww_err *err)
{
	static const struct {
		const char *name;
		void *slot;
	} table[] = { { "nvrtcVersion", &nv.Version }, { "nvrtcCreateProgram", &nv.CreateProgram },
		{ "nvrtcDestroyProgram", &nv.DestroyProgram }, { "nvrtcCompileProgram", &nv.CompileProgram },
		{ "nvrtcAddNameExpression", &nv.AddNameExpression }, { "nvrtcGetLoweredName", &nv.GetLoweredName },
		{ "nvrtcGetCUBINSize", &nv.GetCUBINSize }, { "nvrtcGetCUBIN", &nv.GetCUBIN },
		{ "nvrtcGetProgramLogSize", &nv.GetProgramLogSize }, { "nvrtcGetProgramLog", &nv.GetProgramLog },
		{ "nvrtcGetErrorString", &nv.GetErrorString } };
	for (size_t i = 0; i < WW_ARRAY_LEN(table); i++) {
		void *f = dlsym(lib, table[i].name);
		if (!f)
			return ww_err_set(err, WW_ERR_MISSING, "this NVRTC has no %s; it is too old", table[i].name);
		memcpy(table[i].slot, &f, sizeof(f));
	}
	return WW_OK;
}

/* NVRTC opens its builtins when it compiles; held open here, they are found without a file. */
static void hold_builtins(const char *lib)
{
	char path[PATH_MAX + 64];
	int major = 0, minor = 0;
	nv.Version(&major, &minor);
	snprintf(path, sizeof(path), "%.*s/libnvrtc-builtins.so.%d.%d", (int)(strrchr(lib, '/') - lib), lib, major, minor);
	(void)dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static int options(const char **o, int pch)
{
	int n = 0;
	o[n++] = g.arch;
	for (const char *const *f = ww_nvrtc_flags; *f; f++)
		o[n++] = *f;
	o[n++] = g.inc_cuda;
	o[n++] = g.inc_cookbook;
	if (pch) {
		o[n++] = "--pch";
		o[n++] = g.pch_dir;
		o[n++] = "--pch-messages=false";
		o[n++] = "--diag-suppress=20283"; /* that text after the headers is not precompiled */
	}
	return n;
}

static void take_log(nvrtcProgram p, struct ww_str *log)
{
	size_t n = 0;
	if (nv.GetProgramLogSize(p, &n) || n <= 1)
		return;
	char *text = malloc(n);
	if (text && !nv.GetProgramLog(p, text))
		ww_str_add(log, text, strnlen(text, n));
	free(text);
}

static int take_symbols(nvrtcProgram p, struct ww_compile_job *j)
{
	const char *name = j->names;
	for (int i = 0; i < j->n_kernels; i++, name += strlen(name) + 1) {
		const char *lowered = NULL;
		if (nv.GetLoweredName(p, name, &lowered) || !lowered) {
			ww_str_addf(&j->log, "kernels.cu: error: no kernel \"%s\"\n", name);
			return 0;
		}
		ww_str_add(&j->symbols, lowered, strlen(lowered) + 1);
	}
	return 1;
}

static int take_cubin(nvrtcProgram p, struct ww_compile_job *j)
{
	size_t n = 0;
	if (nv.GetCUBINSize(p, &n) || !n || !ww_str_reserve(&j->binary, n) || nv.GetCUBIN(p, j->binary.p + j->binary.len))
		return 0;
	j->binary.len += n;
	return 1;
}

static enum ww_compile_result compile(const char *text, struct ww_compile_job *j)
{
	enum ww_compile_result result = WW_COMPILE_FAILED;
	const char *o[MAX_OPTIONS];
	nvrtcProgram p = NULL;
	if (nv.CreateProgram(&p, text, "kernels.cu", 0, NULL, NULL))
		return WW_COMPILE_CRASHED;
	const char *name = j->names;
	for (int i = 0; i < j->n_kernels; i++, name += strlen(name) + 1)
		if (nv.AddNameExpression(p, name)) {
			ww_str_addf(&j->log, "kernels.cu: error: \"%s\" is not a kernel name\n", name);
			goto out;
		}
	int r = nv.CompileProgram(p, options(o, g.has_pch), o);
	take_log(p, &j->log);
	if (r && !j->log.len)
		ww_str_addf(&j->log, "kernels.cu: error: %s\n", nv.GetErrorString(r));
	if (r || !take_symbols(p, j))
		goto out;
	result = take_cubin(p, j) ? WW_COMPILE_OK : WW_COMPILE_LIMIT;
out:
	nv.DestroyProgram(&p);
	return result;
}

/* Make the precompiled header, and try the whole compiler. */
static enum ww_rc warm_up(struct ww_err *err)
{
	char text[256];
	struct ww_compile_job j = { .names = "ww_warm_up",
		.n_kernels = 1,
		.symbols = WW_STR_INIT(4096),
		.log = WW_STR_INIT(4096),
		.binary = WW_STR_INIT(1 << 20) };
	enum ww_rc rc = WW_OK;
	snprintf(
		text, sizeof(text), "%sextern \"C\" __global__ void ww_warm_up(float *y) { y[threadIdx.x] = 1; }\n", headers);
	if (compile(text, &j) != WW_COMPILE_OK)
		rc = ww_err_set(err, WW_ERR_MISSING, "NVRTC cannot compile for %s: %.300s", g.arch, j.log.p);
	ww_str_release(&j.symbols);
	ww_str_release(&j.log);
	ww_str_release(&j.binary);
	return rc;
}

static enum ww_rc load(int cc, const char *dir, struct ww_str *hello, struct ww_err *err)
{
	char lib[PATH_MAX];
	void *handle;
	int major = 0, minor = 0;
	WW_CHECK(ww_cudalib_find(ww_cudalib_nvrtc, lib, err));
	WW_CHECK(ww_cudalib_open(ww_cudalib_nvrtc, &handle, err));
	WW_CHECK(bind_functions(handle, err));
	hold_builtins(lib);
	WW_CHECK(ww_cuda_include_dir(g.cuda, err));
	WW_CHECK(ww_fs_resource("skills/cuda/include", g.cookbook, err));
	nv.Version(&major, &minor);
	snprintf(g.arch, sizeof(g.arch), "--gpu-architecture=sm_%d%s", cc, cc >= 90 ? "a" : "");
	snprintf(g.inc_cuda, sizeof(g.inc_cuda), "-I%s", g.cuda);
	snprintf(g.inc_cookbook, sizeof(g.inc_cookbook), "-I%s", g.cookbook);
	if (dir) {
		snprintf(g.pch, sizeof(g.pch), "%s", dir);
		snprintf(g.pch_dir, sizeof(g.pch_dir), "--pch-dir=%s", dir);
	}
	g.has_pch = dir && (major > 12 || (major == 12 && minor >= 8));
	WW_CHECK(warm_up(err));
	ww_str_addf(hello, "nvrtc %d.%d %s", major, minor, g.arch + strlen("--gpu-architecture="));
	for (const char *const *f = ww_nvrtc_flags; *f; f++)
		ww_str_addf(hello, " %s", *f);
	return WW_OK;
}

static int binds(struct ww_sandbox_bind *out, int max)
{
	WW_BUG(max < 3);
	out[0] = (struct ww_sandbox_bind){ g.cuda, WW_BIND_READ };
	out[1] = (struct ww_sandbox_bind){ g.cookbook, WW_BIND_READ };
	out[2] = (struct ww_sandbox_bind){ g.pch, WW_BIND_READ };
	return g.has_pch ? 3 : 2;
}

/* NVRTC maps a precompiled header where it was made, and cannot where that place is taken.  It reports that and fails;
 * this job then compiles without the precompiled header. */
static int header_did_not_fit(const struct ww_compile_job *j, enum ww_compile_result r)
{
	return r == WW_COMPILE_FAILED && g.has_pch &&
		(strstr(j->log.p, "unable to obtain mapped memory") || strstr(j->log.p, "PCH heap"));
}

static enum ww_compile_result run(struct ww_compile_job *j)
{
	struct ww_str text = WW_STR_INIT(8 << 20);
	ww_str_adds(&text, headers);
	ww_str_add(&text, j->macros, j->macros_bytes);
	ww_str_adds(&text, "#line 1 \"kernels.cu\"\n");
	ww_str_add(&text, j->source, j->source_bytes);
	if (text.cut)
		return WW_COMPILE_LIMIT;
	enum ww_compile_result r = compile(text.p, j);
	if (header_did_not_fit(j, r)) {
		g.has_pch = 0;
		ww_str_reset(&j->log);
		ww_str_reset(&j->symbols);
		ww_str_reset(&j->binary);
		r = compile(text.p, j);
	}
	return r;
}

const struct ww_compile_backend ww_compile_nvrtc = { load, binds, run };
