/* load.c - did other processes use the machine while we measured, or did its speed change?
 *
 * cpu: the kernel counts the busy and stolen time of the whole machine in /proc/stat and of each process in
 * /proc/PID/stat; the rest, without this process, the reference worker and the runners, is the use by other processes.
 * If they used a quarter of the machine, the measurement is disturbed; from a twentieth on, the samples decide whether
 * it mattered.
 *
 * cuda: NVML, where the driver's library is there.  A compute process on the GPU that belongs to no judge and no engine
 * is a disturbance.  (Other judges hold memory there but measure under the same lease; they are recognised by their
 * command lines.  Engines wait while a judge measures; they are recognised by the open lease file and CUDA.  A
 * container may hide the ids of other processes, but not their number.) A slowdown by heat or power supply makes the
 * measurement disturbed; with a power cap, or SM clocks that differ between start and end, the samples decide.
 *
 * An answer of NVML takes tens of milliseconds, as long as a short verdict.  So a thread asks every PERIOD_MS while
 * there are measurements; a measurement uses the answers since its start, or the newest.  A `patient` caller asks once
 * more at the end.
 *
 * Both: processes that policies started are stopped while the lease is held (host/pause.h).  If such processes used
 * processor time all the same, the measurement is disturbed and pays no win.
 *
 * None of this finds every disturbance; timing.c looks at the samples as well. */
#include "judge/load.h"

#include "host/lease.h"
#include "host/machine.h"
#include "host/pause.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/time.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double OTHERS_NOTICED = 0.05, OTHERS_CERTAIN = 0.25, CLOCK_CHANGE = 0.03;

/* ---- The processors ---------------------------------------------------------------------------------------------- */

/* user nice system idle iowait irq softirq steal */
static double machine_busy_s(void)
{
	unsigned long long v[8] = { 0 };
	FILE *f = fopen("/proc/stat", "re");
	if (!f)
		return 0;
	int n = fscanf(
		f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
	fclose(f);
	return n < 8 ? 0 : (double)(v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
}

struct process {
	int pid;
	struct ww_host_process is;
	int is_policys;
};

/* The first 4 KiB of a file of /proc, with spaces for its NULs; "" where there is none. */
static void read_of(int pid, const char *name, char text[4096])
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	size_t n = ww_fs_peek(AT_FDCWD, path, text, 4096);
	for (size_t i = 0; i < n; i++)
		text[i] = text[i] ? text[i] : ' ';
}

static double process_s(pid_t pid) { return ww_host_process(pid).s; }

static double own_s(const struct ww_load *l)
{
	double s = process_s(getpid());
	for (int i = 0; i < WW_LOAD_PROCESSES; i++)
		s += l->own[i] > 0 ? process_s(l->own[i]) : 0;
	return s;
}

static void end_cpu(const struct ww_load *l, struct ww_disturbance *d)
{
	double others = machine_busy_s() - l->busy_s - (own_s(l) - l->own_s);
	double share = others / (ww_seconds_since(l->start_ns) * (double)sysconf(_SC_NPROCESSORS_ONLN));
	d->others_s = others;
	d->noticed = share > OTHERS_NOTICED;
	d->certain = share > OTHERS_CERTAIN;
	if (d->noticed)
		snprintf(d->why, sizeof(d->why), "other processes used %.0f%% of the machine", 100 * fmin(share, 1));
}

/* ---- Policies ---------------------------------------------------------------------------------------------------- */

/* Processes that policies started are stopped (host/pause.h); more processor time than this shows that one ran on. */
static const double POLICIES_NOTICED_S = 0.02;
enum { PROCESSES_MAX = 65536 };

/* Is it a policy's shell, started by a process of this user?  (Shells of other users cannot be stopped from here.) */
static int is_shell(const struct process *p, int parent)
{
	char line[4096], path[64];
	struct stat st;
	read_of(p->pid, "cmdline", line);
	snprintf(path, sizeof(path), "/proc/%d", p->is.parent);
	return strstr(line, " __shell") && stat(path, &st) == 0 && st.st_uid == geteuid() &&
		(!parent || p->is.parent == parent);
}

/* Mark children of marked processes until nothing changes; parents mostly come first. */
static void mark_descendants(struct process *p, int n)
{
	for (int changed = 1; changed;) {
		changed = 0;
		for (int i = 0; i < n; i++)
			for (int k = 0; !p[i].is_policys && k < n; k++)
				if (p[k].is_policys && p[k].pid == p[i].is.parent)
					p[i].is_policys = changed = 1;
	}
}

double ww_load_policies_s(int parent)
{
	struct process *p = NULL;
	int n = 0;
	size_t cap = 0;
	double s = 0;
	DIR *d = ww_pausable_exists() ? opendir("/proc") : NULL;
	for (struct dirent *e; n < PROCESSES_MAX && d && (e = readdir(d));) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (!WW_GROW(p, &cap, n + 1))
			break;
		p[n] = (struct process){ .pid = atoi(e->d_name) };
		p[n].is = ww_host_process(p[n].pid);
		p[n].is_policys = is_shell(&p[n], parent);
		n++;
	}
	mark_descendants(p, n);
	for (int i = 0; i < n; i++)
		s += p[i].is_policys ? p[i].is.s + p[i].is.ended_s : 0;
	if (d)
		closedir(d);
	free(p);
	return s;
}

