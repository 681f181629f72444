#include "task/surroundings.h"

#include "host/recycle.h"
#include "task/bytecode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MAX_BYTES = 65536 };

/* path is dir, or lies below it as the text says and in truth: not through `..` or a link that leads elsewhere. */
static int is_below(const char *path, const char *dir)
{
	char real[2][PATH_MAX];
	size_t n = strlen(dir);
	if (strncmp(path, dir, n) || (path[n] && path[n] != '/') || !realpath(path, real[0]) || !realpath(dir, real[1]))
		return 0;
	n = strlen(real[1]);
	return !strncmp(real[0], real[1], n) && (!real[0][n] || real[0][n] == '/');
}

void ww_surroundings_add(struct ww_surroundings *s, const char *path, int flags)
{
	for (int i = 0; i < s->n; i++)
		if (s->b[i].flags == flags && is_below(path, s->b[i].path))
			return;
	if (s->n < WW_SURROUNDINGS_MAX && path[0] == '/' && path[1] && access(path, F_OK) == 0)
		s->b[s->n++] = (struct ww_sandbox_bind){ strdup(path), flags };
}

void ww_surroundings_add_list(struct ww_surroundings *s, const char *list, int flags)
{
	char *copy = strdup(list ? list : ""), *at = copy;
	for (char *one; (one = strsep(&at, ":"));)
		ww_surroundings_add(s, one, flags);
	free(copy);
}

/* ---- The interpreter --------------------------------------------------------------------------------------------- */

/* Prints the paths of the interpreter's own files, one per line, and where links in them lead: a task's folder that
 * holds such a link covers what is bound in the link's place. */
static const char where[] = "import sys, os, sysconfig\n"
							"def hops(x):\n"
							"    while os.path.islink(x):\n"
							"        yield x\n"
							"        x = os.path.normpath(os.path.join(os.path.dirname(x), os.readlink(x)))\n"
							"    yield x\n"
							"p = [*hops(sys.prefix), *hops(sys.base_prefix), *hops(sys.exec_prefix)]\n"
							"p += [os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))]\n"
							"p += [x for x in sys.path if os.path.isdir(x)] + [sysconfig.get_path('include') or '']\n"
							"p += [os.path.dirname(os.path.dirname(x)) for x in hops(sys.executable)]\n"
							"print('\\n'.join(dict.fromkeys(os.path.abspath(x) for x in p if x)))\n";

