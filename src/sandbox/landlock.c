/* landlock.c - the file view where namespaces are forbidden: Landlock rules (Linux 5.13 and later).
 *
 * Everything that the running kernel's version can restrict is restricted, and only the listed paths are given back.
 * The constants and structures are written out here because the header of an older distribution lacks the newer ones;
 * the kernel accepts a structure that is longer than it knows only if the rest is zero, so the size passed follows the
 * version.
 *
 *     version  adds
 *     1        files and directories
 *     2        renaming and linking across directories
 *     3        truncate
 *     4        TCP bind and connect
 *     5        ioctl on devices
 *     6        abstract Unix sockets and signals to processes outside
 *
 * A rule belongs to an inode and keeps it in memory.  That is not enough in /proc, which makes a new inode when a path
 * is looked up again after its cache entry was dropped (memory pressure): the rule for /proc/self would be lost.  A
 * descriptor on the path keeps the entry, so rules in /proc hold theirs open for the life of the process, across exec
 * too.
 */
#include "sandbox/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

struct ruleset {
	uint64_t fs, net, scoped;
};
struct path_rule {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));
enum { GET_VERSION = 1, RULE_PATH_BENEATH = 1 };

#define FS_EXECUTE	(1ull << 0)
#define FS_WRITE_FILE	(1ull << 1)
#define FS_READ_FILE	(1ull << 2)
#define FS_READ_DIR	(1ull << 3)
#define FS_V1		((1ull << 13) - 1)
#define FS_REFER	(1ull << 13)
#define FS_TRUNCATE	(1ull << 14)
#define FS_IOCTL_DEV	(1ull << 15)
#define FS_ON_FILES	(FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

int ww_landlock_abi(void)
{
	long v = syscall(SYS_landlock_create_ruleset, NULL, 0, GET_VERSION);
	return v > 0 ? (int)v : 0;
}

static uint64_t handled(int abi)
{
	return FS_V1 | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) | (abi >= 5 ? FS_IOCTL_DEV : 0);
}

static int in_proc(int fd)
{
	struct statfs fs;
	return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

static enum ww_rc allow(int rules, const char *path, uint64_t rights, struct ww_err *err)
{
	struct stat st;
	int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return WW_OK; /* a path that is not there needs no right */
	enum ww_rc rc = WW_OK;
	if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
		rights &= FS_ON_FILES;
	struct path_rule r = { rights, fd };
	if (syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &r, 0) < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: Landlock rule for %s", path);
	if (rc != WW_OK || !in_proc(fd))
		close(fd);
	else if (fcntl(fd, F_SETFD, 0) < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot allow access to %s", path);
	return rc;
}

static uint64_t rights_of(int flags, uint64_t all)
{
	if (flags & WW_BIND_WRITE)
		return all & ~(flags & WW_BIND_DEVICE ? 0 : FS_IOCTL_DEV);
	if (flags & WW_BIND_DEVICE)
		return all & (FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_IOCTL_DEV);
	return FS_READ_FILE | FS_READ_DIR | FS_EXECUTE;
}

enum ww_rc ww_landlock_enter(const struct ww_sandbox_opts *o, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int abi = ww_landlock_abi();
	struct ruleset set = { .fs = handled(abi), .net = abi >= 4 ? 3 : 0, .scoped = abi >= 6 ? 3 : 0 };
	size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
	int rules = (int)syscall(SYS_landlock_create_ruleset, &set, size, 0);
	if (rules < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot make Landlock rules");
	for (int i = 0; i < o->n_binds; i++)
		if (!ww_sandbox_is_zeros(o, o->binds[i].path))
			WW_TRY(allow(rules, o->binds[i].path, rights_of(o->binds[i].flags, set.fs), err));
	if (o->tmp)
		WW_TRY(allow(rules, o->tmp, set.fs & ~FS_IOCTL_DEV, err));
	if (o->with_proc)
		WW_TRY(allow(rules, "/proc", FS_READ_FILE | FS_READ_DIR, err));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "sandbox: cannot enter Landlock");
out:
	close(rules);
	return rc;
}