static void end_policies(const struct ww_load *l, struct ww_disturbance *d)
{
	double s = ww_load_policies_s(0) - l->policies_s;
	d->policies = s > POLICIES_NOTICED_S;
	if (d->policies) {
		d->certain = 1;
		snprintf(d->why, sizeof(d->why), "processes of a policy's shell used %.2f s of processor time", s);
	}
}

/* ---- NVML -------------------------------------------------------------------------------------------------------- */

enum { CLOCK_SM = 1 };
enum { SW_POWER_CAP = 0x4, HW_SLOWDOWN = 0x8, SW_THERMAL = 0x20, HW_THERMAL = 0x40, HW_POWER_BRAKE = 0x80 };

struct nvml {
	void *device; /* NULL: NVML is missing or does not know the device */
	int (*running)(void *device, unsigned *n, void *rows);
	int (*clock)(void *device, int kind, unsigned *mhz);
	int (*reasons)(void *device, unsigned long long *bits);
};

static void *symbol(void *lib, const char *name, const char *older)
{
	void *p = dlsym(lib, name);
	return p || !older ? p : dlsym(lib, older);
}

static struct nvml library; /* its functions; no device */
static int (*device_by_uuid)(const char *, void **);

static void load_library(void)
{
	int (*init)(void);
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return;
	*(void **)&init = symbol(lib, "nvmlInit_v2", NULL);
	if (!init || init() != 0)
		return;
	*(void **)&device_by_uuid = symbol(lib, "nvmlDeviceGetHandleByUUID", NULL);
	*(void **)&library.running = symbol(
		lib, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
	*(void **)&library.clock = symbol(lib, "nvmlDeviceGetClockInfo", NULL);
	*(void **)&library.reasons = symbol(
		lib, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
}

static struct nvml nvml_of(const char *uuid)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load_library);
	struct nvml n = library;
	if (!device_by_uuid || device_by_uuid(uuid, &n.device) != 0)
		n.device = NULL;
	return n;
}

/* Has a process started CUDA?  `unknown` is returned if its descriptors may not be read. */
static int has_cuda(const char *pid, int unknown)
{
	char dir[64], name[400], to[64];
	snprintf(dir, sizeof(dir), "/proc/%.16s/fd", pid);
	DIR *d = opendir(dir);
	int cuda = !d && unknown;
	for (struct dirent *e; !cuda && d && (e = readdir(d));) {
		snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
		ssize_t n = readlink(name, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = 0;
		cuda = !strcmp(to, "/dev/nvidia-uvm");
	}
	if (d)
		closedir(d);
	return cuda;
}

/* Only as the argument of Python's option -X: a file or a folder of a user's process may have that name. */
int ww_load_is_exported(const char *command) { return strstr(command, " -X " WW_JUDGE_EXPORTED " ") != NULL; }

/* One of a judge's processes that use the GPU: a runner, a reference worker, a candidate of another form, or one with
 * an exported operator, which waits for seconds before it starts CUDA. */
static int is_judges(const char *pid)
{
	char line[4096];
	read_of(atoi(pid), "cmdline", line);
	return strstr(line, "__runner cuda") || strstr(line, "/bridge/") || (ww_load_is_exported(line) && has_cuda(pid, 1));
}

/* A judge has the lease's file open too, but computes in processes of its own. */
static int is_engine(const char *pid, const char *device)
{
	return ww_lease_takes_part(atoi(pid), device) && has_cuda(pid, 0);
}

static int own_processes(const char *device)
{
	int n = 0;
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));)
		n += isdigit((unsigned char)e->d_name[0]) && (is_judges(e->d_name) || is_engine(e->d_name, device));
	if (d)
		closedir(d);
	return n;
}

