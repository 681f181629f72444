#include "task/ends.h"

#include "base/fs.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum ww_rc ww_ends_open(struct ww_ends *e, struct ww_err *err)
{
	*e = WW_ENDS_NONE;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->sock) < 0 || pipe2(e->log, O_CLOEXEC) < 0 ||
		pipe2(e->status, O_CLOEXEC) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a process's socket and pipes");
	return WW_OK;
}

void ww_ends_close(struct ww_ends *e)
{
	for (int i = 0; i < 2; i++) {
		ww_fd_close(&e->sock[i]);
		ww_fd_close(&e->log[i]);
		ww_fd_close(&e->status[i]);
	}
}
