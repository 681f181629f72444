/* cgroup.h - a memory limit that the kernel enforces, for a process and all that it starts (cgroup v2).
 *
 * Groups can be made in our own cgroup or the one above it, where that is ours to write and hands the memory controller
 * down: where we are root, or systemd has delegated it.  Where neither does, nothing is made and the watchers (proc.h)
 * are the only limit; doctor says so.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

/* The directory where groups are made, or NULL; found once. */
const char *ww_cgroup_base(void);
/* The same from the text of /proc/self/mountinfo and /proc/self/cgroup; 0 where there is none.  out: PATH_MAX bytes. */
int ww_cgroup_find(const char *mounts, const char *groups, char *out);

/* A new group's directory (malloc'ed; NULL where none can be made), and in *procs a descriptor: a process that writes
 * "0" to it joins the group, with all that it starts from then on. */
char *ww_cgroup_new(uint64_t memory_bytes, int *procs);
/* Kill what is left in it and remove it. */
void ww_cgroup_end(char **dir);
