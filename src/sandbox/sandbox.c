/* sandbox.c - levels, private roots, Landlock, capabilities, limits.  The contract is in sandbox.h, the filters in
 * filter.c.
 *
 * The private root does not depend on any path staying the same: every visible path is opened first (O_PATH), then a
 * tmpfs covers /dev, then the open descriptors are bound into it through /proc/self/fd.  So paths below /dev can be
 * shown although /dev itself is covered, and no rename in between changes what is bound.  After pivot_root() the old
 * root is detached: there is no path back.
 *
 * A new user namespace is used even for root: the process then has its capabilities over its own namespaces only, and
 * gives those up as well before it returns.  Rejected: chroot (a directory descriptor leads out), setuid to "nobody"
 * (needs root, and the user's own files may then not be readable), bubblewrap (one more dependency for 100 lines, and
 * it cannot be entered after libraries are loaded).
 */
#include "sandbox/sandbox.h"

#include "sandbox/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From linux/securebits.h and linux/mount.h, which older systems lack or which clash with sys/mount.h. */
enum { SECURE_ALL_LOCKED = 0x2f }; /* noroot, no setuid fixup, no keep caps: set and locked */
struct mount_attrs {
	uint64_t set, clear, propagation, userns_fd;
};
enum { ATTR_RDONLY = 1, ATTR_NOSUID = 2, ATTR_NODEV = 4 };
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static const char *const level_names[] = { "none", "seccomp", "landlock", "namespaces" };
static const char *const level_texts[] = { "nothing is taken away: tasks and solutions are not contained",
	"system calls are filtered; compilers and a task's Python can read this user's files, a task's Python write them; "
	"no shell, no PyTorch forms",
	"system calls are filtered and files limited to the listed ones; names of processes and the disk are shared; no "
	"shell, no PyTorch forms",
	"own namespaces with a private read-only root and no network, and system calls are filtered" };

const char *ww_sandbox_level_name(enum ww_sandbox_level l)
{
	return (size_t)l < WW_ARRAY_LEN(level_names) ? level_names[l] : "?";
}

const char *ww_sandbox_level_text(enum ww_sandbox_level l)
{
	return (size_t)l < WW_ARRAY_LEN(level_texts) ? level_texts[l] : "?";
}

/* The directory that a private root is mounted on.  It cannot be shown in the root: a bind mount of it would show the
 * root itself. */
#define COVERED "/dev"

