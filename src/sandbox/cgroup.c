/* cgroup.c - see cgroup.h.
 *
 * In cgroup v2 a group hands controllers down only if it has no processes itself (the root excepted) and its parent
 * hands them down.  So our own group works only where it is the root; mostly the one above it works.
 */
#include "sandbox/cgroup.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REMOVE_TRIES = 200, REMOVE_US = 1000, TEXT_BYTES = 1 << 16 };

static int write_in(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];
	int fd = (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) ? open(path, O_WRONLY | O_CLOEXEC)
																					 : -1;
	ssize_t n = fd >= 0 ? write(fd, text, strlen(text)) : -1;
	ww_fd_close(&fd);
	return n == (ssize_t)strlen(text);
}

int ww_cgroup_find(const char *mounts, const char *groups, char *out)
{
	char group[PATH_MAX], root[PATH_MAX], at[PATH_MAX];
	const char *own = strncmp(groups, "0::", 3) ? strstr(groups, "\n0::") : groups;
	if (!own || sscanf(strchr(own, ':') + 2, "%4095[^\n]", group) != 1)
		return 0;
	for (const char *line = mounts; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *type = strstr(line, " - "), *end = strchr(line, '\n');
		if (!type || (end && type > end) || strncmp(type, " - cgroup2 ", 11) ||
			sscanf(line, "%*d %*d %*s %4095s %4095s", root, at) != 2)
			continue;
		size_t n = strcmp(root, "/") ? strlen(root) : 0;
		if (!strncmp(group, root, n) && (!group[n] || group[n] == '/'))
			return (size_t)snprintf(out, PATH_MAX, "%s%s", at, strcmp(group + n, "/") ? group + n : "") < PATH_MAX;
	}
	return 0;
}

/* Groups of programs that were killed. */
static void sweep(const char *dir)
{
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		int pid;
		if (sscanf(e->d_name, "warpwright-%d-", &pid) == 1 && kill(pid, 0) < 0 && errno == ESRCH)
			(void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
}

static char base[PATH_MAX];

static int can_limit(const char *dir)
{
	char path[PATH_MAX];
	static char text[TEXT_BYTES];
	if ((size_t)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", dir) >= sizeof(path))
		return 0;
	(void)ww_fs_peek(AT_FDCWD, path, text, sizeof(text));
	snprintf(path, sizeof(path), "%.*s/cgroup.procs", PATH_MAX - 20, dir);
	return strstr(text, "memory") && access(dir, W_OK) == 0 && access(path, W_OK) == 0;
}

static void find_base(void)
{
	static char mounts[TEXT_BYTES], groups[TEXT_BYTES];
	(void)ww_fs_peek(AT_FDCWD, "/proc/self/mountinfo", mounts, sizeof(mounts));
	(void)ww_fs_peek(AT_FDCWD, "/proc/self/cgroup", groups, sizeof(groups));
	if (!ww_cgroup_find(mounts, groups, base))
		base[0] = 0;
	if (*base && !can_limit(base)) {
		*strrchr(base, '/') = 0;
		if (!can_limit(base))
			base[0] = 0;
	}
	if (*base)
		sweep(base);
}

const char *ww_cgroup_base(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_base);
	return *base ? base : NULL;
}

char *ww_cgroup_new(uint64_t memory_bytes, int max_tasks, int *procs)
{
	static atomic_uint number;
	char dir[PATH_MAX], path[PATH_MAX], limit[32], tasks[32];
	*procs = -1;
	if (!memory_bytes || !ww_cgroup_base() ||
		(size_t)snprintf(dir, sizeof(dir), "%s/warpwright-%d-%u", base, (int)getpid(), ++number) >= sizeof(dir) - 16 ||
		mkdir(dir, 0700) < 0)
		return NULL;
	char *copy = strdup(dir);
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)memory_bytes);
	snprintf(path, sizeof(path), "%.*s/cgroup.procs", PATH_MAX - 16, dir);
	snprintf(tasks, sizeof(tasks), "%d", max_tasks);
	(void)write_in(dir, "memory.swap.max", "0"); /* not there without swap accounting */
	if (max_tasks)
		(void)write_in(dir, "pids.max", tasks); /* not there without that controller */
	if (!copy || !write_in(dir, "memory.max", limit) || (*procs = open(path, O_WRONLY | O_CLOEXEC)) < 0) {
		(void)rmdir(dir);
		free(copy);
		return NULL;
	}
	return copy;
}

void ww_cgroup_end(char **dir)
{
	if (!*dir)
		return;
	(void)write_in(*dir, "cgroup.kill", "1"); /* Linux 5.14 */
	for (int i = 0; rmdir(*dir) < 0 && errno == EBUSY && i < REMOVE_TRIES; i++)
		usleep(REMOVE_US); /* what was killed is being taken down */
	free(*dir);
	*dir = NULL;
}
