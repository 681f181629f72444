/* doctor.c - what is installed here, what does not work without the rest, and the command that installs it.
 *
 * Under a second: Python is not started (package versions come from their metadata), and libraries are test-loaded in a
 * child process (host/machine.c).  Each check is independent, so that one broken part does not hide the next.  Exit
 * code 0: at least one target can be used from end to end; 1: none can.
 */
#include "base/fs.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "dev/dev.h"
#include "host/machine.h"
#include "judge/build/build.h"
#include "judge/run/proto.h"
#include "host/cudalibs.h"
#include "judge/forms/sampler.h"
#include "sandbox/cgroup.h"
#include "sandbox/sandbox.h"
#include "task/ref.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARTS = 32 };
enum needs { NEEDS_CPU = 1, NEEDS_CUDA = 2 }; /* which target cannot be used without this part */

struct part {
	const char *name;
	int ok, needs;
	char found[1024], without[160], fix[1024]; /* a command may name two paths */
};
struct report {
	struct part parts[MAX_PARTS];
	int n;
};

static struct part *add(struct report *r, const char *name, int needs, const char *without, const char *fix)
{
	WW_BUG(r->n == MAX_PARTS);
	struct part *p = &r->parts[r->n++];
	*p = (struct part){ .name = name, .needs = needs };
	snprintf(p->without, sizeof(p->without), "%s", without);
	snprintf(p->fix, sizeof(p->fix), "%s", fix);
	return p;
}

#define APT "sudo apt-get install -y "

/* "VERSION (PATH)", the path without "dir/../" in it and quoted for a shell.  The last link is not resolved: a virtual
 * environment is known by the path of its interpreter. */
static void found_at(struct part *p, const char *version, const char *path, const char *note)
{
	char dir[PATH_MAX], real[PATH_MAX], tidy[2 * PATH_MAX];
	ww_auto_str word = WW_STR_INIT(3 * PATH_MAX);
	const char *slash = strrchr(path, '/');
	snprintf(tidy, sizeof(tidy), "%s", path);
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	if (*dir && realpath(dir, real))
		snprintf(tidy, sizeof(tidy), "%s%s", real, slash);
	ww_str_add_shell(&word, tidy);
	snprintf(
		p->found, sizeof(p->found), "%s%s%s%s%s", version, *version ? " (" : "", word.p, note, *version ? ")" : "");
}

/* ---- Compilers and sandbox --------------------------------------------------------------------------------------- */

static void check_program(
	struct report *r, const char *name, const char *program, int needs, const char *without, const char *fix)
{
	char path[PATH_MAX], version[64] = "";
	struct part *p = add(r, name, needs, without, fix);
	p->ok = ww_fs_which(program, path);
	if (p->ok)
		ww_host_program_version(path, version, sizeof(version));
	if (p->ok)
		found_at(p, version, path, "");
	else
		snprintf(p->found, sizeof(p->found), "not found");
}

static void check_builder(struct report *r)
{
	struct ww_builder *b = NULL;
	struct ww_err err = WW_ERR_INIT;
	struct part *p = add(r, "plan builder", NEEDS_CPU | NEEDS_CUDA, "everything: plan.c cannot be compiled",
		APT "libtcc-dev tcc && make");
	p->ok = ww_builder_open(&b, &err) == WW_OK;
	if (p->ok)
		snprintf(p->found, sizeof(p->found), "TinyCC, sandboxed by %s", ww_sandbox_level_name(ww_builder_level(b)));
	else
		snprintf(p->found, sizeof(p->found), "%s", err.msg);
	ww_builder_close(b);
}

/* The setting that forbids user namespaces here: Ubuntu's, Debian's, or the limit that every kernel has. */
static const char *namespace_switch(void)
{
	if (access("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", F_OK) == 0)
		return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
	if (access("/proc/sys/kernel/unprivileged_userns_clone", F_OK) == 0)
		return "sudo sysctl -w kernel.unprivileged_userns_clone=1";
	return "sudo sysctl -w user.max_user_namespaces=15000   (in a container: start it with user namespaces "
		   "allowed)";
}

static void check_sandbox(struct report *r)
{
	enum ww_sandbox_level level = ww_sandbox_probe();
	struct part *p = add(r, "sandbox", 0, "", namespace_switch());
	snprintf(p->without, sizeof(p->without), "%s", ww_sandbox_level_text(level));
	snprintf(p->found, sizeof(p->found), "level %s, memory limits by %s", ww_sandbox_level_name(level),
		ww_cgroup_base() ? "the kernel (cgroup v2)"
						 : "polling alone: no cgroup v2 with a memory limit can be made here");
	p->ok = level == WW_SANDBOX_NAMESPACES;
}

