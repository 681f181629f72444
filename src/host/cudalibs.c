/* cudalibs.c - see cudalibs.h. */
#include "host/cudalibs.h"

#include "base/fs.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ww_cudalib_nvrtc[] = { "libnvrtc.so.13", "libnvrtc.so.12", NULL };
const char *const ww_cudalib_cublaslt[] = { "libcublasLt.so.13", "libcublasLt.so.12", NULL };
const char *const ww_cudalib_cudnn[] = { "libcudnn.so.9", NULL };
const char *const ww_cudalib_cupti[] = { "libcupti.so.13", "libcupti.so.12", NULL };

/* A search through directories: dir() is called with each, and returns 1 to stop. */
struct visit {
	int (*dir)(struct visit *v, const char *libs);
	const char *const *names;
	char *out;
};

static int has_library(struct visit *v, const char *dir)
{
	for (const char *const *n = v->names; *n; n++)
		if ((size_t)snprintf(v->out, PATH_MAX, "%s/%s", dir, *n) < PATH_MAX && ww_fs_is_file(v->out))
			return 1;
	return 0;
}

/* The include directory that belongs to a directory of libraries: ../include, in a toolkit also beside targets/. */
static int has_headers(struct visit *v, const char *dir)
{
	static const char *const where[] = { "../include", "../../../include" };
	char probe[PATH_MAX];
	for (size_t i = 0; i < WW_ARRAY_LEN(where); i++) {
		if ((size_t)snprintf(probe, sizeof(probe), "%s/%s/cuda_fp16.h", dir, where[i]) < sizeof(probe) &&
			ww_fs_is_file(probe)) {
			char path[PATH_MAX];
			if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, where[i]) < sizeof(path) && realpath(path, v->out))
				return 1;
		}
	}
	return 0;
}

static int visit_glob(struct visit *v, const char *pattern)
{
	glob_t g;
	int found = 0;
	if (glob(pattern, 0, NULL, &g) != 0)
		return 0;
	for (size_t i = 0; i < g.gl_pathc && !found; i++)
		found = v->dir(v, g.gl_pathv[i]);
	globfree(&g);
	return found;
}

static int visit_list(struct visit *v, const char *list)
{
	char dir[PATH_MAX];
	for (const char *p = list; p && *p;) {
		size_t n = strcspn(p, ":");
		if (n && (size_t)snprintf(dir, sizeof(dir), "%.*s", (int)n, p) < sizeof(dir) && v->dir(v, dir))
			return 1;
		p += n + (p[n] == ':');
	}
	return 0;
}

static int visit_environment(struct visit *v, const char *root)
{
	char pattern[PATH_MAX];
	return root &&
		(size_t)snprintf(pattern, sizeof(pattern), "%s/lib/python3*/site-packages/nvidia/*/lib", root) <
		sizeof(pattern) &&
		visit_glob(v, pattern);
}

/* $WW_PYTHON is ENV/bin/python; a bare name is looked up. */
static int visit_python(struct visit *v)
{
	char path[PATH_MAX];
	const char *set = getenv("WW_PYTHON");
	if (!set || !ww_fs_which(set, path))
		return 0;
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(path, '/');
		if (!slash || slash == path)
			return 0;
		*slash = 0;
	}
	return visit_environment(v, path);
}

static int visit_venv(struct visit *v)
{
	char path[PATH_MAX];
	struct ww_err none = WW_ERR_INIT;
	return ww_fs_resource(".venv", path, &none) == WW_OK && visit_environment(v, path);
}

static int visit_toolkit(struct visit *v)
{
	char pattern[PATH_MAX];
	const char *const roots[] = { getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/usr/local/cuda-*" };
	for (size_t i = 0; i < WW_ARRAY_LEN(roots); i++)
		if (roots[i] && (size_t)snprintf(pattern, sizeof(pattern), "%s/lib64", roots[i]) < sizeof(pattern) &&
			visit_glob(v, pattern))
			return 1;
	return 0;
}

static int visit_all(struct visit *v)
{
	return visit_list(v, getenv("WW_CUDA_LIBS")) || visit_python(v) || visit_environment(v, getenv("VIRTUAL_ENV")) ||
		visit_venv(v) || visit_toolkit(v) || visit_list(v, getenv("LD_LIBRARY_PATH")) ||
		visit_list(v, "/usr/lib/x86_64-linux-gnu:/usr/lib64");
}

enum ww_rc ww_cudalib_find(const char *const *names, char *out, struct ww_err *err)
{
	struct visit v = { has_library, names, out };
	if (visit_all(&v))
		return WW_OK;
	return ww_err_set(err, WW_ERR_MISSING,
		"cannot find %s; warpwright doctor says what brings it, or set CUDA_HOME to a CUDA toolkit", names[0]);
}

enum ww_rc ww_cudalib_open(const char *const *names, void **handle, struct ww_err *err)
{
	char path[PATH_MAX];
	enum ww_rc rc = ww_cudalib_find(names, path, err);
	*handle = NULL;
	if (rc != WW_OK)
		return rc;
	*handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	return *handle ? WW_OK : ww_err_set(err, WW_ERR_MISSING, "cannot load %s: %s", path, dlerror());
}

enum ww_rc ww_cuda_include_dir(char *out, struct ww_err *err)
{
	char lib[PATH_MAX];
	struct ww_err none = WW_ERR_INIT;
	struct visit v = { has_headers, NULL, out };
	if (ww_cudalib_find(ww_cudalib_nvrtc, lib, &none) == WW_OK) {
		*strrchr(lib, '/') = 0;
		if (has_headers(&v, lib))
			return WW_OK;
	}
	if (visit_all(&v))
		return WW_OK;
	return ww_err_set(err, WW_ERR_MISSING,
		"cannot find cuda_fp16.h; warpwright doctor says what brings it, or set CUDA_HOME to a CUDA toolkit");
}
