/* sandbox.h - restrict the calling process.
 *
 * How far a process can be restricted before untrusted input reaches it depends on the system:
 *
 *     NAMESPACES  user, mount, pid, network, ipc and uts namespaces of its own.  Its root is an empty tmpfs with the
 *                 listed paths bound into it, read-only unless said otherwise.  And everything below.
 *     LANDLOCK    where namespaces are forbidden (most containers): Landlock rules for the same paths, TCP closed where
 *                 the kernel can.  And everything below.
 *     SECCOMP     the system-call filter of its profile, no new privileges, resource limits, not dumpable.  The filters
 *                 of BUILDER and RUNNER_CPU open no file at all, so these two lose nothing here; a compiler at this
 *                 level can still read what this user can read.
 *     NONE        not even a filter
 *
 * Verdicts and doctor report the level reached; a caller that needs more than a level gives refuses to run.
 *
 * Namespaces must exist before the process is one (a pid namespace holds the children of the process that makes it), so
 * they are made by ww_proc_spawn(); ww_sandbox_enter() is called by the worker itself once it has loaded what it needs,
 * and applies all other restrictions.  $WARPWRIGHT_SANDBOX (namespaces, landlock, seccomp) lowers the level for tests
 * and for systems where a higher one misbehaves.
 *
 * Memory is not limited by address space where CUDA or PyTorch runs, which reserve terabytes: the parent watches the
 * resident size (proc.h).  Builders and compilers do get an address-space limit: it acts at once and needs no watcher.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

enum ww_sandbox_level { WW_SANDBOX_NONE, WW_SANDBOX_SECCOMP, WW_SANDBOX_LANDLOCK, WW_SANDBOX_NAMESPACES };
const char *ww_sandbox_level_name(enum ww_sandbox_level l); /* "namespaces" */
const char *ww_sandbox_level_text(enum ww_sandbox_level l); /* one sentence: what is held and what is not */

enum ww_sandbox_profile {
	WW_PROFILE_BUILDER,     /* memory and exit; no open, no process, no thread, no socket, no clock */
	WW_PROFILE_COMPILER,    /* files, processes and exec within the paths; no socket */
	WW_PROFILE_RUNNER_CPU,  /* memory, futexes, clocks, read/write/send/recv on open descriptors; no open, process,
	                         * thread, exec or socket: its threads are started before the filter */
	WW_PROFILE_RUNNER_CUDA, /* what the CUDA driver needs: ioctl, open within the paths, threads; no process, exec,
	                           connection */
	WW_PROFILE_PYTHON,      /* untrusted Python and native code on PyTorch: files, threads, processes, exec within
	                           the paths; no socket, no IPC, no memory that no resident size shows, no call that
	                           continues a stopped process */
	WW_PROFILE_PYTHON_CUDA, /* the same with the CUDA driver, which makes Unix sockets and shared anonymous memory (the
	                           watcher counts that: proc.h); nothing connects or listens */
	WW_PROFILE_SHELL, /* an untrusted shell and what it starts: files, processes, exec; no socket, no memory outside
	                     every limit, no call that continues a stopped process */
	WW_PROFILE_SHELL_INIT, /* process 1 of that sandbox, our own: as SHELL, but may continue processes and load that
	                          filter */
	WW_PROFILE_COUNT
};

/* A path that stays visible.  Missing paths are skipped.  But for PYTHON_CUDA, /dev/zero can be read and neither
 * written nor mapped, and is not there at LANDLOCK (internal.h). */
enum { WW_BIND_READ = 0, WW_BIND_WRITE = 1, WW_BIND_DEVICE = 2 }; /* DEVICE: device nodes may be used */
struct ww_sandbox_bind {
	const char *path;
	int flags;
};

