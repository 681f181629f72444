/* cgroup.h - limits of memory and tasks that the kernel enforces, for a process and all that it starts (cgroup v2).
 *
 * Groups are made in our own cgroup or in its parent.  We must be able to write there, and it must hand down the memory
 * controller: that is so for root, and where systemd has delegated the cgroup.  Elsewhere no group is made and the
 * watchers (proc.h) are the only limit; doctor says so.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

/* The directory where groups are made, or NULL; found once. */
const char *ww_cgroup_base(void);
/* The same from the text of /proc/self/mountinfo and /proc/self/cgroup; 0 where there is none.  out: PATH_MAX bytes. */
int ww_cgroup_find(const char *mounts, const char *groups, char *out);

/* A new group's directory (malloc'ed; NULL where none can be made), and in *procs a descriptor: a process that writes
 * "0" to it joins the group, with all that it starts from then on.  max_tasks: processes and threads, 0 for no limit;
 * it holds where the controller of pids is handed down, too. */
char *ww_cgroup_new(uint64_t memory_bytes, int max_tasks, int *procs);
/* Kill what is left in it and remove it. */
void ww_cgroup_end(char **dir);
