/* calls.c - see calls.h. */
#include "agent/shell/calls.h"

#include "base/err.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIPE_BYTES = 64 << 10 };
#define ROW_NO(name)
#define ROW_SHELL(name) #name,
static const char *const names[] = {
#define TOOL(name, loop, shell, mcp) ROW_##shell(name)
#include "agent/tools.def"
#undef TOOL
};

/* The lock goes with descriptor 8.  A killed caller may have left part of its answer in the pipe: it is read and
 * dropped before asking, so that reading starts at a head.  The answer to a caller that was killed while it waited may
 * still come; it is skipped.  The call begins with a newline, which ends any unfinished line that another process
 * wrote. */
static const char script[] =
	"#!/bin/bash\n"
	"# Asks the tool of this name and prints its answer.  Exit code: 0 good, 1 a negative verdict, 2 not valid, 3 no answer.\n"
	"LC_ALL=C\n"
	"id=$$-$RANDOM\n"
	"printf -v line '\\t%s' \"${0##*/}\" \"$@\"\n"
	"if [[ ${line//$'\\t'/ } == *[[:cntrl:]]* || ${#line} -gt 2000 ]]; then\n"
	"	echo \"${0##*/}: arguments that no tool takes\" >&2\n"
	"	exit 2\n"
	"fi\n"
	"exec 7</calls/answer 8</calls/turn || exit 3\n"
	"flock 8 || exit 3\n"
	"dd if=/calls/answer of=/dev/null iflag=nonblock bs=64k 2>/dev/null\n"
	"printf '\\n%s%s\\n' \"$id\" \"$line\" >/calls/ask || exit 3\n"
	"while read -r got code n <&7 && [[ $got != \"$id\" ]]; do\n"
	"	head -c \"$n\" <&7 >/dev/null\n"
	"done\n"
	"head -c \"$n\" <&7\n"
	"exit \"$code\"\n";

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static int put(const char *root, const char *name, const char *text, size_t n, int mode)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", root, name);
	WW_AUTO(ww_fd_close) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	return fd >= 0 && write(fd, text, n) == (ssize_t)n ? 0 : -1;
}

static int folder(const char *root, const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", root, name);
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int make_pipe(const char *root, const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", root, name);
	return mkfifo(path, 0600);
}

int ww_shell_calls_make(const char *root)
{
	int r = folder(root, "/usr") < 0 || folder(root, "/usr/local") < 0 || folder(root, "/usr/local/bin") < 0 ||
		folder(root, "/calls") < 0 || make_pipe(root, "/calls/ask") < 0 || make_pipe(root, "/calls/answer") < 0 ||
		put(root, "/calls/turn", "", 0, 0400) < 0;
	for (size_t i = 0; !r && i < WW_ARRAY_LEN(names); i++) {
		char name[64];
		snprintf(name, sizeof(name), "/usr/local/bin/%s", names[i]);
		r = put(root, name, script, sizeof(script) - 1, 0755) < 0;
	}
	return r ? -1 : 0;
}

/* Opened for reading and writing, so that neither side sees end of file; writes do not block. */
int ww_shell_calls_open(struct ww_shell_calls *c)
{
	memset(c, 0, sizeof(*c));
	c->ask = open("/calls/ask", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	c->answer = open("/calls/answer", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	c->turn = open("/calls/turn", O_RDONLY | O_CLOEXEC);
	return c->ask >= 0 && c->answer >= 0 && c->turn >= 0 ? 0 : -1;
}

/* ---- A call ------------------------------------------------------------------------------------------------------ */

/* Whether a caller waits: only callers hold the lock for long. */
static int has_caller(const struct ww_shell_calls *c)
{
	if (flock(c->turn, LOCK_EX | LOCK_NB) < 0)
		return 1;
	flock(c->turn, LOCK_UN);
	return 0;
}

/* The newest whole line that has arrived, into line with a NUL; 0 where there is none. */
static size_t newest_line(const struct ww_shell_calls *c, char line[WW_SHELL_CALL_MAX])
{
	static char bytes[PIPE_BYTES];
	size_t n = 0;
	for (ssize_t k; n < sizeof(bytes) && (k = read(c->ask, bytes + n, sizeof(bytes) - n)) > 0;)
		n += (size_t)k;
	if (n < 2 || bytes[n - 1] != '\n')
		return 0;
	const char *before = memrchr(bytes, '\n', n - 1), *at = before ? before + 1 : bytes;
	size_t len = n - 1 - (size_t)(at - bytes);
	if (len >= WW_SHELL_CALL_MAX)
		return 0;
	memcpy(line, at, len);
	line[len] = 0;
	return len;
}

size_t ww_shell_calls_take(struct ww_shell_calls *c, char words[WW_SHELL_CALL_MAX])
{
	char line[WW_SHELL_CALL_MAX];
	size_t len = newest_line(c, line), id = len ? strspn(line, "0123456789-") : 0;
	if (!id || id >= sizeof(c->id) || line[id] != '\t' || strlen(line) != len || !has_caller(c))
		return 0;
	memcpy(c->id, line, id);
	c->id[id] = 0;
	memcpy(words, line + id + 1, len - id);
	return len - id - 1;
}

void ww_shell_calls_answer(struct ww_shell_calls *c, unsigned code, const char *text, size_t n)
{
	char head[64];
	int k = snprintf(head, sizeof(head), "%s %u %zu\n", c->id, code, n);
	struct iovec parts[] = { { head, (size_t)k }, { (char *)(uintptr_t)text, n } };
	/* In one write, so that no reader sees a part.  What does not fit, because a process fills the pipe, is lost; that
	 * harms callers of the same episode only. */
	(void)!writev(c->answer, parts, 2);
}
