/* proc.h - worker processes: start, talk to, watch, kill, reap.
 *
 * A worker is this same binary, started as `warpwright __NAME ARGS...`, with one end of a Unix stream socket pair as
 * descriptor 3 and the other in `fd`.  It gets an environment of a few named variables (never keys or tokens),
 * /dev/null as standard input and output, no other descriptor than those handed over, its own process group, and, where
 * the system allows, its own namespaces.
 *
 * A worker exits when its socket is closed: every worker loop exits at end of file, so none survives a killed parent;
 * in a pid namespace everything that the worker started ends with it.  A worker that cannot read its socket, because
 * untrusted code loops in it, is killed by the kernel (PR_SET_PDEATHSIG).  That fires when the *thread* that spawned it
 * ends, so one thread that lives as long as the process spawns all workers.
 *
 * A struct ww_proc belongs to one thread at a time.  Its pid is ours until ww_proc_wait() or ww_proc_kill() has reaped
 * it, so that no signal can hit another process.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>
#include <sys/types.h>

enum { WW_PROC_FD = 3, WW_PROC_FIRST_EXTRA_FD = 4, WW_PROC_MAX_EXTRA_FDS = 16 };

struct ww_proc {
	pid_t pid;      /* 0: none */
	int fd;         /* our end of the socket pair, close-on-exec */
	int err_fd;     /* reads its stderr, with WW_STDERR_PIPE; else -1 */
	int namespaces; /* it has its own */
	char *cgroup;   /* directory of the cgroup that limits it and what it starts to memory_bytes, or NULL */
	/* One that another process of ours has forked (task/forker.h) is no child of this one: a pidfd, and the pipe on
	 * which its parent reports its end, struct ww_job_end (zygote.h).  -1 else. */
	int pidfd, status_fd;
};
#define WW_PROC_INIT { 0, -1, -1, 0, NULL, -1, -1 }

enum ww_stderr { WW_STDERR_NULL, WW_STDERR_INHERIT, WW_STDERR_PIPE };
struct ww_proc_opts {
	const char *worker;      /* "runner": __runner; or NULL with program */
	const char *program;     /* in place of a worker: another program, by path (the reference worker's Python) */
	const char *const *args; /* ends with NULL; may be NULL */
	const char *const *env;  /* more variables: "HOME" is passed on, "OMP_NUM_THREADS=1" set; ends with NULL */
	const int *extra_fds;    /* become descriptors 4, 5, ... there */
	int n_extra_fds;
	int namespaces; /* try for its own user, mount, pid, net, ipc and uts namespaces */
	/* With namespaces, where we are root: its root is user 65534 outside.  Limits on the number of processes hold for
	 * that user (for root they do not), and it owns no file of ours.  It keeps a descriptor of its program, not the
	 * path. */
	int nobody;
	/* With namespaces, where we are root: 4,094 further users that own nothing, 1 and up inside, for it to hand out to
	 * what it forks, so that limits on the number of processes hold for each by itself. */
	int users;
	/* Memory limit of it and all that it starts, tmpfs files and kernel pages included, enforced by the kernel where
	 * cgroup.h can make a group.  It is above the watcher's limit, for memory that no watcher sees.  0: no group.
	 */
	uint64_t memory_bytes;
	int max_tasks; /* processes and threads of the same; 0: no limit */
	enum ww_stderr err_mode;
};

enum ww_rc ww_proc_spawn(struct ww_proc *p, const struct ww_proc_opts *o, struct ww_err *err) WW_MUST_CHECK;
/* SIGKILL to it and its group (and its cgroup), reap, close the descriptors.  Safe on one that never started, or twice.
 */
void ww_proc_kill(struct ww_proc *p);
/* Wait until it has ended, at most to deadline_ns (ww_now_ns() clock; 0: for ever); reaps it.  *status as waitpid(2)
 * has it. WW_ERR_TIMEOUT where it still runs. */
enum ww_rc ww_proc_wait(struct ww_proc *p, uint64_t deadline_ns, int *status, struct ww_err *err) WW_MUST_CHECK;
/* 1 while it runs (a zombie does not). */
int ww_proc_alive(const struct ww_proc *p);
/* What limits on memory count of one process: resident and swapped pages and page tables (untouched memory that is read
 * has tables and no pages).  shared: and shared anonymous memory that it has mapped, whole (0.5 ms; for profiles whose
 * filter allows such memory).  0 where it is gone. */
uint64_t ww_proc_memory_bytes(pid_t pid, int shared);
/* A process and all its descendants.  Pages that fork() has left shared count for each process.  Where there are more
 * than WW_PROC_TREE_MAX processes or threads: one more than that, and UINT64_MAX bytes; memory is not looked at. */
enum { WW_PROC_TREE_MAX = 8192 };
struct ww_proc_tree {
	int processes; /* with a living thread */
	int tasks;     /* as the kernel's limits count: threads, and the dead that nobody has reaped */
	uint64_t bytes;
};
/* What is asked of memory: nothing (bytes are 0), or as ww_proc_memory_bytes() without and with `shared`. */
enum ww_proc_memory { WW_PROC_NO_MEMORY, WW_PROC_RESIDENT, WW_PROC_SHARED };
struct ww_proc_tree ww_proc_tree(pid_t pid, enum ww_proc_memory memory);
/* The letter of a process's or thread's state in its stat file: "Z" of a dead one. */
char ww_proc_state(const char *stat);
/* 1 where a child shares its parent's memory: between vfork() and exec, or after clone() with CLONE_VM.  0 also where
 * the kernel does not tell. */
int ww_proc_shares_memory(pid_t parent, pid_t child);
/* "exited with code 3", "killed by signal 11 (Segmentation fault)". */
void ww_proc_status_text(int status, struct ww_str *out);

/* Read n bytes from the worker as ww_fd_read() does, and check its resident size every 20 ms: beyond max_resident_bytes
 * (0: not watched) it is killed, WW_ERR_LIMIT. */
enum ww_rc ww_proc_read(struct ww_proc *p, void *buf, size_t n, uint64_t deadline_ns, uint64_t max_resident_bytes,
	struct ww_err *err) WW_MUST_CHECK;