static enum ww_rc add_interpreter(struct ww_surroundings *s, const char *python, struct ww_err *err)
{
	int fds[2];
	char text[ANSWER_MAX_BYTES], *at = text;
	size_t len = 0;
	ssize_t n;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "pipe");
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[1], 1);
		execl(python, python, "-I", "-c", where, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	while (len + 1 < sizeof(text) &&
		((n = read(fds[0], text + len, sizeof(text) - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
		len += n > 0 ? (size_t)n : 0;
	text[len] = 0;
	close(fds[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (!len)
		return ww_err_set(err, WW_ERR_MISSING,
			"%s did not report where its files are; check that it is a Python interpreter", python);
	for (char *line; (line = strsep(&at, "\n"));)
		ww_surroundings_add(s, line, WW_BIND_READ);
	return WW_OK;
}

/* ---- The system -------------------------------------------------------------------------------------------------- */

static void add_system(struct ww_surroundings *s)
{
	static const char *const paths[] = { "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/opt",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
		"/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/sys/devices" };
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom" };
	for (size_t i = 0; i < WW_ARRAY_LEN(paths); i++)
		ww_surroundings_add(s, paths[i], WW_BIND_READ);
	for (size_t i = 0; i < WW_ARRAY_LEN(devices); i++)
		ww_surroundings_add(s, devices[i], WW_BIND_WRITE | WW_BIND_DEVICE);
}

static void add_cuda(struct ww_surroundings *s)
{
	static const char *const paths[] = { "/sys/bus", "/sys/class", "/sys/module", "/etc/nvidia" };
	char path[300];
	DIR *d = opendir("/dev");
	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		snprintf(path, sizeof(path), "/dev/%.255s", e->d_name);
		if (!strncmp(e->d_name, "nvidia", 6) && stat(path, &st) == 0 && S_ISCHR(st.st_mode))
			ww_surroundings_add(s, path, WW_BIND_WRITE | WW_BIND_DEVICE);
	}
	if (d)
		closedir(d);
	ww_surroundings_add(s, "/dev/nvidia-caps", WW_BIND_WRITE | WW_BIND_DEVICE);
	for (size_t i = 0; i < WW_ARRAY_LEN(paths); i++)
		ww_surroundings_add(s, paths[i], WW_BIND_READ);
	ww_surroundings_add_list(s, getenv("CUDA_HOME"), WW_BIND_READ);
	ww_surroundings_add_list(s, getenv("CUDA_PATH"), WW_BIND_READ);
}

enum ww_rc ww_surroundings_add_program(struct ww_surroundings *s, const char *python, int cuda, struct ww_err *err)
{
	add_system(s);
	if (cuda)
		add_cuda(s);
	ww_surroundings_add_list(s, getenv("LD_LIBRARY_PATH"), WW_BIND_READ);
	ww_surroundings_add_list(s, getenv("PATH"), WW_BIND_READ);
	return python ? add_interpreter(s, python, err) : WW_OK;
}

enum ww_rc ww_surroundings_enter(
	const struct ww_surroundings *s, int cuda, int64_t shm_bytes, int filter_fd, struct ww_err *err)
{
	enum ww_sandbox_profile profile = cuda ? WW_PROFILE_PYTHON_CUDA : WW_PROFILE_PYTHON;
	enum ww_sandbox_level reached;
	int fd = -1;
	const struct ww_sandbox_opts o = { .profile = profile,
		.binds = s->b,
		.n_binds = s->n,
		.tmp = "/tmp",
		.tmp_bytes = 1 << 20,
		.shm_bytes = shm_bytes,
		.with_proc = 1,
		.keep_capabilities = 1 };
	WW_CHECK(ww_sandbox_filter_file(profile, &fd, err));
	WW_CHECK(ww_sandbox_isolate(&o, &reached, err));
	if (reached != WW_SANDBOX_NAMESPACES)
		return ww_err_set(err, WW_ERR_MISSING, "this process has no namespaces of its own");
	if (fd != filter_fd && dup2(fd, filter_fd) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot pass the system-call filter on");
	return WW_OK;
}

/* ---- The environment --------------------------------------------------------------------------------------------- */

/* CUDA_DEVICE_MAX_CONNECTIONS changes what a context costs, and may change what a baseline takes; a user's own is not
 * passed on.  WARPWRIGHT_CUDA_CONNECTIONS in place of the judge's choice (src/judge/cache/baselines.c) is for measuring
 * that (bench/throughput/run --turns).
 *
 * OPENBLAS_*: numpy's, which PyTorch imports and does not compute with, starts a thread for each core that spins at
 * first. */
void ww_surroundings_environment(const char *tmp, int cuda)
{
	static const char *const pass[] = { "PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
		"CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TRITON_LIBCUDA_PATH", "NVIDIA_VISIBLE_DEVICES",
		"NVIDIA_DRIVER_CAPABILITIES", "TZ" };
	const char *const fixed[][2] = { { "LANG", "C.UTF-8" }, { "HOME", tmp }, { "TMPDIR", tmp },
		{ "USER", "warpwright" }, { "OPENBLAS_NUM_THREADS", "1" } };
	char *saved[WW_ARRAY_LEN(pass)], *connections = getenv("WARPWRIGHT_CUDA_CONNECTIONS");
	connections = cuda && connections ? strdup(connections) : NULL;
	for (size_t i = 0; i < WW_ARRAY_LEN(pass); i++)
		saved[i] = getenv(pass[i]) ? strdup(getenv(pass[i])) : NULL;
	clearenv();
	setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
	for (size_t i = 0; i < WW_ARRAY_LEN(pass); i++)
		if (saved[i])
			setenv(pass[i], saved[i], 1);
	if (connections)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
	for (size_t i = 0; i < WW_ARRAY_LEN(fixed); i++)
		setenv(fixed[i][0], fixed[i][1], 1);
	for (size_t i = 0; !cuda && i < WW_ARRAY_LEN(ww_recycle_env); i++)
		setenv(ww_recycle_env[i][0], ww_recycle_env[i][1], 1);
}

void ww_surroundings_python(const char *python, const char *code, const char *const *args)
{
	char option[PATH_MAX + 32];
	const char *all[16] = { python, "-I", "-u" };
	int n = 3 + ww_bytecode_args(code, all + 3, option);
	for (; *args; args++) {
		WW_BUG(n + 1 >= (int)WW_ARRAY_LEN(all));
		all[n++] = *args;
	}
	execv(python, (char **)all);
	perror(python);
	_exit(127);
}

int ww_surroundings_fail(const struct ww_err *err)
{
	dprintf(2, "%s\n", err->msg);
	return 126;
}
