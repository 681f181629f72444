/* oracle.h - run a script of tests/oracle in .venv-oracle (or by $WW_ORACLE_PYTHON), or say that it is not there.
 *
 * Each script writes what a Python library computes into a directory of its own under /tmp, and the test compares.
 */
#ifndef WW_TESTS_ORACLE_H
#define WW_TESTS_ORACLE_H

#include "unit.h"
#include "base/fs.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0: no environment, the caller skips.  dir receives the scratch directory (PATH_MAX bytes). */
static inline int oracle_run(const char *script, const char *args, char *dir)
{
	struct ww_err err = WW_ERR_INIT;
	char root[PATH_MAX], python[PATH_MAX + 32], command[3 * PATH_MAX];
	const char *source = getenv("WW_SOURCE_DIR");
	snprintf(root, sizeof(root), "%s", source ? source : ".");
	const char *own = getenv("WW_ORACLE_PYTHON");	/* another interpreter that has the libraries */
	if (own)
		snprintf(python, sizeof(python), "%s", own);
	else
		snprintf(python, sizeof(python), "%s/.venv-oracle/bin/python", root);
	if (access(python, X_OK) != 0) {
		printf("# skip: no .venv-oracle here (tools/setup check makes it)\n");
		return 0;
	}
	snprintf(dir, PATH_MAX, "/tmp/ww-oracle-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_true((size_t)snprintf(command, sizeof(command), "OMP_NUM_THREADS=2 '%s' '%s/tests/oracle/%s' '%s' %s >'%s/log' 2>&1",
				     python, root, script, dir, args, dir) < sizeof(command));
	int status = system(command);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		struct ww_str log = WW_STR_INIT(1 << 20);
		char path[PATH_MAX];
		assert_int_equal(ww_fs_join(path, dir, "log", &err), WW_OK);
		assert_int_equal(ww_fs_read(path, 1 << 20, &log, &err), WW_OK);
		fail_msg("%s failed:\n%s", script, log.p);
	}
	return 1;
}

static inline void oracle_clean(const char *dir)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
}

#endif
