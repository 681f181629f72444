/* filter.c - system-call filters, one a profile.
 *
 * Two shapes.  BUILDER and RUNNER_CPU run untrusted native code that needs almost nothing: an allow-list, every other
 * call fails.  COMPILER, RUNNER_CUDA, PYTHON and SHELL run large programs of ours or of the system: a
 * deny-list, since an allow-list for them breaks with every new libc and protects little more (the file view and the
 * namespaces do the rest).  A forbidden call fails with EPERM, so that a library degrades; calls that only an attack
 * makes kill the process.
 *
 * libseccomp writes the program (architectures, x32 and argument checks right); it is exported once a process and
 * loaded as bytes, because building it takes longer than a whole plan build and a zygote's jobs load it every time.
 * clone3 fails with ENOSYS, as its flags lie in memory where no filter can look; libc then uses clone.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/fsverity.h>
#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Forbidden in every profile: the process is killed. */
static const char *const killed[] = { "ptrace", "process_vm_readv", "process_vm_writev", "bpf", "kexec_load",
	"kexec_file_load", "init_module", "finit_module", "delete_module", "add_key", "request_key", "keyctl",
	"perf_event_open", "userfaultfd", "reboot", "swapon", "swapoff", "acct", "open_by_handle_at", NULL };
static const char *const denied_always[] = { "mount", "umount2", "pivot_root", "chroot", "unshare", "setns",
	"mount_setattr", "move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "fspick", "io_uring_setup",
	"io_uring_enter", "io_uring_register", "name_to_handle_at", "fanotify_init", "quotactl", "settimeofday",
	"clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "personality", "pidfd_getfd",
	"process_madvise", "process_mrelease", "memfd_secret", "kcmp", "mbind", "migrate_pages", "move_pages", "iopl",
	"ioperm", "vhangup", "syslog", "vmsplice", /* one byte in a pipe keeps the huge page around it */
	"io_setup", NULL };                        /* the whole machine has a limited number of contexts */
/* For a process without a private root: calls that change a file without opening it.  Landlock does not see them. */
static const char *const denied_shared_root[] = { "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown",
	"lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr",
	"setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr", NULL };
/* System V objects and message queues can be named by guessing, where they are not in a namespace of their own; and
 * they count in no process's resident size. */
static const char *const denied_ipc[] = { "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl",
	"msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify",
	"mq_getsetattr", NULL };
static const char *const denied_compiler[] = { "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
	"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "setsid", "setpgid",
	"mknod", "mknodat", "inotify_add_watch", NULL };
static const char *const denied_runner_cuda[] = { "execve", "execveat", "fork", "vfork", "connect", "bind", "listen",
	"accept", "accept4", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "mknod",
	"mknodat", NULL };
/* A memfd, and what sockets hold, count in no process's resident size and have no limit. */
static const char *const denied_python[] = { "connect", "mknod", "mknodat", "seccomp", "memfd_create", NULL };
/* The CUDA driver makes Unix sockets and listens when it starts.  They reach no other process: nothing connects. */
static const char *const denied_python_cpu[] = { "socket", "socketpair", "bind", "inotify_add_watch", NULL };

/* Besides sockets: calls that make memory which neither a file system nor a resident size shows, and calls that a shell
 * does not need. */
static const char *const denied_shell[] = { "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
	"mknod", "mknodat", "memfd_create", "setpriority", "sched_setscheduler", "sched_setattr", "mlock", "mlock2",
	"mlockall", "ioprio_set", "inotify_init", "inotify_init1", "fanotify_mark", "pidfd_open", "landlock_create_ruleset",
	"lookup_dcookie", "modify_ldt", NULL };

static const char *const allowed_builder[] = { "brk", "mmap", "munmap", "mprotect", "mremap", "madvise", "exit",
	"exit_group", "rt_sigreturn", "rt_sigprocmask", "futex", "close", NULL };
static const char *const allowed_runner_cpu[] = { "brk", "munmap", "exit", "exit_group", "rt_sigreturn",
	"rt_sigprocmask", "rt_sigaction", "sigaltstack", "futex", "close", "read", "write", "readv", "writev", "recvmsg",
	"sendmsg", "recvfrom", "sendto", "poll", "ppoll", "fstat", "lseek", "clock_gettime", "clock_nanosleep", "nanosleep",
	"sched_yield", "sched_getaffinity", "getpid", "gettid", "getcpu", "getrandom", "membarrier", "restart_syscall",
	"rseq", "set_robust_list", NULL };
#ifdef WW_SANITIZE /* what AddressSanitizer's runtime itself calls */
static const char *const allowed_sanitizer[] = { "write", "getpid", "gettid", "sigaltstack", "rt_sigaction",
	"sched_yield", "readlink", "getrlimit", "prlimit64", "tgkill", "clock_gettime", NULL };