/* ---- Namespaces -------------------------------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = write(fd, text, strlen(text));
	close(fd);
	return n < 0 ? -1 : 0;
}

/* Called between fork and exec: nothing here allocates or locks. */
int ww_sandbox_map_ids(unsigned uid, unsigned gid)
{
	char map[64];
	if (write_file("/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (write_file("/proc/self/uid_map", map) < 0)
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return write_file("/proc/self/gid_map", map);
}

static int try_private_mounts(void)
{
	return mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount("tmpfs", COVERED, "tmpfs", 0, "size=64k") == 0 && mkdir(COVERED "/proc", 0755) == 0 &&
		mount("proc", COVERED "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

/* In a child: everything that the level NAMESPACES will do later, to find out now whether the system forbids a later
 * step (AppArmor on Ubuntu 24.04, a masked /proc in containers). */
static int namespaces_work(void)
{
	unsigned uid = geteuid(), gid = getegid();
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(WW_SANDBOX_CLONE_FLAGS) < 0 || ww_sandbox_map_ids(uid, gid) < 0)
			_exit(1);
		pid_t inner = fork(); /* proc belongs to the new pid namespace, whose first process this is */
		if (inner == 0)
			_exit(try_private_mounts() ? 0 : 1);
		int status = 1;
		if (inner < 0 || waitpid(inner, &status, 0) != inner)
			_exit(1);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	int status = 1;
	if (pid < 0)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static enum ww_sandbox_level level_cap(void)
{
	const char *v = getenv("WARPWRIGHT_SANDBOX");
	for (size_t i = WW_SANDBOX_SECCOMP; v && i < WW_ARRAY_LEN(level_names); i++)
		if (!strcmp(v, level_names[i]))
			return (enum ww_sandbox_level)i;
	return WW_SANDBOX_NAMESPACES;
}

static pthread_once_t namespaces_once = PTHREAD_ONCE_INIT;
static int have_namespaces;

static void probe_namespaces(void) { have_namespaces = namespaces_work(); }

enum ww_sandbox_level ww_sandbox_probe(void)
{
	enum ww_sandbox_level cap = level_cap();
	if (cap >= WW_SANDBOX_NAMESPACES) {
		pthread_once(&namespaces_once, probe_namespaces);
		if (have_namespaces)
			return WW_SANDBOX_NAMESPACES;
	}
	if (cap >= WW_SANDBOX_LANDLOCK && ww_landlock_abi() >= 1)
		return WW_SANDBOX_LANDLOCK;
	return prctl(PR_GET_SECCOMP) >= 0 ? WW_SANDBOX_SECCOMP : WW_SANDBOX_NONE;
}

/* ---- The private root -------------------------------------------------------------------------------------------- */

static int make_parents(const char *path, int leaf_is_dir)
{
	char buf[PATH_MAX];
	if ((size_t)snprintf(buf, sizeof(buf), "%s", path) >= sizeof(buf))
		return -1;
	for (char *p = buf + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		if (mkdir(buf, 0755) < 0 && errno != EEXIST)
			return -1;
		*p = '/';
	}
	if (leaf_is_dir)
		return mkdir(buf, 0755) < 0 && errno != EEXIST ? -1 : 0;
	int fd = open(buf, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	return fd < 0 && errno != EEXIST ? -1 : 0;
}

/* Device nodes are written through a read-only mount as well; what cannot be changed there is their mode, owner and
 * times, which are the machine's. */
static int restrict_mount(const char *at, int flags)
{
	struct mount_attrs a = { .set = ATTR_NOSUID };
	if (!(flags & WW_BIND_WRITE) || (flags & WW_BIND_DEVICE))
		a.set |= ATTR_RDONLY;
	if (!(flags & WW_BIND_DEVICE))
		a.set |= ATTR_NODEV;
	if (syscall(SYS_mount_setattr, AT_FDCWD, at, AT_RECURSIVE, &a, sizeof(a)) == 0)
		return 0;
	unsigned long f = MS_REMOUNT | MS_BIND | MS_NOSUID | (a.set & ATTR_RDONLY ? MS_RDONLY : 0) |
		(a.set & ATTR_NODEV ? MS_NODEV : 0);
	return mount(NULL, at, NULL, f, NULL);
}

/* On merged systems /lib and /bin are links into /usr: the link itself must be there. */
static int bind_top_link(const struct ww_sandbox_bind *b, const char *root)
{
	char target[PATH_MAX], at[PATH_MAX];
	struct stat st;
	if (strchr(b->path + 1, '/') || lstat(b->path, &st) < 0 || !S_ISLNK(st.st_mode))
		return 0;
	ssize_t n = readlink(b->path, target, sizeof(target) - 1);
	if (n <= 0 || (size_t)snprintf(at, sizeof(at), "%s%s", root, b->path) >= sizeof(at))
		return 0;
	target[n] = 0;
	return symlink(target, at) == 0 || errno == EEXIST;
}

static enum ww_rc bind_one(const struct ww_sandbox_bind *b, int fd, const char *root, struct ww_err *err)
{
	char at[PATH_MAX], from[64];
	struct stat st;
	if (bind_top_link(b, root))
		return WW_OK;
	if ((size_t)snprintf(at, sizeof(at), "%s%s", root, b->path) >= sizeof(at))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", b->path);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) < 0 || make_parents(at, S_ISDIR(st.st_mode)) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot create a mount point for %s", b->path);
	if (mount(from, at, NULL, MS_BIND | MS_REC, NULL) < 0 || restrict_mount(at, b->flags) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot bind %s", b->path);
	return WW_OK;
}

static enum ww_rc mount_tmpfs(const char *root, const char *path, int64_t bytes, int entries, struct ww_err *err)
{
	char at[PATH_MAX], opts[96];
	if ((size_t)snprintf(at, sizeof(at), "%s%s", root, path) >= sizeof(at))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", path);
	snprintf(opts, sizeof(opts), "mode=0700,size=%lld,nr_inodes=%d", (long long)bytes, entries);
	if (make_parents(at, 1) < 0 || mount("tmpfs", at, "tmpfs", MS_NOSUID | MS_NODEV, opts) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot mount %s", path);
	return WW_OK;
}

enum { SHM_ENTRIES = 4096 };

/* Where we are root, the machine's own settings (core_pattern) could be written in any /proc: no capability is asked
 * for. */
static enum ww_rc mount_proc(const char *root, struct ww_err *err)
{
	static const char *const machine[] = { "sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi" };
	char at[PATH_MAX];
	snprintf(at, sizeof(at), "%s/proc", root);
	if (make_parents(at, 1) < 0 || mount("proc", at, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot mount /proc");
	for (size_t i = 0; i < WW_ARRAY_LEN(machine); i++) {
		snprintf(at, sizeof(at), "%s/proc/%s", root, machine[i]);
		if (access(at, F_OK) == 0 &&
			(mount(at, at, NULL, MS_BIND | MS_REC, NULL) < 0 || restrict_mount(at, WW_BIND_READ) < 0))
			return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot protect /proc/%s", machine[i]);
	}
	return WW_OK;
}

/* With above: the paths that `tmp` lies below, which must be there first. */
static enum ww_rc bind_all(
	const struct ww_sandbox_opts *o, const int *fds, const char *root, int above, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	for (int i = 0; rc == WW_OK && i < o->n_binds; i++) {
		size_t n = strlen(o->binds[i].path);
		int is_above = o->tmp && !strncmp(o->tmp, o->binds[i].path, n) && o->tmp[n] == '/';
		if (fds[i] >= 0 && is_above == above)
			rc = bind_one(&o->binds[i], fds[i], root, err);
	}
	return rc;
}

static enum ww_rc fill_root(const struct ww_sandbox_opts *o, const int *fds, const char *root, struct ww_err *err)
{
	WW_CHECK(bind_all(o, fds, root, 1, err));
	if (o->tmp)
		WW_CHECK(mount_tmpfs(root, o->tmp, o->tmp_bytes ? o->tmp_bytes : 256 << 20, o->tmp_entries, err));
	if (o->shm_bytes)
		WW_CHECK(mount_tmpfs(root, "/dev/shm", o->shm_bytes, SHM_ENTRIES, err));
	WW_CHECK(bind_all(o, fds, root, 0, err));
	if (o->with_proc)
		WW_CHECK(mount_proc(root, err));
	if (o->prepare && o->prepare(o->prepare_ctx, root) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot prepare the private root");
	return WW_OK;
}

/* Standard descriptors that are the machine's /dev/null (`null`) become one of a read-only mount, which nobody sees: by
 * the others, opened before, whoever is root could change its mode for the whole machine. */
static enum ww_rc own_null(int null, const char *root, struct ww_err *err)
{
	static const struct ww_sandbox_bind b = { "/.null", WW_BIND_DEVICE };
	char at[PATH_MAX];
	struct stat machines, st;
	if (null < 0)
		return WW_OK;
	snprintf(at, sizeof(at), "%s%s", root, b.path);
	WW_CHECK(bind_one(&b, null, root, err));
	int fd = open(at, O_RDWR | O_CLOEXEC);
	int bad = fd < 0 || fstat(fd, &machines) < 0 || umount2(at, MNT_DETACH) < 0 || unlink(at) < 0;
	for (int i = 0; !bad && i <= 2; i++)
		if (fstat(i, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == machines.st_rdev)
			bad = dup2(fd, i) < 0;
	if (fd >= 0)
		close(fd);
	return bad ? ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot open /dev/null anew") : WW_OK;
}

enum { MAX_BINDS = 128 };

static enum ww_rc enter_root(const struct ww_sandbox_opts *o, struct ww_err *err)
{
	static const char root[] = COVERED;
	enum ww_rc rc = WW_OK;
	int fds[MAX_BINDS];
	int n = 0;
	if (o->n_binds > MAX_BINDS)
		return ww_err_set(err, WW_ERR_LIMIT, "sandbox: more than %d paths", (int)MAX_BINDS);
	for (; n < o->n_binds; n++) {
		const char *path = o->binds[n].path;
		fds[n] = open(ww_sandbox_is_zeros(o, path) ? WW_SANDBOX_ZEROS_FROM : path, O_PATH | O_CLOEXEC);
	}
	int null = open("/dev/null", O_PATH | O_CLOEXEC);
	if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m") < 0)
		WW_TRY(ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot make a private root"));
	WW_TRY(fill_root(o, fds, root, err));
	WW_TRY(own_null(null, root, err));
	if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ||
		mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot enter the private root");
out:
	if (null >= 0)
		close(null);
	while (n > 0)
		if (fds[--n] >= 0)
			close(fds[n]);
	return rc;
}

int ww_sandbox_has_namespaces(void) { return getenv(WW_SANDBOX_NAMESPACES_ENV) != NULL; }

const char *ww_sandbox_private_dir(void)
{
	if (!ww_sandbox_has_namespaces() || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/sys", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=256m") < 0)
		return NULL;
	return "/sys";
}

/* ---- Capabilities and limits ------------------------------------------------------------------------------------- */

static enum ww_rc drop_capabilities(struct ww_err *err)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2];
	memset(none, 0, sizeof(none));
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* EPERM without CAP_SETPCAP: then there are none to drop */
	(void)prctl(PR_SET_SECUREBITS, SECURE_ALL_LOCKED, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot drop capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot set no_new_privs");
	return WW_OK;
}

static int lower(int what, int64_t value)
{
	struct rlimit old, want;
	if (!value)
		return 0;
	if (getrlimit(what, &old) < 0)
		return -1;
	want.rlim_cur = want.rlim_max = old.rlim_max == RLIM_INFINITY || (rlim_t)value < old.rlim_max ? (rlim_t)value
																								  : old.rlim_max;
	return setrlimit(what, &want);
}

/* A second between the signal that can be told from others and the one that cannot be caught. */
static int lower_cpu(int64_t s)
{
	struct rlimit r;
	if (!s)
		return 0;
	if (lower(RLIMIT_CPU, s + 1) < 0 || getrlimit(RLIMIT_CPU, &r) < 0)
		return -1;
	r.rlim_cur = (rlim_t)s < r.rlim_max ? (rlim_t)s : r.rlim_max;
	return setrlimit(RLIMIT_CPU, &r);
}

enum ww_rc ww_sandbox_limit(const struct ww_sandbox_limits *l, struct ww_err *err)
{
	struct rlimit no_core = { 0, 0 };
	int bad = setrlimit(RLIMIT_CORE, &no_core) < 0 || lower(RLIMIT_FSIZE, l->file_bytes) < 0 ||
		lower_cpu(l->cpu_s) < 0 || lower(RLIMIT_NOFILE, l->files) < 0 || lower(RLIMIT_NPROC, l->processes) < 0;
#ifndef WW_SANITIZE /* AddressSanitizer reserves 20 TB */
	bad = bad || lower(RLIMIT_AS, l->address_space_bytes) < 0 || lower(RLIMIT_DATA, l->data_bytes) < 0;
#endif
	return bad ? ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot set resource limits") : WW_OK;
}

enum ww_rc ww_sandbox_isolate(const struct ww_sandbox_opts *o, enum ww_sandbox_level *reached, struct ww_err *err)
{
	enum ww_sandbox_level want = level_cap();
	*reached = WW_SANDBOX_NONE;
	if (ww_sandbox_has_namespaces()) {
		WW_CHECK(enter_root(o, err));
		*reached = WW_SANDBOX_NAMESPACES;
	}
	if (!o->keep_capabilities || *reached != WW_SANDBOX_NAMESPACES)
		WW_CHECK(drop_capabilities(err));
	if (*reached == WW_SANDBOX_NONE && want >= WW_SANDBOX_LANDLOCK && ww_landlock_abi() >= 1) {
		WW_CHECK(ww_landlock_enter(o, err));
		*reached = WW_SANDBOX_LANDLOCK;
	}
	if (*reached == WW_SANDBOX_NONE && prctl(PR_GET_SECCOMP) >= 0)
		*reached = WW_SANDBOX_SECCOMP; /* once ww_sandbox_filter() has been called */
	WW_CHECK(ww_sandbox_limit(&o->limits, err));
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot clear the dumpable flag (prctl)");
	return WW_OK;
}

enum ww_rc ww_sandbox_enter(const struct ww_sandbox_opts *o, enum ww_sandbox_level *reached, struct ww_err *err)
{
	enum ww_rc rc = ww_sandbox_isolate(o, reached, err);
	return rc == WW_OK ? ww_sandbox_filter(o->profile, err) : rc;
}
