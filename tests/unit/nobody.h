/* nobody.h - tests that also run as an ordinary user: root passes permissions that hold up everybody else. */
#ifndef WW_TESTS_NOBODY_H
#define WW_TESTS_NOBODY_H

#include <grp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Becomes user and group 65534, for good.  0, or -1 where that fails.  Dumpable again, as an ordinary user's are: else
 * this process's files in /proc stay root's. */
static inline int unit_become_nobody(void)
{
	return setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0 ||
			prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0
		? -1
		: 0;
}

/* Runs group() in a process of user 65534.  Its result (0: no test failed); 0, with a line, where this process is not
 * root's, or where that user may not start `program`. */
static inline int unit_as_nobody(int (*group)(void), const char *program)
{
	int status = -1;
	if (geteuid() != 0)
		return 0;
	puts("as user 65534:");
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (unit_become_nobody() < 0)
			_exit(4);
		int can = access(program, X_OK) == 0, failed = can ? group() : 0;
		if (!can)
			printf("skipped: that user may not start %s\n", program);
		fflush(stdout);
		_exit(failed);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

#endif
