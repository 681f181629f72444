/* launch.c - the process that candidates are forked from: gives up its view of the system, then becomes Python.
 *
 * `warpwright __candidates PYTHON BRIDGE cuda|cpu` is born in namespaces of its own (ww_proc_spawn).  It asks the
 * interpreter where its files are (no untrusted input has been read yet), makes a private root of them, of the
 * compilers, of our harness and of the devices, and execs bridge/candidate.py with two descriptors: 3, the control
 * socket, and 4, the system-call filter that every candidate loads.
 *
 * What is visible: /usr, /bin, /lib*, /opt, what PATH and LD_LIBRARY_PATH name, /etc's linker files, the interpreter's
 * directories, CUDA's, and the bridge, all read-only; a few devices; /sys where the driver and PyTorch look the
 * hardware up.  No home directory, no cache of the judge, no source of the task, nothing of other users.
 *
 * The process keeps its capabilities over its own namespaces, because each candidate gets a pid, mount, network and ipc
 * namespace of its own below them; candidate.py takes the capabilities from what it forks.  Rejected: one set of
 * namespaces for all candidates (they could signal and inspect each other), one start of Python for each (import torch
 * takes 2 s). */
#include "judge/forms/forms.h"

#include "base/fs.h"
#include "host/recycle.h"
#include "sandbox/proc.h"
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BINDS = 120, FILTER_FD = 4, ASK_MAX_BYTES = 65536 };

struct binds {
	struct ww_sandbox_bind b[MAX_BINDS];
	int n;
};

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

static void add(struct binds *b, const char *path, int flags)
{
	for (int i = 0; i < b->n; i++) /* what lies below a visible directory is visible */
		if (b->b[i].flags == flags && is_below(path, b->b[i].path))
			return;
	if (b->n < MAX_BINDS && path[0] == '/' && path[1] && access(path, F_OK) == 0)
		b->b[b->n++] = (struct ww_sandbox_bind){ strdup(path), flags };
}

/* Prints the paths of the interpreter's own files, one per line. */
static const char where[] =
	"import sys, os, sysconfig\n"
	"p = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))]\n"
	"p += [x for x in sys.path if os.path.isdir(x)] + [sysconfig.get_path('include') or '']\n"
	"link = sys.executable\n"
	"while os.path.islink(link):\n"
	"    p.append(os.path.dirname(os.path.dirname(link)))\n"
	"    link = os.path.join(os.path.dirname(link), os.readlink(link))\n"
	"print('\\n'.join(dict.fromkeys(os.path.abspath(x) for x in p if x)))\n";

static enum ww_rc ask_python(struct binds *b, const char *python, struct ww_err *err)
{
	int fds[2];
	char text[ASK_MAX_BYTES], *at = text;
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
	(void)pid; /* reaped with us: this process becomes the first of its pid namespace */
	if (!len)
		return ww_err_set(err, WW_ERR_MISSING, "%s did not say where its files are", python);
	for (char *line; (line = strsep(&at, "\n"));)
		add(b, line, WW_BIND_READ);
	return WW_OK;
}

static void add_list(struct binds *b, const char *list)
{
	char copy[PATH_MAX * 2], *at = copy;
	snprintf(copy, sizeof(copy), "%s", list ? list : "");
	for (char *one; (one = strsep(&at, ":"));)
		add(b, one, WW_BIND_READ);
}

static void add_system(struct binds *b)
{
	static const char *const paths[] = { "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/opt",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
		"/etc/nsswitch.conf", "/etc/passwd", "/etc/group" };
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom" };
	for (size_t i = 0; i < WW_ARRAY_LEN(paths); i++)
		add(b, paths[i], WW_BIND_READ);
	for (size_t i = 0; i < WW_ARRAY_LEN(devices); i++)
		add(b, devices[i], WW_BIND_WRITE | WW_BIND_DEVICE);
	add(b, "/sys/devices", WW_BIND_READ);
}

