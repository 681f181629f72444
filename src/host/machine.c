/* machine.c - see machine.h.
 *
 * GPUs are counted through the driver API and not through NVML, because only the driver API honours
 * CUDA_VISIBLE_DEVICES, as the runner does.  Versions of Python packages are read from the names of their *.dist-info
 * directories, as pip does: that takes 1 ms, `import torch` takes 2 s.
 */
#include "host/machine.h"

#include "base/fs.h"
#include "base/str.h"
#include "base/time.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_LIMIT_MS = 10000 };

/* ---- Asking in a child ------------------------------------------------------------------------------------------- */

/* Run fn(arg, out) in a child process and copy `bytes` bytes of `out` back; 0 where it died or took too long. */
static int ask_child(void (*fn)(const void *arg, void *out), const void *arg, void *out, size_t bytes)
{
	int fds[2];
	if (pipe(fds) < 0)
		return 0;
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout))
			_exit(1);
		fn(arg, out);
		_exit(write(fds[1], out, bytes) == (ssize_t)bytes ? 0 : 1);
	}
	close(fds[1]);
	size_t got = 0;
	uint64_t start = ww_now_ns();
	while (pid > 0 && got < bytes) {
		int left = CHILD_LIMIT_MS - (int)((ww_now_ns() - start) / 1000000);
		struct pollfd p = { .fd = fds[0], .events = POLLIN };
		if (left <= 0 || poll(&p, 1, left) <= 0)
			break;
		ssize_t n = read(fds[0], (char *)out + got, bytes - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	close(fds[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	return got == bytes;
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

enum { ATTR_CC_MAJOR = 75, ATTR_CC_MINOR = 76 }; /* CUdevice_attribute */

struct driver {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*count)(int *);
	int (*name)(char *, int, int);
	int (*memory)(size_t *, int);
	int (*attribute)(int *, int, int);
};

static int load_driver(struct driver *d)
{
	void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return 0;
	*(void **)&d->init = dlsym(h, "cuInit");
	*(void **)&d->version = dlsym(h, "cuDriverGetVersion");
	*(void **)&d->count = dlsym(h, "cuDeviceGetCount");
	*(void **)&d->name = dlsym(h, "cuDeviceGetName");
	*(void **)&d->memory = dlsym(h, "cuDeviceTotalMem_v2");
	*(void **)&d->attribute = dlsym(h, "cuDeviceGetAttribute");
	return d->init && d->version && d->count && d->name && d->memory && d->attribute;
}

static void ask_gpus(const void *arg, void *answer)
{
	struct ww_host_gpus *g = answer;
	struct driver d;
	memset(g, 0, sizeof(*g));
	if (!load_driver(&d)) {
		snprintf(g->why, sizeof(g->why), "there is no CUDA driver (libcuda.so.1)");
		return;
	}
	int rc = d.init(0);
	if (rc || d.count(&g->n)) {
		g->n = 0;
		snprintf(g->why, sizeof(g->why), "the CUDA driver finds no usable GPU (cuInit: error %d)", rc);
		return;
	}
	d.version(&g->cuda_version);
	if (!g->n)
		snprintf(g->why, sizeof(g->why), "the CUDA driver shows no GPU to this process");
	g->n = g->n > WW_HOST_MAX_GPUS ? WW_HOST_MAX_GPUS : g->n;
	for (int i = 0; i < g->n; i++) {
		int major = 0, minor = 0;
		size_t bytes = 0;
		d.name(g->gpu[i].name, sizeof(g->gpu[i].name), i);
		d.memory(&bytes, i);
		d.attribute(&major, ATTR_CC_MAJOR, i);
		d.attribute(&minor, ATTR_CC_MINOR, i);
		g->gpu[i].cc = 10 * major + minor;
		g->gpu[i].memory_bytes = bytes;
	}
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ..." */
static void driver_version(char *out, size_t cap)
{
	char line[256] = "";
	FILE *f = fopen("/proc/driver/nvidia/version", "re");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	for (char *p = line; *p; p++) {
		if (!isdigit((unsigned char)*p) || (p > line && p[-1] != ' '))
			continue;
		size_t n = strspn(p, "0123456789.");
		if (memchr(p, '.', n)) {
			snprintf(out, cap, "%.*s", (int)n, p);
			return;
		}
		p += n - 1;
	}
}

void ww_host_gpus(struct ww_host_gpus *out)
{
	if (!ask_child(ask_gpus, NULL, out, sizeof(*out))) {
		memset(out, 0, sizeof(*out));
		snprintf(out->why, sizeof(out->why), "the CUDA driver hangs or crashes");
	}
	driver_version(out->driver, sizeof(out->driver));
}

static int read_line(const char *path, char *out, size_t cap)
{
	FILE *f = fopen(path, "re");
	int ok = f && fgets(out, (int)cap, f);
	if (f)
		fclose(f);
	return ok;
}

/* PCI: vendor 0x10de, class 0x03 (display).  Under WSL, and in some containers, a GPU is not on that bus. */
int ww_host_nvidia_hardware(void)
{
	static const char bus[] = "/sys/bus/pci/devices";
	char path[PATH_MAX], vendor[16], class[16];
	int found = access("/dev/dxg", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
	DIR *d = opendir(bus);
	if (!d)
		return 1;
	for (struct dirent *e; !found && (e = readdir(d));) {
		snprintf(path, sizeof(path), "%s/%s/vendor", bus, e->d_name);
		if (!read_line(path, vendor, sizeof(vendor)) || strncmp(vendor, "0x10de", 6))
			continue;
		snprintf(path, sizeof(path), "%s/%s/class", bus, e->d_name);
		found = read_line(path, class, sizeof(class)) && !strncmp(class, "0x03", 4);
	}
	closedir(d);
	return found;
}

/* The drivers of distributions are older than PyTorch's wheels need, so this installs from NVIDIA's repository. */
void ww_host_driver_command(char *out, size_t cap)
{
	char line[128], id[32] = "", version[32] = "", distribution[65];
	FILE *f = fopen("/etc/os-release", "re");
	while (f && fgets(line, sizeof(line), f)) {
		(void)!sscanf(line, "ID=%31[a-z]", id);
		(void)!sscanf(line, "VERSION_ID=\"%31[0-9.]", version);
	}
	if (f)
		fclose(f);
	snprintf(distribution, sizeof(distribution), "%s%s", id, version);
	if (strlen(version) == 5 && version[2] == '.') /* "24.04" is "2404" there */
		snprintf(distribution, sizeof(distribution), "%s%.2s%s", id, version, version + 3);
	if (strcmp(id, "debian") && strcmp(id, "ubuntu"))
		snprintf(out, cap, "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide   (then reboot)");
	else
		snprintf(out, cap,
			"wget https://developer.download.nvidia.com/compute/cuda/repos/%s/x86_64/cuda-keyring_1.1-1_all.deb && "
			"sudo apt-get install -y ./cuda-keyring_1.1-1_all.deb && sudo apt-get update && "
			"sudo apt-get install -y nvidia-open   (then reboot)",
			distribution);
}

static enum ww_rc no_gpu(int device, const struct ww_host_gpus *gpus, struct ww_err *err)
{
	if (gpus->n)
		return ww_err_set(err, WW_ERR_USAGE, "there is no GPU %d; CUDA shows %d (numbered from 0)", device, gpus->n);
	return ww_err_set(
		err, WW_ERR_MISSING, "--target cuda: %s; use --target cpu here, and see warpwright doctor", gpus->why);
}

enum ww_rc ww_host_choose_target(const char *word, int device, enum ww_target *target, char *name, size_t cap,
	struct ww_host_gpus *gpus, struct ww_err *err)
{
	*target = WW_TARGET_CPU;
	if (strcmp(word, "cpu")) {
		ww_host_gpus(gpus);
		if (gpus->n > device) {
			*target = WW_TARGET_CUDA;
			snprintf(name, cap, "%s", gpus->gpu[device].name);
			return WW_OK;
		}
		if (!strcmp(word, "cuda"))
			return no_gpu(device, gpus, err);
	}
	ww_host_cpu_name(name, cap);
	return WW_OK;
}

/* ---- Processor, libraries, memory -------------------------------------------------------------------------------- */

void ww_host_cpu_name(char *out, size_t cap)
{
	char line[512];
	struct utsname u;
	FILE *f = fopen("/proc/cpuinfo", "re");
	snprintf(out, cap, "%s", uname(&u) == 0 ? u.machine : "cpu");
	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');
		if (strncmp(line, "model name", 10) || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " ");
		snprintf(out, cap, "%.*s", (int)strcspn(colon, "\n"), colon);
		break;
	}
	if (f)
		fclose(f);
}

struct library_answer {
	char name[128];
};

static void ask_library(const void *arg, void *answer)
{
	struct library_answer *a = answer;
	memset(a, 0, sizeof(*a));
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	for (const char *const *n = arg; *n; n++)
		if (dlopen(*n, RTLD_LAZY | RTLD_LOCAL)) {
			snprintf(a->name, sizeof(a->name), "%s", *n);
			return;
		}
}

int ww_host_library(const char *const *names, char *out, size_t cap)
{
	struct library_answer a;
	if (!ask_child(ask_library, names, &a, sizeof(a)) || !*a.name)
		return 0;
	snprintf(out, cap, "%s", a.name);
	return 1;
}

struct version_answer {
	char line[256];
};

static void ask_version(const void *program, void *answer)
{
	struct version_answer *a = answer;
	struct ww_str command = WW_STR_INIT(2 * PATH_MAX);
	memset(a, 0, sizeof(*a));
	ww_str_add_shell(&command, program);
	ww_str_adds(&command, " --version");
	FILE *f = popen(command.p, "re");
	if (f && !fgets(a->line, sizeof(a->line), f))
		*a->line = 0;
}

void ww_host_program_version(const char *program, char *version, size_t cap)
{
	struct version_answer a;
	*version = 0;
	if (!ask_child(ask_version, program, &a, sizeof(a)))
		return;
	a.line[strcspn(a.line, "\n")] = 0;
	const char *last = strrchr(a.line, ' ');
	snprintf(version, cap, "%s", last ? last + 1 : a.line);
}

uint64_t ww_host_free_bytes(const char *dir)
{
	struct statvfs v;
	return statvfs(dir, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : 0;
}

int ww_host_cores(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
	return n > 0 ? n : 1;
}

/* The number that a file begins with; LONG_MAX where there is none ("max"). */
static long number_in(const char *root, const char *file)
{
	char path[PATH_MAX];
	long n = LONG_MAX;
	snprintf(path, sizeof(path), "%s%s", root, file);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%ld", &n) != 1)
		n = LONG_MAX;
	if (f)
		fclose(f);
	return n;
}

static long threads_of_all(const char *root)
{
	char path[PATH_MAX];
	long n = 0;
	snprintf(path, sizeof(path), "%s/proc/loadavg", root);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%*f %*f %*f %*d/%ld", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* Version 2 as a container sees its own group, then version 1. */
long ww_host_tasks_left(const char *root)
{
	static const char *const groups[][2] = { { "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids.current" },
		{ "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids/pids.current" } };
	long most = number_in(root, "/proc/sys/kernel/threads-max"), left = LONG_MAX;
	if (most != LONG_MAX)
		left = most - threads_of_all(root);
	for (size_t i = 0; i < WW_ARRAY_LEN(groups); i++) {
		long max = number_in(root, groups[i][0]), now = number_in(root, groups[i][1]);
		if (max != LONG_MAX && now != LONG_MAX && max - now < left)
			left = max - now;
	}
	return left > 0 ? left : 0;
}

uint64_t ww_host_memory_bytes(uint64_t *available)
{
	char line[128];
	unsigned long long kib, total = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	*available = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
			total = kib << 10;
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			*available = kib << 10;
	}
	if (f)
		fclose(f);
	return total;
}

struct ww_host_process ww_host_process(int pid)
{
	char path[64], line[4096];
	unsigned long long t[4] = { 0 };
	struct ww_host_process p = { 0 };
	double tick = (double)sysconf(_SC_CLK_TCK);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	(void)ww_fs_peek(AT_FDCWD, path, line, sizeof(line));
	const char *at = strrchr(line, ')');
	if (at &&
		sscanf(at + 2, "%*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &p.parent, &t[0], &t[1], &t[2],
			&t[3]) == 5) {
		p.s = (double)(t[0] + t[1]) / tick;
		p.ended_s = (double)(t[2] + t[3]) / tick;
	}
	return p;
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

/* The installation that an interpreter belongs to: PREFIX/bin/python.  A virtual environment is known by its
 * pyvenv.cfg, so only a plain interpreter's symbolic link is followed. */
static int prefix_of(const char *python, char *prefix)
{
	char cfg[PATH_MAX + 16], real[PATH_MAX];
	snprintf(prefix, PATH_MAX, "%s", python);
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(prefix, '/');
		if (!slash || slash == prefix)
			return 0;
		*slash = 0;
	}
	snprintf(cfg, sizeof(cfg), "%s/pyvenv.cfg", prefix);
	if (access(cfg, F_OK) == 0 || !realpath(python, real) || !strcmp(real, python))
		return 1;
	return prefix_of(real, prefix);
}

/* Call fn for PREFIX/lib/python3.*; stops where it returns 1. */
static int each_version(const char *prefix, int (*fn)(const char *dir, const char *version, void *ctx), void *ctx)
{
	char lib[PATH_MAX + 8], dir[PATH_MAX + 300];
	snprintf(lib, sizeof(lib), "%s/lib", prefix);
	DIR *d = opendir(lib);
	int found = 0;
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		if (strncmp(e->d_name, "python3", 7))
			continue;
		snprintf(dir, sizeof(dir), "%s/%s", lib, e->d_name);
		found = fn(dir, e->d_name + 6, ctx);
	}
	if (d)
		closedir(d);
	return found;
}

struct package_query {
	const char *name;
	char *version;
	size_t cap;
	char *where;
};

/* Distribution names are written with '-' or '_' and in any case. */
static int same_name(const char *a, const char *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char x = a[i] == '-' || a[i] == '.' ? '_' : (char)tolower((unsigned char)a[i]);
		char y = b[i] == '-' || b[i] == '.' ? '_' : (char)tolower((unsigned char)b[i]);
		if (x != y)
			return 0;
	}
	return 1;
}

static int find_in_site(const char *site, struct package_query *q)
{
	DIR *d = opendir(site);
	size_t n = strlen(q->name);
	int found = 0;
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		const char *end = strstr(e->d_name, ".dist-info");
		if (!end || strlen(e->d_name) <= n || e->d_name[n] != '-' || !same_name(e->d_name, q->name, n))
			continue;
		snprintf(q->version, q->cap, "%.*s", (int)(end - e->d_name - (long)n - 1), e->d_name + n + 1);
		if (q->where)
			snprintf(q->where, PATH_MAX, "%.*s", PATH_MAX - 1, site);
		found = 1;
	}
	if (d)
		closedir(d);
	return found;
}

static int find_package(const char *dir, const char *version, void *ctx)
{
	static const char *const sites[] = { "site-packages", "dist-packages" };
	char site[PATH_MAX + 400];
	for (size_t i = 0; i < WW_ARRAY_LEN(sites); i++) {
		snprintf(site, sizeof(site), "%s/%s", dir, sites[i]);
		if (find_in_site(site, ctx))
			return 1;
	}
	return 0;
}

int ww_host_python_package(const char *python, const char *name, char *version, size_t cap, char *where)
{
	char prefix[PATH_MAX], local[PATH_MAX + 8];
	struct package_query q = { name, version, cap, where };
	*version = 0;
	if (!prefix_of(python, prefix))
		return 0;
	snprintf(local, sizeof(local), "%s/local", prefix);
	return each_version(local, find_package, &q) || each_version(prefix, find_package, &q);
}

/* Only a folder with the standard library is an installation of Python; a folder with packages alone is not. */
static int take_version(const char *dir, const char *version, void *ctx)
{
	struct package_query *q = ctx;
	char path[PATH_MAX + 320];
	snprintf(path, sizeof(path), "%s/os.py", dir);
	if (access(path, F_OK) < 0) {
		snprintf(path, sizeof(path), "%s/site-packages", dir);
		if (access(path, F_OK) < 0)
			return 0;
	}
	snprintf(q->version, q->cap, "%s", version);
	return 1;
}

void ww_host_python_version(const char *python, char *version, size_t cap)
{
	char prefix[PATH_MAX];
	struct package_query q = { "", version, cap, NULL };
	*version = 0;
	if (prefix_of(python, prefix))
		each_version(prefix, take_version, &q);
}

int ww_host_python_headers(const char *python)
{
	char real[PATH_MAX], prefix[PATH_MAX], version[32], path[PATH_MAX + 64];
	ww_host_python_version(python, version, sizeof(version));
	if (!*version || !realpath(python, real) || !prefix_of(real, prefix))
		return 0;
	snprintf(path, sizeof(path), "%s/include/python%s/Python.h", prefix, version);
	return access(path, F_OK) == 0;
}