#endif

/* Calls that libseccomp may be too old to know; the number is the same on every architecture. */
static int number_of(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} newer[] = { { "memfd_secret", 447 }, { "process_mrelease", 448 }, { "fchmodat2", 452 }, { "setxattrat", 463 },
		{ "removexattrat", 466 }, { "file_setattr", 469 } };
	int nr = seccomp_syscall_resolve_name(name);
	for (size_t i = 0; nr == __NR_SCMP_ERROR && i < WW_ARRAY_LEN(newer); i++)
		if (!strcmp(newer[i].name, name))
			return newer[i].number;
	return nr;
}

static int add_list(scmp_filter_ctx f, uint32_t action, const char *const *names)
{
	for (; *names; names++) {
		int nr = number_of(*names);
		if (nr == __NR_SCMP_ERROR)
			continue; /* not a call of this architecture */
		int r = seccomp_rule_add(f, action, nr, 0);
		if (r < 0 && r != -EEXIST)
			return r;
	}
	return 0;
}

static int allow_memory_without_code(scmp_filter_ctx f)
{
	struct scmp_arg_cmp no_exec = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int r = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, &no_exec);
	return r < 0 ? r : seccomp_rule_add_array(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, &no_exec);
}

/* What malloc and libraries give.  Not MADV_REMOVE: holes in a shared output are zeros that nobody has written. */
static int allow_plain_advice(scmp_filter_ctx f)
{
	const scmp_datum_t advice[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE,
		MADV_HUGEPAGE, MADV_NOHUGEPAGE };
	int r = 0;
	for (size_t i = 0; r >= 0 && i < WW_ARRAY_LEN(advice); i++) {
		struct scmp_arg_cmp is = SCMP_A2(SCMP_CMP_EQ, advice[i]);
		r = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, SCMP_SYS(madvise), 1, &is);
	}
	return r;
}

static int add_allow_profile(scmp_filter_ctx f, enum ww_sandbox_profile profile)
{
	int r = add_list(f, SCMP_ACT_ERRNO(EACCES), (const char *const[]){ "open", "openat", "openat2", NULL });
	if (r == 0 && profile == WW_PROFILE_BUILDER)
		r = add_list(f, SCMP_ACT_ALLOW, allowed_builder);
	if (r == 0 && profile == WW_PROFILE_RUNNER_CPU) {
		r = allow_memory_without_code(f);
		if (r == 0)
			r = allow_plain_advice(f);
		if (r == 0)
			r = add_list(f, SCMP_ACT_ALLOW, allowed_runner_cpu);
	}
#ifdef WW_SANITIZE
	if (r == 0)
		r = add_list(f, SCMP_ACT_ALLOW, allowed_sanitizer);
#endif
	return r;
}

/* clone() with any namespace flag fails; with threads_only also one that does not make a thread. */
static int restrict_clone(scmp_filter_ctx f, int threads_only)
{
	static const int flags[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS,
		CLONE_NEWCGROUP };
	int r = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	for (size_t i = 0; r == 0 && i < WW_ARRAY_LEN(flags); i++) {
		struct scmp_arg_cmp has = SCMP_A0(SCMP_CMP_MASKED_EQ, (scmp_datum_t)flags[i], (scmp_datum_t)flags[i]);
		r = seccomp_rule_add_array(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &has);
	}
	if (r == 0 && threads_only) {
		struct scmp_arg_cmp process = SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0);
		r = seccomp_rule_add_array(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &process);
	}
	return r;
}

/* EPERM where one argument is as said. */
static int deny_argument(scmp_filter_ctx f, int call, struct scmp_arg_cmp is)
{
	int r = seccomp_rule_add_array(f, SCMP_ACT_ERRNO(EPERM), call, 1, &is);
	return r == -EEXIST ? 0 : r;
}

/* Allow only connected sockets of this machine: a datagram reaches a socket in the file system without a connection. */
static int local_sockets_only(scmp_filter_ctx f)
{
	const int calls[] = { SCMP_SYS(socket), SCMP_SYS(socketpair) };
	int r = 0;
	for (size_t i = 0; r >= 0 && i < WW_ARRAY_LEN(calls); i++) {
		r = deny_argument(f, calls[i], SCMP_A0(SCMP_CMP_NE, AF_UNIX));
		for (int type = SOCK_DGRAM; r >= 0 && type <= SOCK_RAW; type++) /* raw is another name for it */
			r = deny_argument(f, calls[i], SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, (scmp_datum_t)type));
	}
	return r;
}

