/* python.c - which Python holds PyTorch, and the one command that makes such a Python (ref.h).
 *
 * Where WW_PYTHON names one, it is that one or none.  Else it is the environment beside the bridge, which
 * tools/setup makes in a checkout and the user in an unpacked distribution; last the system's, which seldom has PyTorch
 * and which most systems do not let pip write into.  So missing packages are always installed into the environment
 * beside the bridge. */
#include "task/ref.h"
#include "base/fs.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The directory that holds the bridge; 0 where there is none. */
static int find_root(char *root)
{
	struct ww_err ignored = WW_ERR_INIT;
	char bridge[PATH_MAX];
	if (ww_fs_resource("bridge", bridge, &ignored) != WW_OK || !realpath(bridge, root))
		return 0;
	*strrchr(root, '/') = 0;
	return 1;
}

enum ww_rc ww_ref_find_python(char *out, struct ww_err *err)
{
	const char *named = getenv("WW_PYTHON");
	char root[PATH_MAX];
	if (named && *named) {
		if (!access(named, X_OK) && (size_t)snprintf(out, PATH_MAX, "%s", named) < PATH_MAX)
			return WW_OK;
		return ww_err_set(
			err, WW_ERR_MISSING, "WW_PYTHON names %s, which is not a program; unset it or correct the path", named);
	}
	if (find_root(root) && (size_t)snprintf(out, PATH_MAX, "%s/.venv/bin/python", root) < PATH_MAX &&
		!access(out, X_OK))
		return WW_OK;
	if (ww_fs_which("python3", out))
		return WW_OK;
	return ww_err_set(
		err, WW_ERR_MISSING, "no Python was found; warpwright doctor says how to install one with PyTorch");
}

static int is_there(const char *dir, const char *pattern)
{
	char path[PATH_MAX + 64];
	glob_t g;
	snprintf(path, sizeof(path), "%s/%s", dir, pattern);
	int found = glob(path, GLOB_NOSORT, NULL, &g) == 0;
	globfree(&g);
	return found;
}

/* Debian and Ubuntu have what `python3 -m venv` needs in a package of its own. */
static int has_venv(const char *python)
{
	char dir[PATH_MAX];
	if (!realpath(python, dir))
		return 0;
	*strrchr(dir, '/') = 0;
	return is_there(dir, "../lib/python3*/ensurepip/__init__.py") || !is_there(dir, "../lib/python3*/os.py");
}

void ww_ref_python_command(struct ww_str *out)
{
	const char *named = getenv("WW_PYTHON");
	char root[PATH_MAX], path[PATH_MAX + 16];
	if (named && *named)
		ww_str_adds(out, "unset WW_PYTHON; ");
	if (!find_root(root)) {
		ww_str_adds(out, "set WARPWRIGHT_HOME to the directory that holds bridge/");
		return;
	}
	snprintf(path, sizeof(path), "%s/tools/setup", root);
	if (ww_fs_is_file(path)) {
		ww_str_adds(out, "make -C ");
		ww_str_add_shell(out, root);
		ww_str_adds(out, " setup");
		return;
	}
	if (!ww_fs_which("python3", path) || !has_venv(path))
		ww_str_adds(out, "sudo apt-get install -y python3-venv && ");
	ww_str_adds(out, "python3 -m venv ");
	snprintf(path, sizeof(path), "%s/.venv", root);
	ww_str_add_shell(out, path);
	ww_str_adds(out, " && ");
	snprintf(path, sizeof(path), "%s/.venv/bin/pip", root);
	ww_str_add_shell(out, path);
	ww_str_addf(out, " install torch==%s numpy", WW_REF_TORCH);
}