static int other_processes(const struct nvml *n, const char *device)
{
	unsigned found = 0;
	if (!n->running)
		return 0;
	int rc = n->running(n->device, &found, NULL); /* 0: none; 7 (INSUFFICIENT_SIZE): `found` processes */
	if ((rc != 0 && rc != 7) || found <= 2)       /* a judge has two at least, the reference worker and a runner */
		return 0;
	int ours = own_processes(device);
	return (int)found > ours ? (int)found - ours : 0;
}

/* The number of processes on the device that are this one (if it has an engine) or were started by it. */
static int my_processes(const char *device)
{
	char self[16];
	snprintf(self, sizeof(self), "%d", (int)getpid());
	int n = is_engine(self, device);
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		int pid = isdigit((unsigned char)e->d_name[0]) && is_judges(e->d_name) ? atoi(e->d_name) : 0;
		while (pid > 1 && pid != getpid())
			pid = ww_host_process(pid).parent;
		n += pid == getpid();
	}
	if (d)
		closedir(d);
	return n;
}

int ww_load_is_shared(const struct ww_judge *j)
{
	struct nvml n = nvml_of(j->facts.uuid);
	unsigned found = 0;
	int rc = n.device && n.running ? n.running(n.device, &found, NULL) : -1;
	return (rc == 0 || rc == 7) && (int)found > my_processes(j->facts.uuid);
}

static unsigned sm_clock_mhz(const struct nvml *n)
{
	unsigned mhz = 0;
	return n->device && n->clock && n->clock(n->device, CLOCK_SM, &mhz) == 0 ? mhz : 0;
}

static unsigned long long slow_reasons(const struct nvml *n)
{
	unsigned long long bits = 0;
	return n->reasons && n->reasons(n->device, &bits) == 0 ? bits : 0;
}

/* What NVML said of a device at one moment. */
struct look {
	uint64_t asked_ns; /* 0: none */
	unsigned mhz;
	unsigned long long slow;
	int others;
};

enum { PERIOD_MS = 400, WANTED_MS = 2000, LOOKS = 64, MAX_WATCHED = 16 };

/* A device that the thread watches.  looks[]: the last LOOKS answers, a ring of which n were written in all. */
struct watched {
	char uuid[64];
	uint64_t wanted_ns; /* when somebody last measured */
	struct look looks[LOOKS];
	int n;
};
static struct watched watched[MAX_WATCHED];
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_wanted = PTHREAD_COND_INITIALIZER;
static int watching;

static struct look look_at(const char *uuid)
{
	struct nvml n = nvml_of(uuid);
	struct look l = { .asked_ns = ww_now_ns() };
	if (n.device)
		l = (struct look){ l.asked_ns, sm_clock_mhz(&n), slow_reasons(&n), other_processes(&n, uuid) };
	return l;
}

/* Ask NVML and record the answer.  The lock is held, but not while NVML answers. */
static void look_again(struct watched *w)
{
	pthread_mutex_unlock(&watch_lock);
	struct look l = look_at(w->uuid);
	pthread_mutex_lock(&watch_lock);
	w->looks[w->n++ % LOOKS] = l;
}

static int is_due(const struct watched *w)
{
	uint64_t now = ww_now_ns(), last = w->n ? w->looks[(w->n - 1) % LOOKS].asked_ns : 0;
	return w->uuid[0] && now - w->wanted_ns < WANTED_MS * 1000000ull && now - last > PERIOD_MS * 1000000ull;
}

static void *watch(void *unused)
{
	static const struct timespec pause = { 0, PERIOD_MS / 4 * 1000000 };
	pthread_mutex_lock(&watch_lock);
	for (;;) {
		int wanted = 0;
		for (int i = 0; i < MAX_WATCHED; i++) {
			wanted |= watched[i].uuid[0] && ww_now_ns() - watched[i].wanted_ns < WANTED_MS * 1000000ull;
			if (is_due(&watched[i]))
				look_again(&watched[i]);
		}
		if (!wanted)
			pthread_cond_wait(&watch_wanted, &watch_lock);
		pthread_mutex_unlock(&watch_lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&watch_lock);
	}
	return unused;
}