struct ww_sandbox_limits { /* 0: left as it is */
	int64_t address_space_bytes;
	int64_t data_bytes; /* private writable memory of one process */
	int64_t file_bytes; /* of any file it writes */
	int64_t cpu_s;      /* of one process; SIGXCPU, a second later SIGKILL */
	int64_t files;      /* open descriptors */
	int64_t processes;  /* of this user in this user namespace (see ww_proc_opts.nobody) */
};

struct ww_sandbox_opts {
	enum ww_sandbox_profile profile;
	const struct ww_sandbox_bind *binds; /* may be NULL: no file at all */
	int n_binds;
	const char *tmp;   /* a writable private directory: at NAMESPACES a fresh tmpfs mounted there (the path
	                    * is made); below, a directory that the caller made and removes.  NULL: none */
	int64_t tmp_bytes; /* size of that tmpfs; 0: 256 MiB */
	int tmp_entries;   /* files and folders of that tmpfs; 0: as many as fit */
	int64_t shm_bytes; /* NAMESPACES: a private /dev/shm of this size; 0: none */
	int with_proc;     /* NAMESPACES: mount /proc of its own pid namespace (PyTorch, CUDA) */
	/* NAMESPACES: called with the path of the private root while that can still be written; what it puts there (16 MiB
	 * at most) is read-only afterwards.  -1 and errno: there is no root.  NULL: nothing. */
	int (*prepare)(void *ctx, const char *root);
	void *prepare_ctx;
	int keep_capabilities; /* NAMESPACES: a trusted process that makes further namespaces inside its own */
	struct ww_sandbox_limits limits;
};

/* The highest level that works here, found by trying it in a child (5 ms, once a process), at most $WARPWRIGHT_SANDBOX.
 */
enum ww_sandbox_level ww_sandbox_probe(void);

/* 1 in a worker that was started in namespaces of its own: ww_sandbox_isolate() will reach NAMESPACES or fail. */
int ww_sandbox_has_namespaces(void);
/* In a worker with namespaces of its own, before ww_sandbox_isolate(): the path of a fresh tmpfs that no other process
 * sees, to be shown read-only afterwards through `binds` (it covers /sys, which holds nothing that is ever shown).
 * NULL without namespaces. */
const char *ww_sandbox_private_dir(void);
/* In the worker, single-threaded, after everything that it must open is open: the file view (private root or
 * Landlock), dropped capabilities, limits.  A zygote does this once; what it forks inherits it.  *reached says what
 * held. */
enum ww_rc ww_sandbox_isolate(
	const struct ww_sandbox_opts *o, enum ww_sandbox_level *reached, struct ww_err *err) WW_MUST_CHECK;
/* In the worker or in a job forked from a zygote, last thing before untrusted input is read: the system-call filter of
 * the profile, on all threads, for good.  Forbidden calls fail with EPERM (EACCES for files), so that libraries degrade
 * instead of dying, except that ptrace, bpf, kexec, module and keyring calls kill. */
enum ww_rc ww_sandbox_filter(enum ww_sandbox_profile profile, struct ww_err *err) WW_MUST_CHECK;
/* Make the filter ahead of time (3 ms), so that ww_sandbox_filter() in a forked job costs microseconds. */
enum ww_rc ww_sandbox_filter_prepare(enum ww_sandbox_profile profile, struct ww_err *err) WW_MUST_CHECK;
/* The filter's program (an array of struct sock_filter) in a memfd, for a process that loads it itself. */
enum ww_rc ww_sandbox_filter_file(enum ww_sandbox_profile profile, int *fd, struct ww_err *err) WW_MUST_CHECK;
/* ww_sandbox_isolate(), then ww_sandbox_filter(). */
enum ww_rc ww_sandbox_enter(
	const struct ww_sandbox_opts *o, enum ww_sandbox_level *reached, struct ww_err *err) WW_MUST_CHECK;
/* Set limits alone (a job with tighter ones than its zygote). */
enum ww_rc ww_sandbox_limit(const struct ww_sandbox_limits *l, struct ww_err *err) WW_MUST_CHECK;
