/* cpu_facts.c - what a plan may know about this machine. */
#include "judge/run/cpu.h"

#include "base/time.h"
#include "host/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

static int vector_bytes(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return 64;
	return __builtin_cpu_supports("avx2") ? 32 : 16;
#else
	return 16;
#endif
}

/* Two units that multiply and add a vector in each cycle, at a clock that no processor exceeds (a virtual machine does
 * not tell its own); pairs of halves, or AMX's tiles. */
static void limits(struct ww_run_facts *f)
{
#if defined(__x86_64__)
	static const double CLOCK_HZ = 6.2e9, TILE_FLOPS = 1024;
	unsigned a, b, c, d = 0;
	double plain = 2 * 2 * (f->device.vector_bytes / 4), matrix = 2 * plain;
	int amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1);
	f->plain_limit_flops = f->device.threads * CLOCK_HZ * plain;
	f->matrix_limit_flops = f->device.threads * CLOCK_HZ * (amx ? TILE_FLOPS : matrix);
#else
	(void)f;
#endif
}

static int read_word(int index, const char *what, char out[24])
{
	char path[96];
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
	FILE *f = fopen(path, "re");
	int ok = f && fscanf(f, "%23s", out) == 1;
	if (f)
		fclose(f);
	return ok;
}

/* The data cache of a level that a core reaches.  sysconf() has the sum of all of a socket's third level on AMD, so it
 * is asked only where the system does not say more. */
static long long cache_bytes(int level, int name, long long def)
{
	enum { INDICES = 8 };
	char of[24], kind[24], size[24], unit;
	long long n;
	for (int i = 0; i < INDICES; i++)
		if (read_word(i, "level", of) && atoi(of) == level && read_word(i, "type", kind) &&
			strcmp(kind, "Instruction") && read_word(i, "size", size) && sscanf(size, "%lld%c", &n, &unit) == 2 &&
			n > 0)
			return n << (unit == 'M' ? 20 : 10);
	long v = sysconf(name);
	return v > 0 ? v : def;
}

/* A large copy, split over threads that wait for one another before each pass: the best of five. */
struct copy {
	char *to, *from;
	size_t bytes;
	int threads;
	pthread_barrier_t line;
	uint64_t best_ns;
};
struct copier {
	struct copy *c;
	int thread;
	pthread_t id;
};

static void *copier_main(void *arg)
{
	struct copier *w = arg;
	struct copy *c = w->c;
	size_t part = c->bytes / (size_t)c->threads, from = part * (size_t)w->thread;
	for (int pass = 0; pass < 5; pass++) {
		pthread_barrier_wait(&c->line);
		uint64_t start = ww_now_ns();
		memcpy(c->to + from, c->from + from, part);
		pthread_barrier_wait(&c->line);
		uint64_t took = ww_now_ns() - start;
		if (!w->thread && took < c->best_ns)
			c->best_ns = took;
	}
	return NULL;
}

static double copy_bandwidth(int threads, long long l3)
{
	struct copy c = { .threads = threads, .best_ns = UINT64_MAX };
	struct copier *w = calloc((size_t)threads, sizeof(*w));
	c.bytes = (size_t)(l3 * 2 < (64 << 20) ? 64 << 20 : l3 * 2 > (256 << 20) ? 256 << 20 : l3 * 2);
	char *both = mmap(NULL, 2 * c.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!w || both == MAP_FAILED || pthread_barrier_init(&c.line, NULL, (unsigned)threads)) {
		free(w);
		return 0;
	}
	c.to = both;
	c.from = both + c.bytes;
	int started = 1;
	for (int t = 0; t < threads; t++)
		w[t] = (struct copier){ .c = &c, .thread = t };
	for (; started < threads; started++)
		if (pthread_create(&w[started].id, NULL, copier_main, &w[started]))
			_exit(3); /* threads that started wait at the barrier for ever; the caller needs a new runner */
	copier_main(&w[0]);
	for (int t = 1; t < threads; t++)
		pthread_join(w[t].id, NULL);
	pthread_barrier_destroy(&c.line);
	munmap(both, 2 * c.bytes);
	free(w);
	return 2.0 * (double)c.bytes / ((double)c.best_ns * 1e-9);
}

void ww_cpu_facts(struct ww_run_facts *f, int threads, int measure)
{
	struct utsname u;
	char model[41];

	memset(f, 0, sizeof(*f));
	f->abi = WW_RUN_ABI;
	f->device.target = WW_TARGET_CPU;
	f->device.threads = threads;
	f->device.vector_bytes = vector_bytes();
	limits(f);
	f->device.shared_per_block_bytes = WW_CPU_SHARED_BYTES;
	f->device.l1_bytes = cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE, 32 << 10);
	f->device.l2_bytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, 512 << 10);
	f->device.l3_bytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, 16 << 20);
	f->device.memory_bytes = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	if (measure)
		f->device.memory_bytes_per_s = copy_bandwidth(threads, f->device.l3_bytes);
	ww_host_cpu_name(model, sizeof(model));
	snprintf(f->name, sizeof(f->name), "%s, %d thread%s", model, threads, threads == 1 ? "" : "s");
	snprintf(f->uuid, sizeof(f->uuid), "cpu");
	snprintf(f->driver, sizeof(f->driver), "%.60s", uname(&u) == 0 ? u.release : "?");
}