/* The lock is held.  NULL: there are too many, or no thread. */
static struct watched *watched_of(const char *uuid)
{
	pthread_t t;
	if (!watching && pthread_create(&t, NULL, watch, NULL) == 0) {
		pthread_detach(t);
		watching = 1;
	}
	for (int i = 0; watching && i < MAX_WATCHED; i++) {
		if (!watched[i].uuid[0])
			snprintf(watched[i].uuid, sizeof(watched[i].uuid), "%s", uuid);
		if (!strcmp(watched[i].uuid, uuid))
			return &watched[i];
	}
	return NULL;
}

/* All answers since then, merged (mhz: the range of the clock); if there are none, the newest. */
static struct look sum_since(const struct watched *w, uint64_t since_ns)
{
	struct look sum = { 0 };
	unsigned low = ~0u, high = 0;
	for (int i = w->n - 1; i >= 0 && i > w->n - 1 - LOOKS; i--) {
		const struct look *l = &w->looks[i % LOOKS];
		if (l->asked_ns < since_ns && sum.asked_ns)
			break;
		sum.asked_ns = l->asked_ns;
		sum.slow |= l->slow;
		sum.others = l->others > sum.others ? l->others : sum.others;
		low = l->mhz && l->mhz < low ? l->mhz : low;
		high = l->mhz > high ? l->mhz : high;
	}
	sum.mhz = high > low ? high - low : 0;
	return sum;
}

static void start_cuda(struct ww_load *l)
{
	WW_LOCKED(&watch_lock);
	struct watched *w = watched_of(l->judge->facts.uuid);
	if (w)
		w->wanted_ns = ww_now_ns();
	if (w && w->n)
		l->clock_mhz = w->looks[(w->n - 1) % LOOKS].mhz;
	pthread_cond_broadcast(&watch_wanted);
}

static struct look end_watch(const struct ww_load *l)
{
	struct look sum = { 0 };
	WW_LOCKED(&watch_lock);
	struct watched *w = watched_of(l->judge->facts.uuid);
	if (w && (l->patient || !w->n))
		look_again(w);
	if (w)
		sum = sum_since(w, l->start_ns);
	return sum;
}

static void end_cuda(const struct ww_load *l, struct ww_disturbance *d)
{
	struct look seen = end_watch(l);
	if (seen.others) {
		d->certain = 1;
		snprintf(d->why, sizeof(d->why), "%d other process%s used the GPU", seen.others, seen.others > 1 ? "es" : "");
	} else if (seen.slow & (HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE)) {
		d->certain = 1;
		snprintf(d->why, sizeof(d->why), "the GPU slowed down (%s)",
			seen.slow & (SW_THERMAL | HW_THERMAL) ? "it is too hot" : "power supply");
	} else if (l->clock_mhz && seen.mhz > CLOCK_CHANGE * l->clock_mhz) {
		d->noticed = 1;
		snprintf(d->why, sizeof(d->why), "the GPU's clock changed by %u of %u MHz", seen.mhz, l->clock_mhz);
	} else if (seen.slow & SW_POWER_CAP) {
		d->noticed = 1;
		snprintf(d->why, sizeof(d->why), "the GPU reached its power limit");
	}
}

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

void ww_load_start(struct ww_load *l, const struct ww_judge *j, const pid_t *own, int n_own, int patient)
{
	memset(l, 0, sizeof(*l));
	l->patient = patient;
	l->judge = j;
	for (int i = 0; i < n_own && i < WW_LOAD_PROCESSES; i++)
		l->own[i] = own[i];
	l->start_ns = ww_now_ns();
	if (j->opts.target == WW_TARGET_CUDA) {
		start_cuda(l);
	} else {
		l->busy_s = machine_busy_s();
		l->own_s = own_s(l);
	}
	l->policies_s = ww_load_policies_s(0);
}

void ww_load_end(const struct ww_load *l, struct ww_disturbance *d)
{
	memset(d, 0, sizeof(*d));
	if (l->judge->opts.target == WW_TARGET_CUDA)
		end_cuda(l, d);
	else
		end_cpu(l, d);
	end_policies(l, d);
}