/* Deny what reaches other processes: limits, priorities and processors of any but the caller; file leases (opening a
 * file with a lease blocks or fails); signals that a descriptor sends, news of a directory among them; input pushed
 * into a terminal. */
static int deny_reach(scmp_filter_ctx f)
{
	const int others[] = { SCMP_SYS(prlimit64), SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_setscheduler),
		SCMP_SYS(sched_setparam), SCMP_SYS(sched_setattr) };
	const unsigned control[] = { F_SETLEASE, F_SETOWN, F_SETOWN_EX, F_SETSIG, F_NOTIFY };
	const unsigned io[] = { FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX };
	int r = deny_argument(f, SCMP_SYS(setpriority), SCMP_A0(SCMP_CMP_NE, PRIO_PROCESS));
	if (r >= 0)
		r = deny_argument(f, SCMP_SYS(setpriority), SCMP_A1(SCMP_CMP_NE, 0));
	if (r >= 0) /* for a user, 0 means all processes of this user */
		r = deny_argument(f, SCMP_SYS(ioprio_set), SCMP_A0(SCMP_CMP_NE, IOPRIO_WHO_PROCESS));
	if (r >= 0)
		r = deny_argument(f, SCMP_SYS(ioprio_set), SCMP_A1(SCMP_CMP_NE, 0));
	for (size_t i = 0; r >= 0 && i < WW_ARRAY_LEN(others); i++)
		r = deny_argument(f, others[i], SCMP_A0(SCMP_CMP_NE, 0));
	for (size_t i = 0; r >= 0 && i < WW_ARRAY_LEN(control); i++)
		r = deny_argument(f, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, control[i]));
	for (size_t i = 0; r >= 0 && i < WW_ARRAY_LEN(io); i++)
		r = deny_argument(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, io[i]));
	return r;
}

/* For the reason of denied_shared_root: a file's flags are changed through a descriptor that is open for reading
 * only. */
static int deny_file_flags(scmp_filter_ctx f)
{
	const unsigned control[] = { FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION,
		FS_IOC32_SETVERSION, FS_IOC_ENABLE_VERITY };
	int r = add_list(f, SCMP_ACT_ERRNO(EPERM), denied_shared_root);
	for (size_t i = 0; r >= 0 && i < WW_ARRAY_LEN(control); i++)
		r = deny_argument(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, control[i]));
	return r;
}

/* A process that a measurement has stopped stays so, and a candidate between its calls: neither its siblings nor a
 * timer, a descriptor or its parent's or child's end may send the one signal that continues it.  ENOSYS: `timeout` then
 * uses an alarm. */
static int deny_continuing(scmp_filter_ctx f)
{
	static const struct {
		int call;
		unsigned arg;
	} signals[] = { { SCMP_SYS(kill), 1 }, { SCMP_SYS(tkill), 1 }, { SCMP_SYS(tgkill), 2 },
		{ SCMP_SYS(rt_sigqueueinfo), 1 }, { SCMP_SYS(rt_tgsigqueueinfo), 2 }, { SCMP_SYS(pidfd_send_signal), 1 } };
	struct scmp_arg_cmp end[] = { SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, PR_SET_PDEATHSIG),
		SCMP_A1(SCMP_CMP_EQ, SIGCONT) };
	int r = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(seccomp), 0);
	for (size_t i = 0; r >= 0 && i < sizeof(signals) / sizeof(*signals); i++)
		r = deny_argument(f, signals[i].call, SCMP_CMP(signals[i].arg, SCMP_CMP_MASKED_EQ, 0xffffffff, SIGCONT));
	if (r >= 0)
		r = deny_argument(f, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, 0xff, SIGCONT));
	if (r >= 0)
		r = seccomp_rule_add_array(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl), 2, end);
	return r < 0 ? r : seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(timer_create), 0);
}

/* Pages of such memory stay when MADV_DONTNEED gives them back, and they count in no process's resident size. */
static int deny_shared_anonymous(scmp_filter_ctx f)
{
	const scmp_datum_t flags = MAP_SHARED | MAP_ANONYMOUS;
	return deny_argument(f, SCMP_SYS(mmap), SCMP_A3(SCMP_CMP_MASKED_EQ, flags, flags));
}

/* Pages that move are there before a call, where the judge looks for what was written in it; the kernel reports no
 * mapping of code that moves.  realloc() copies then. */
static int deny_moving(scmp_filter_ctx f)
{
	return deny_argument(f, SCMP_SYS(mremap), SCMP_A3(SCMP_CMP_MASKED_EQ, MREMAP_MAYMOVE, MREMAP_MAYMOVE));
}

