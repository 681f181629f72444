/* load.c - did somebody else use the machine while we measured?
 *
 * cpu: the kernel counts the busy and stolen time of the whole machine in /proc/stat and of each process in
 * /proc/PID/stat; what is left over after ourselves, the reference worker and the runner is somebody else's.  cuda: NVML,
 * where the driver's library is there, lists the compute processes of the GPU; more of them than ours is a stranger (a
 * container may hide their ids but not their number).  Neither finds everything; the spread of the samples is looked at
 * beside it. */
#include "judge/internal.h"

#include "base/time.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double OTHERS_SHARE = 0.05;

/* user nice system idle iowait irq softirq steal */
static double machine_busy_s(void)
{
	unsigned long long v[8] = { 0 };
	FILE *f = fopen("/proc/stat", "re");
	if (!f)
		return 0;
	int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
	fclose(f);
	return n < 8 ? 0 : (double)(v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
}

static double process_s(pid_t pid)
{
	char path[64], line[1024];
	unsigned long long user = 0, system = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	size_t n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = 0;
	const char *p = strrchr(line, ')');
	if (!p || sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
		return 0;
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double own_s(const struct ww_judge_task *t, const struct ww_runner *r)
{
	return process_s(getpid()) + process_s(ww_ref_pid(t->ref)) + (r ? process_s(ww_runner_pid(r)) : 0);
}

void ww_load_start(struct ww_load *l, const struct ww_judge_task *t, const struct ww_runner *r)
{
	l->busy_s = machine_busy_s();
	l->own_s = own_s(t, r);
	l->start_ns = ww_now_ns();
}

/* Number of compute processes on the GPU with this ordinal, -1 where NVML cannot say. */
static int gpu_processes(const char *uuid)
{
	static void *lib;
	int (*init)(void), (*by_uuid)(const char *, void **), (*running)(void *, unsigned *, void *);
	void *device = NULL;
	unsigned n = 0;
	if (!lib)
		lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return -1;
	*(void **)&init = dlsym(lib, "nvmlInit_v2");
	*(void **)&by_uuid = dlsym(lib, "nvmlDeviceGetHandleByUUID");
	*(void **)&running = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (!init || !by_uuid || !running || init() != 0 || by_uuid(uuid, &device) != 0)
		return -1;
	int rc = running(device, &n, NULL);	/* 0: none; 7: there are n, the list did not fit */
	return rc == 0 || rc == 7 ? (int)n : -1;
}

int ww_load_disturbed(const struct ww_load *l, const struct ww_judge_task *t, const struct ww_runner *r)
{
	const struct ww_judge *j = t->judge;
	if (j->opts.target == WW_TARGET_CUDA) {
		int ours = 2 + (j->spare != NULL);	/* reference worker, runner, spare runner */
		return gpu_processes(j->facts.uuid) > ours;
	}
	double others = machine_busy_s() - l->busy_s - (own_s(t, r) - l->own_s);
	double capacity = ww_seconds_since(l->start_ns) * (double)sysconf(_SC_NPROCESSORS_ONLN);
	return others > OTHERS_SHARE * capacity;
}
