/* oracle.h - run a script of tests/oracle in .venv-oracle (or by $WW_ORACLE_PYTHON), or say that it is not there.
 *
 * Each script writes what a Python library computes into a directory of its own under /tmp, and the test compares.
 * What a script writes that draws its cases itself depends on its text, its arguments and the versions of the libraries
 * alone, and importing those takes longer than all else: it is kept in the tests' cache directory (oracle_kept()).  Our
 * side is computed each time.
 */
#ifndef WW_TESTS_ORACLE_H
#define WW_TESTS_ORACLE_H

#include "unit.h"
#include "base/fs.h"
#include "base/hash.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct oracle {
	pid_t pid;
	FILE *talk;         /* its standard input and output */
	char dir[PATH_MAX]; /* scratch; its standard error is in DIR/log */
};

/* 0: no environment, the caller skips.  The script's arguments are its directory and args. */
static inline int oracle_start(struct oracle *o, const char *script, const char *args)
{
	char root[PATH_MAX], python[PATH_MAX + 32], command[3 * PATH_MAX];
	const char *source = getenv("WW_SOURCE_DIR");
	int ends[2];
	snprintf(root, sizeof(root), "%s", source ? source : ".");
	const char *own = getenv("WW_ORACLE_PYTHON"); /* another interpreter that has the libraries */
	if (own)
		snprintf(python, sizeof(python), "%s", own);
	else
		snprintf(python, sizeof(python), "%s/.venv-oracle/bin/python", root);
	if (access(python, X_OK) != 0) {
		printf("# skip: no .venv-oracle here (tools/setup check makes it)\n");
		return 0;
	}
	snprintf(o->dir, sizeof(o->dir), "/tmp/ww-oracle-XXXXXX");
	assert_non_null(mkdtemp(o->dir));
	assert_true((size_t)snprintf(command, sizeof(command),
					"OMP_NUM_THREADS=2 exec '%s' '%s/tests/oracle/%s' '%s' %s 2>'%s/log'", python, root, script, o->dir,
					args, o->dir) < sizeof(command));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	o->pid = fork();
	if (!o->pid) {
		if (dup2(ends[1], 0) == 0 && dup2(ends[1], 1) == 1)
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	assert_true(o->pid > 0);
	close(ends[1]);
	assert_non_null(o->talk = fdopen(ends[0], "r+"));
	return 1;
}

/* Wait for its end, which must be a good one. */
static inline void oracle_end(struct oracle *o)
{
	char line[256];
	int status;
	shutdown(fileno(o->talk), SHUT_WR);
	while (fgets(line, sizeof(line), o->talk))
		;
	fclose(o->talk);
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_str log = WW_STR_INIT(1 << 20);
		char path[PATH_MAX];
		assert_int_equal(ww_fs_join(path, o->dir, "log", &err), WW_OK);
		assert_int_equal(ww_fs_read(path, 1 << 20, &log, &err), WW_OK);
		fail_msg("the oracle failed:\n%s", log.p);
	}
}

/* One that only writes files.  dir receives its directory (PATH_MAX bytes). */
static inline int oracle_run(const char *script, const char *args, char *dir)
{
	struct oracle o;
	if (!oracle_start(&o, script, args))
		return 0;
	oracle_end(&o);
	memcpy(dir, o.dir, PATH_MAX);
	return 1;
}

/* Of all that decides what a script writes; 0: that cannot be said. */
static inline int oracle_key(const char *script, const char *args, char key[WW_HASH_HEX])
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str all = WW_STR_INIT(1 << 22);
	const char *root = getenv("WW_SOURCE_DIR");
	char path[2 * PATH_MAX];
	glob_t found = { 0 };
	int known = root && !getenv("WW_ORACLE_PYTHON");
	ww_str_addf(&all, "%s %s\n", script, args);
	for (int i = 0; known && i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s%s", root, i ? "tests/oracle/" : ".venv-oracle/pyvenv.cfg", i ? script : "");
		known = ww_fs_read(path, 1 << 20, &all, &err) == WW_OK;
	}
	for (int i = 0; known && i < 2; i++) {
		snprintf(path, sizeof(path), "%s/.venv%s/lib/python3*/site-packages/*.dist-info", root, i ? "-oracle" : "");
		known = !glob(path, i ? GLOB_APPEND : 0, NULL, &found);
	}
	for (size_t i = 0; known && i < found.gl_pathc; i++)
		ww_str_addf(&all, "%s\n", strrchr(found.gl_pathv[i], '/'));
	globfree(&found);
	ww_hash_hex(all.p, all.len, key);
	ww_str_release(&all);
	return known;
}

static inline int oracle_copy(const char *from, const char *to)
{
	char command[4 * PATH_MAX];
	snprintf(command, sizeof(command), "mkdir -p '%s' && cp -r '%s/.' '%s'", to, from, to);
	return !system(command);
}

/* As oracle_run(), of a script that reads nothing but its arguments: an earlier run's files where there are any. */
static inline int oracle_kept(const char *script, const char *args, char *dir)
{
	const char *cache = getenv("XDG_CACHE_HOME");
	char key[WW_HASH_HEX], kept[PATH_MAX], made[PATH_MAX + 16], had[2 * PATH_MAX], command[5 * PATH_MAX];
	if (!cache || !oracle_key(script, args, key))
		return oracle_run(script, args, dir);
	snprintf(kept, sizeof(kept), "%s/oracle/%s%s", cache, script, args);
	snprintf(had, sizeof(had), "%s/%s", kept, key);
	if (!access(had, F_OK)) {
		snprintf(dir, PATH_MAX, "/tmp/ww-oracle-XXXXXX");
		assert_non_null(mkdtemp(dir));
		assert_true(oracle_copy(kept, dir));
		printf("# %s: as it wrote this before, with the same libraries\n", script);
		return 1;
	}
	if (!oracle_run(script, args, dir))
		return 0;
	snprintf(made, sizeof(made), "%s.%d", kept, (int)getpid());
	snprintf(command, sizeof(command), "touch '%s/%s' && rm -rf '%s' && mv '%s' '%s'", made, key, kept, made, kept);
	assert_true(oracle_copy(dir, made) && !system(command));
	return 1;
}

static inline void oracle_clean(const char *dir)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
}

#endif