static int add_deny_profile(scmp_filter_ctx f, enum ww_sandbox_profile profile)
{
	static const char *const *const denied[WW_PROFILE_COUNT] = { [WW_PROFILE_COMPILER] = denied_compiler,
		[WW_PROFILE_RUNNER_CUDA] = denied_runner_cuda,
		[WW_PROFILE_PYTHON] = denied_python,
		[WW_PROFILE_PYTHON_CUDA] = denied_python,
		[WW_PROFILE_SHELL] = denied_shell,
		[WW_PROFILE_SHELL_INIT] = denied_shell };
	int shell = profile == WW_PROFILE_SHELL || profile == WW_PROFILE_SHELL_INIT;
	int python = profile == WW_PROFILE_PYTHON || profile == WW_PROFILE_PYTHON_CUDA;
	int sockets = profile == WW_PROFILE_RUNNER_CUDA || profile == WW_PROFILE_PYTHON_CUDA;
	int r = add_list(f, SCMP_ACT_ERRNO(EPERM), denied_always);
	if (r == 0)
		r = add_list(f, SCMP_ACT_ERRNO(EPERM), denied_ipc);
	if (r == 0 && !ww_sandbox_has_namespaces())
		r = deny_file_flags(f);
	if (r == 0)
		r = deny_reach(f);
	if (r == 0 && (profile == WW_PROFILE_SHELL || python))
		r = deny_continuing(f);
	if (r == 0 && (shell || profile == WW_PROFILE_PYTHON))
		r = deny_shared_anonymous(f);
	if (r == 0 && profile == WW_PROFILE_PYTHON)
		r = deny_moving(f);
	if (r == 0)
		r = restrict_clone(f, profile == WW_PROFILE_RUNNER_CUDA);
	if (r == 0 && sockets)
		r = local_sockets_only(f);
	if (r == 0)
		r = add_list(f, SCMP_ACT_ERRNO(EPERM), denied[profile]);
	if (r == 0 && profile == WW_PROFILE_PYTHON)
		r = add_list(f, SCMP_ACT_ERRNO(EPERM), denied_python_cpu);
	return r;
}

/* The filter program of a profile; NULL and errno where it cannot be made. */
static struct sock_fprog *make_program(enum ww_sandbox_profile profile)
{
	int allow_list = profile == WW_PROFILE_BUILDER || profile == WW_PROFILE_RUNNER_CPU;
	struct sock_fprog *prog = NULL;
	struct stat st;
	int r = -ENOMEM, fd = -1;
	scmp_filter_ctx f = seccomp_init(allow_list ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW);
	if (!f)
		goto out;
	r = add_list(f, SCMP_ACT_KILL_PROCESS, killed);
	if (r == 0)
		r = allow_list ? add_allow_profile(f, profile) : add_deny_profile(f, profile);
	if (r < 0)
		goto out;
	fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0 || (r = seccomp_export_bpf(f, fd)) < 0 || fstat(fd, &st) < 0)
		goto out;
	prog = malloc(sizeof(*prog) + (size_t)st.st_size);
	if (!prog)
		goto out;
	prog->len = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
	prog->filter = (struct sock_filter *)(prog + 1);
	if (pread(fd, prog->filter, (size_t)st.st_size, 0) != st.st_size) {
		free(prog);
		prog = NULL;
	}
out:
	if (r < 0)
		errno = -r;
	if (fd >= 0)
		close(fd);
	if (f)
		seccomp_release(f);
	return prog;
}

static pthread_mutex_t programs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sock_fprog *programs[WW_PROFILE_COUNT];

enum ww_rc ww_sandbox_filter_prepare(enum ww_sandbox_profile profile, struct ww_err *err)
{
	pthread_mutex_lock(&programs_lock);
	if (!programs[profile])
		programs[profile] = make_program(profile);
	struct sock_fprog *p = programs[profile];
	pthread_mutex_unlock(&programs_lock);
	return p ? WW_OK : ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot make the system-call filter");
}

enum ww_rc ww_sandbox_filter(enum ww_sandbox_profile profile, struct ww_err *err)
{
	WW_CHECK(ww_sandbox_filter_prepare(profile, err));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, programs[profile]) != 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot load the system-call filter");
	return WW_OK;
}

enum ww_rc ww_sandbox_filter_file(enum ww_sandbox_profile profile, int *fd, struct ww_err *err)
{
	enum ww_rc rc = ww_sandbox_filter_prepare(profile, err);
	*fd = -1;
	if (rc != WW_OK)
		return rc;
	size_t n = programs[profile]->len * sizeof(struct sock_filter);
	*fd = memfd_create("filter", 0);
	if (*fd < 0 || pwrite(*fd, programs[profile]->filter, n, 0) != (ssize_t)n)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot write the system-call filter");
	return WW_OK;
}