static void add_cuda(struct binds *b)
{
	static const char *const paths[] = { "/sys/bus", "/sys/class", "/sys/module", "/dev/nvidia-caps", "/etc/nvidia" };
	char path[300];
	DIR *d = opendir("/dev");
	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		snprintf(path, sizeof(path), "/dev/%.255s", e->d_name);
		if (!strncmp(e->d_name, "nvidia", 6) && stat(path, &st) == 0 && S_ISCHR(st.st_mode))
			add(b, path, WW_BIND_WRITE | WW_BIND_DEVICE);
	}
	if (d)
		closedir(d);
	for (size_t i = 0; i < WW_ARRAY_LEN(paths); i++)
		add(b, paths[i], i == 3 ? WW_BIND_WRITE | WW_BIND_DEVICE : WW_BIND_READ);
	add(b, getenv("CUDA_HOME") ? getenv("CUDA_HOME") : "", WW_BIND_READ);
	add(b, getenv("CUDA_PATH") ? getenv("CUDA_PATH") : "", WW_BIND_READ);
}

/* From nothing, as the reference worker's; /tmp is each candidate's own. */
static void set_environment(int cuda)
{
	static const char *const pass[] = { "PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
		"CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TRITON_LIBCUDA_PATH", "NVIDIA_VISIBLE_DEVICES",
		"NVIDIA_DRIVER_CAPABILITIES" };
	static const char *const fixed[][2] = { { "LANG", "C.UTF-8" }, { "HOME", "/tmp" }, { "TMPDIR", "/tmp" },
		{ "USER", "warpwright" }, { "TORCH_EXTENSIONS_DIR", "/tmp/build" },
		{ "TORCHINDUCTOR_CACHE_DIR", "/tmp/inductor" }, { "TRITON_CACHE_DIR", "/tmp/triton" },
		{ "TORCHINDUCTOR_COMPILE_THREADS", "1" }, { "PYTHONDONTWRITEBYTECODE", "1" }, { "OPENBLAS_NUM_THREADS", "1" } };
	char *kept[WW_ARRAY_LEN(pass)];
	for (size_t i = 0; i < WW_ARRAY_LEN(pass); i++)
		kept[i] = getenv(pass[i]) ? strdup(getenv(pass[i])) : NULL;
	clearenv();
	for (size_t i = 0; i < WW_ARRAY_LEN(pass); i++)
		if (kept[i])
			setenv(pass[i], kept[i], 1);
	if (!getenv("PATH"))
		setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
	for (size_t i = 0; i < WW_ARRAY_LEN(fixed); i++)
		setenv(fixed[i][0], fixed[i][1], 1);
	if (cuda)
		setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1); /* memory that can be lent (lent.h) */
	for (size_t i = 0; !cuda && i < WW_ARRAY_LEN(ww_recycle_env); i++)
		setenv(ww_recycle_env[i][0], ww_recycle_env[i][1], 1);
}

static int fail(const struct ww_err *err)
{
	dprintf(2, "%s\n", err->msg);
	return 126;
}

int ww_candidates_main(int argc, char **argv)
{
	static struct binds b;
	struct ww_err err = WW_ERR_INIT;
	enum ww_sandbox_level reached;
	char script[PATH_MAX];
	int fd;

	if (argc != 3)
		return 126;
	int cuda = !strcmp(argv[2], "cuda");
	add_system(&b);
	if (cuda)
		add_cuda(&b);
	add_list(&b, getenv("LD_LIBRARY_PATH"));
	add_list(&b, getenv("PATH"));
	add(&b, argv[1], WW_BIND_READ);
	if (ask_python(&b, argv[0], &err) != WW_OK || ww_fs_join(script, argv[1], "candidate.py", &err) != WW_OK ||
		ww_sandbox_filter_file(WW_PROFILE_CANDIDATE, &fd, &err) != WW_OK)
		return fail(&err);
	const struct ww_sandbox_opts o = { .profile = WW_PROFILE_CANDIDATE,
		.binds = b.b,
		.n_binds = b.n,
		.tmp = "/tmp",
		.tmp_bytes = 1 << 20,
		.with_proc = 1,
		.keep_capabilities = 1 };
	if (ww_sandbox_isolate(&o, &reached, &err) != WW_OK)
		return fail(&err);
	if (reached != WW_SANDBOX_NAMESPACES) {
		ww_err_set(&err, WW_ERR_MISSING, "this process has no namespaces of its own");
		return fail(&err);
	}
	set_environment(cuda);
	if (fd != FILTER_FD && dup2(fd, FILTER_FD) < 0)
		return 126;
	execl(argv[0], argv[0], "-I", "-u", script, argv[2], (char *)NULL);
	perror(argv[0]);
	_exit(127);
}
