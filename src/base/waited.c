/* waited.c - see waited.h. */
#include "base/waited.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* "time on a processor, time waiting for one, times it was put on one" */
static uint64_t waited_by(int tasks, const char *thread)
{
	char path[64], line[128];
	unsigned long long ran, waited;
	snprintf(path, sizeof(path), "%.40s/schedstat", thread);
	int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	if (fd >= 0)
		close(fd);
	line[n > 0 ? n : 0] = 0;
	return sscanf(line, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

int ww_waited_known(void)
{
	return access("/proc/self/schedstat", R_OK) == 0;
}

uint64_t ww_waited_ns(pid_t pid)
{
	char path[64];
	uint64_t ns = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = pid > 0 ? opendir(path) : NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			ns += waited_by(dirfd(d), e->d_name);
	if (d)
		closedir(d);
	return ns;
}

double ww_waited_us_since(pid_t pid, uint64_t before_ns)
{
	uint64_t now = ww_waited_ns(pid);
	return now > before_ns ? (double)(now - before_ns) * 1e-3 : 0;
}

static uint64_t caller_ns(void)
{
	return waited_by(AT_FDCWD, "/proc/thread-self");
}

struct ww_timed_wait ww_timed_wait_begin(pid_t pid)
{
	return (struct ww_timed_wait){ pid, ww_waited_ns(pid), pid > 0 ? caller_ns() : 0 };
}

double ww_timed_wait_us(const struct ww_timed_wait *w)
{
	return w->pid > 0 ? ww_waited_us_since(w->pid, w->called_ns) + (double)(caller_ns() - w->caller_ns) * 1e-3 : 0;
}
