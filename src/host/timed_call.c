/* timed_call.c - see timed_call.h. */
#include "host/timed_call.h"

#include "base/time.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A thread computed in a call if it ran for an eighth of the busiest one's time. */
enum { MAX_THREADS = 1024, BUSY = 8 };

struct thread {
	pid_t id;
	uint64_t ran_ns, waited_ns;
};

struct threads {
	struct thread of[MAX_THREADS]; /* by id, once sorted */
	int n;
};

struct ww_timed_call {
	pid_t pid;
	uint64_t start_ns, caller_ns; /* time that the caller had waited */
	struct threads before, now;
};

/* A line that the kernel writes about a thread; "" where the thread is gone. */
static void read_line(int tasks, const char *thread, const char *file, char *line, size_t cap)
{
	char path[64];
	snprintf(path, sizeof(path), "%.40s/%s", thread, file);
	int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, cap - 1);
	if (fd >= 0)
		close(fd);
	line[n > 0 ? n : 0] = 0;
}

/* "time on a processor, time waiting for one, times it was put on one" */
static int look_at(int tasks, const char *thread, struct thread *t)
{
	char line[128];
	unsigned long long ran, waited;
	read_line(tasks, thread, "schedstat", line, sizeof(line));
	if (sscanf(line, "%llu %llu", &ran, &waited) != 2)
		return 0;
	*t = (struct thread){ atoi(thread), ran, waited };
	return 1;
}

int ww_wait_is_measured(void) { return access("/proc/self/schedstat", R_OK) == 0; }

static uint64_t caller_ns(void)
{
	struct thread t;
	return look_at(AT_FDCWD, "/proc/thread-self", &t) ? t.waited_ns : 0;
}

static int by_id(const void *a, const void *b)
{
	const struct thread *x = a, *y = b;
	return (x->id > y->id) - (x->id < y->id);
}

static int by_time(const void *a, const void *b)
{
	const struct thread *x = a, *y = b;
	return x->ran_ns != y->ran_ns ? (x->ran_ns < y->ran_ns) - (x->ran_ns > y->ran_ns) : by_id(a, b);
}

static void look(pid_t pid, struct threads *t)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	t->n = 0;
	for (struct dirent *e; d && t->n < MAX_THREADS && (e = readdir(d));)
		if (e->d_name[0] != '.')
			t->n += look_at(dirfd(d), e->d_name, &t->of[t->n]);
	if (d)
		closedir(d);
	qsort(t->of, (size_t)t->n, sizeof(t->of[0]), by_id);
}

uint64_t ww_process_used_ns(pid_t pid)
{
	clockid_t clock;
	struct timespec t = { 0, 0 };
	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct ww_timed_call *ww_timed_call_begin(pid_t pid)
{
	struct ww_timed_call *c = pid > 0 ? malloc(sizeof(*c)) : NULL;
	if (!c)
		return NULL;
	c->pid = pid;
	look(pid, &c->before);
	c->caller_ns = caller_ns();
	c->start_ns = ww_now_ns();
	return c;
}

/* From totals to what was added since `before`. */
static void subtract(struct threads *now, const struct threads *before)
{
	for (int i = 0; i < now->n; i++) {
		struct thread *t = &now->of[i];
		const struct thread *b = bsearch(t, before->of, (size_t)before->n, sizeof(*b), by_id);
		if (b) {
			t->ran_ns = ww_grown(b->ran_ns, t->ran_ns);
			t->waited_ns = ww_grown(b->waited_ns, t->waited_ns);
		}
	}
}

static void move(pid_t thread, const cpu_set_t *to)
{
	cpu_set_t at;
	if (sched_getaffinity(thread, sizeof(at), &at) == 0 && !CPU_EQUAL(&at, to))
		sched_setaffinity(thread, sizeof(*to), to);
}

static void set_affinity(struct threads *t)
{
	cpu_set_t mine, one;
	int busy = 0, cpu = -1;
	if (sched_getaffinity(0, sizeof(mine), &mine))
		return;
	qsort(t->of, (size_t)t->n, sizeof(t->of[0]), by_time);
	while (busy < t->n && t->of[busy].ran_ns > 0 && t->of[busy].ran_ns >= t->of[0].ran_ns / BUSY)
		busy++;
	int pinned = busy < CPU_COUNT(&mine) ? 0 : CPU_COUNT(&mine);
	qsort(
		t->of, (size_t)pinned, sizeof(t->of[0]), by_id); /* a thread that stays among the busiest keeps its processor */
	for (int i = 0; i < t->n; i++) {
		if (i >= pinned) {
			move(t->of[i].id, &mine);
			continue;
		}
		while (!CPU_ISSET(++cpu, &mine))
			;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		move(t->of[i].id, &one);
	}
}

/* The thread that starts a call often waits behind the threads that it has started, which costs them nothing.  It adds
 * to the call's time only what it needs after their end, at most the time in which each of them neither ran nor waited.
 */
static uint64_t caller_lag_ns(const struct ww_timed_call *c, uint64_t waited_ns)
{
	uint64_t took_ns = ww_now_ns() - c->start_ns, longest = 0;
	for (int i = 0; i < c->now.n; i++) {
		uint64_t there = c->now.of[i].ran_ns + c->now.of[i].waited_ns;
		longest = there > longest ? there : longest;
	}
	uint64_t idle = ww_grown(longest, took_ns);
	return waited_ns < idle ? waited_ns : idle;
}

double ww_timed_call_end(struct ww_timed_call *c)
{
	if (!c)
		return 0;
	uint64_t waited = ww_grown(c->caller_ns, caller_ns());
	look(c->pid, &c->now);
	subtract(&c->now, &c->before);
	double us = (double)caller_lag_ns(c, waited) * 1e-3;
	for (int i = 0; i < c->now.n; i++)
		us += (double)c->now.of[i].waited_ns * 1e-3;
	set_affinity(&c->now);
	free(c);
	return us;
}

/* The state letter follows the last ')' of "id (name) letter ...".  A thread that has ended does nothing any more. */
static int sleeps(int tasks, const char *thread)
{
	char line[512];
	read_line(tasks, thread, "stat", line, sizeof(line));
	const char *name_end = strrchr(line, ')');
	return !*line || (name_end && name_end[1] && strchr("SIZX", name_end[2]));
}

int ww_threads_asleep(pid_t pid)
{
	char path[64];
	int asleep = 1;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	for (struct dirent *e; d && asleep && (e = readdir(d));)
		if (e->d_name[0] != '.')
			asleep = sleeps(dirfd(d), e->d_name);
	if (d)
		closedir(d);
	return asleep;
}