static void check_sampling(struct report *r)
{
	struct part *p = add(r, "sampling", 0,
		"wins of PyTorch modules on the cpu target: the judge cannot see whose code computes",
		"sudo sysctl -w kernel.perf_event_paranoid=2   (in a container: allow perf_event_open)");
	struct ww_sampler *x = ww_sampler_open(getpid(), NULL);
	p->ok = x != NULL;
	snprintf(p->found, sizeof(p->found), p->ok ? "perf_event_open" : "perf_event_open is not allowed");
	ww_sampler_close(x);
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

static void check_package(struct report *r, const char *python, const char *part, const char *package, int needs,
	const char *without, const char *fix)
{
	char version[64] = "";
	struct part *p = add(r, part, needs, without, fix);
	p->ok = *python && ww_host_python_package(python, package, version, sizeof(version), NULL);
	if (p->ok)
		snprintf(p->found, sizeof(p->found), "%s", version);
	else
		snprintf(p->found, sizeof(p->found), "not found in %s", *python ? "this Python" : "any Python");
}

/* `python` gets its path (PATH_MAX bytes), "" where there is none. */
static void check_python(struct report *r, const char *setup, char *python)
{
	const char *named = getenv("WW_PYTHON");
	char version[32] = "";
	struct ww_err err = WW_ERR_INIT;
	struct part *p = add(r, "Python", NEEDS_CPU | NEEDS_CUDA, "everything: tasks are PyTorch modules", setup);
	p->ok = ww_ref_find_python(python, &err) == WW_OK;
	if (p->ok) {
		ww_host_python_version(python, version, sizeof(version));
		found_at(p, version, python, named && *named ? ", by WW_PYTHON" : "; set WW_PYTHON to use another");
	} else {
		*python = 0;
		snprintf(p->found, sizeof(p->found), "%s", err.msg);
	}
	check_package(r, python, "PyTorch", "torch", NEEDS_CPU | NEEDS_CUDA,
		"everything: there is no reference; where another Python has it, set WW_PYTHON to that one", setup);
	check_package(r, python, "numpy", "numpy", 0, "tasks that use it", setup);
	p = add(r, "Python headers", 0, "the torch.compile baseline: it builds extension modules", APT "python3-dev");
	p->ok = *python && ww_host_python_headers(python);
	snprintf(p->found, sizeof(p->found), "%s", p->ok ? "Python.h" : "Python.h not found");
}

/* ---- Libraries and GPUs ------------------------------------------------------------------------------------------ */

/* A library of the system that one feature needs. */
static void check_library(
	struct report *r, const char *name, const char *const *names, const char *without, const char *fix)
{
	struct part *p = add(r, name, 0, without, fix);
	p->ok = ww_host_library(names, p->found, sizeof(p->found));
	if (!p->ok)
		snprintf(p->found, sizeof(p->found), "not found");
}

static void check_openblas(struct report *r)
{
	static const char *const names[] = { "libopenblas.so.0", "libopenblas.so", NULL };
	check_library(r, "OpenBLAS", names, "GEMM library nodes on the cpu target", APT "libopenblas0");
}

static void check_curl(struct report *r)
{
	static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4", NULL };
	check_library(r, "libcurl", names, "policies over HTTP (openai:, anthropic:)", APT "curl");
}

/* A library's version: of the Python package that brought it, or behind ".so." of the file itself; "" unknown. */
static void library_version(const char *python, const char *package, const char *path, char *version, size_t cap)
{
	static const char *const suffixes[] = { "", "_cu13", "_cu12" };
	char name[64], real[PATH_MAX];
	const char *so = realpath(path, real) ? strstr(real, ".so.") : NULL;
	snprintf(version, cap, "%s", so && strchr(so + 4, '.') ? so + 4 : "");
	for (size_t i = 0; strstr(path, "/site-packages/") && !*version && i < WW_ARRAY_LEN(suffixes); i++) {
		snprintf(name, sizeof(name), "%s%s", package, suffixes[i]);
		ww_host_python_package(python, name, version, cap, NULL);
	}
}

static void check_cudalib(struct report *r, const char *name, const char *const *names, const char *python,
	const char *package, int needs, const char *without, const char *fix)
{
	char path[PATH_MAX], version[64];
	struct ww_err err = WW_ERR_INIT;
	struct part *p = add(r, name, needs, without, fix);
	p->ok = ww_cudalib_find(names, path, &err) == WW_OK;
	if (!p->ok) {
		snprintf(p->found, sizeof(p->found), "not found");
		return;
	}
	library_version(python, package, path, version, sizeof(version));
	found_at(p, version, path, "");
}

static void check_plugin(
	struct report *r, const char *name, int needs, const char *without, const char *fix, const char *plugin)
{
	char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	struct part *p = add(r, name, needs, without, fix);
	p->ok = ww_fs_plugin(plugin, path, &err) == WW_OK;
	snprintf(p->found, sizeof(p->found), "%s", p->ok ? plugin : "not built");
}

/* Both plug-ins are of this build (tools/cuda.cmake), not of the machine. */
static void check_plugins(struct report *r, const char *setup)
{
	char path[PATH_MAX], headers[PATH_MAX + 256];
	struct ww_err err = WW_ERR_INIT;
	int checkout = ww_fs_resource("tools/setup", path, &err) == WW_OK;
	const char *nvcc = "take a distribution that was built with nvcc";
	snprintf(headers, sizeof(headers), "%s%s",
		checkout ? setup : "take a distribution that was built with CUDA's headers",
		checkout ? " all   (the headers come with PyTorch, or with a CUDA toolkit)" : "");
	if (!ww_host_nvidia_hardware())
		nvcc = "nothing on this machine: it has no NVIDIA GPU";
	else if (checkout)
		nvcc = "install a CUDA toolkit of 12.8 or later, name it in CUDA_HOME unless it is /usr/local/cuda; make";
	check_plugin(r, "cuda runner", NEEDS_CUDA, "the cuda target: this build has no " WW_RUN_PLUGIN_CUDA, headers,
		WW_RUN_PLUGIN_CUDA);
	check_plugin(r, "cuda engine", 0, "train, model and model:DIR on a GPU: this build has no " WW_DEV_PLUGIN_CUDA,
		nvcc, WW_DEV_PLUGIN_CUDA);
}

/* A driver runs what was compiled by a CUDA of its own major version or an older one. */
static int nvrtc_major(void)
{
	static const char name[] = "libnvrtc.so.";
	char path[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	const char *at = ww_cudalib_find(ww_cudalib_nvrtc, path, &ignored) == WW_OK ? strstr(path, name) : NULL;
	return at ? atoi(at + strlen(name)) : 12;
}

static void check_gpus(struct report *r)
{
	static const char without[] = "the cuda target", nothing[] = "nothing on this machine: it has no NVIDIA GPU";
	char driver[512];
	struct ww_host_gpus g;
	int hardware = ww_host_nvidia_hardware(), needed = nvrtc_major();
	ww_host_gpus(&g);
	ww_host_driver_command(driver, sizeof(driver));
	struct part *p = add(r, "CUDA driver", NEEDS_CUDA, without, hardware || g.cuda_version ? driver : nothing);
	p->ok = g.cuda_version / 1000 >= needed;
	if (g.cuda_version)
		snprintf(p->found, sizeof(p->found), "%s%sCUDA %d.%d", g.driver, *g.driver ? ", " : "", g.cuda_version / 1000,
			g.cuda_version % 1000 / 10);
	else
		snprintf(p->found, sizeof(p->found), "%s", g.why);
	if (g.cuda_version && !p->ok)
		snprintf(p->found + strlen(p->found), sizeof(p->found) - strlen(p->found),
			", too old: PyTorch's libraries are CUDA %d", needed);
	p = add(r, "GPU", NEEDS_CUDA, without,
		!hardware            ? nothing
			: g.cuda_version ? "nvidia-smi   (see what the driver says)"
							 : driver);
	p->ok = g.n > 0;
	if (!p->ok)
		snprintf(p->found, sizeof(p->found), "%s", g.why);
	for (int i = 0; i < g.n && strlen(p->found) < 120; i++)
		snprintf(p->found + strlen(p->found), sizeof(p->found) - strlen(p->found), "%s%d: %.60s, cc %d.%d, %.0f GiB",
			i ? "; " : "", i, g.gpu[i].name, g.gpu[i].cc / 10, g.gpu[i].cc % 10,
			(double)g.gpu[i].memory_bytes / (1 << 30));
}

/* ---- Disk and memory --------------------------------------------------------------------------------------------- */

static void check_room(struct report *r)
{
	char cache[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	uint64_t here = ww_host_free_bytes("."), available, memory = ww_host_memory_bytes(&available);
	const double gib = 1 << 30;
	struct part *p = add(r, "disk", 0, "runs and caches: they may run out of space", "df -h .");
	int have_cache = ww_fs_cache_dir(cache, &err) == WW_OK;
	ww_auto_str where = WW_STR_INIT(3 * PATH_MAX);
	uint64_t there = have_cache ? ww_host_free_bytes(cache) : 0;
	p->ok = here >= (uint64_t)1 << 30 && there >= (uint64_t)1 << 30;
	if (have_cache)
		ww_str_add_shell(&where, cache);
	snprintf(p->found, sizeof(p->found), "%.1f GiB free here, %.1f GiB for the cache (%.800s)", (double)here / gib,
		(double)there / gib, have_cache ? where.p : "no cache directory");
	p = add(r, "memory", 0, "large tasks: the reference worker needs about 4 GiB", "free -h");
	p->ok = available >= (uint64_t)4 << 30;
	snprintf(p->found, sizeof(p->found), "%.1f GiB, %.1f available", (double)memory / gib, (double)available / gib);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static int usable(const struct report *r, int target)
{
	for (int i = 0; i < r->n; i++)
		if ((r->parts[i].needs & target) && !r->parts[i].ok)
			return 0;
	return 1;
}

static void print_text(const struct report *r)
{
	for (int i = 0; i < r->n; i++) {
		const struct part *p = &r->parts[i];
		printf("%s %-16s %s\n", p->ok ? "✓" : "✗", p->name, p->found);
		if (!p->ok)
			printf("    unavailable: %s\n    fix: %s\n", p->without, p->fix);
	}
	printf("\ntargets: cpu %s, cuda %s\n", usable(r, NEEDS_CPU) ? "✓" : "✗", usable(r, NEEDS_CUDA) ? "✓" : "✗");
}

static void print_json(const struct report *r)
{
	ww_auto_str text = WW_STR_INIT(1 << 16);
	json_t *parts = json_array();
	for (int i = 0; i < r->n; i++) {
		const struct part *p = &r->parts[i];
		json_t *o = json_pack("{s:s, s:b, s:s}", "name", p->name, "ok", p->ok, "found", p->found);
		if (!p->ok) {
			json_object_set_new(o, "unavailable", json_string(p->without));
			json_object_set_new(o, "fix", json_string(p->fix));
		}
		json_array_append_new(parts, o);
	}
	json_t *all = json_pack("{s:s, s:o, s:{s:b, s:b}}", "version", WW_VERSION, "parts", parts, "targets", "cpu",
		usable(r, NEEDS_CPU), "cuda", usable(r, NEEDS_CUDA));
	ww_json_add_pretty(&text, all);
	puts(text.p);
	json_decref(all);
}

struct options {
	int json;
};

static const struct ww_opt option_table[] = { WW_OPT_JSON(struct options, json), WW_OPT_END };

static int doctor(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	struct report r = { .n = 0 };
	char python[PATH_MAX] = "";
	ww_auto_str setup = WW_STR_INIT(sizeof(r.parts[0].fix) - 1);
	ww_ref_python_command(&setup);
	check_program(&r, "C compiler", "cc", NEEDS_CPU, "the cpu target, and building exports", APT "build-essential");
	check_program(&r, "C++ compiler", "g++", 0, "the torch.compile baseline on the cpu target", APT "build-essential");
	check_builder(&r);
	check_sandbox(&r);
	check_sampling(&r);
	check_python(&r, setup.p, python);
	check_openblas(&r);
	check_curl(&r);
	check_gpus(&r);
	check_plugins(&r, setup.p);
	check_cudalib(&r, "NVRTC", ww_cudalib_nvrtc, python, "nvidia_cuda_nvrtc", NEEDS_CUDA,
		"the cuda target: kernels cannot be compiled", setup.p);
	check_cudalib(&r, "cuBLASLt", ww_cudalib_cublaslt, python, "nvidia_cublas", 0,
		"GEMM library nodes on the cuda target", setup.p);
	check_cudalib(&r, "cuDNN", ww_cudalib_cudnn, python, "nvidia_cudnn", 0,
		"convolution library nodes on the cuda target", setup.p);
	check_room(&r);
	if (((struct options *)values)->json)
		print_json(&r);
	else
		print_text(&r);
	return !usable(&r, NEEDS_CPU) && !usable(&r, NEEDS_CUDA);
}

const struct ww_cmd ww_cmd_doctor = { "doctor", "", "check what is installed, and say how to install the rest",
	"Exit code 0: at least one target (cpu, cuda) works; 1: none does.\n"
	"Takes under a second and does not start Python.",
	option_table, sizeof(struct options), 0, 0, doctor };
