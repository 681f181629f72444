/* fdpass.c - the control messages of fdpass.h. */
#include "base/fdpass.h"
#include "base/err.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * WW_FDPASS_MAX)];
};

ssize_t ww_fdpass_send(int sock, const struct iovec *iov, int n_iov, const int *fds, int n_fds, int flags)
{
	union control c;
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n_iov };
	size_t bytes = sizeof(int) * (size_t)n_fds;
	ssize_t n;
	WW_BUG(n_fds > WW_FDPASS_MAX);
	if (n_fds) {
		memset(&c, 0, sizeof(c));
		m.msg_control = c.bytes;
		m.msg_controllen = CMSG_SPACE(bytes);
		*CMSG_FIRSTHDR(
			&m) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes) };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, bytes);
	}
	while ((n = sendmsg(sock, &m, MSG_NOSIGNAL | flags)) < 0 && errno == EINTR)
		;
	return n;
}

static void take(struct msghdr *m, int *fds, int max, int *got)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (*got < max)
				fds[(*got)++] = fd;
			else
				close(fd);
		}
	}
}

ssize_t ww_fdpass_receive(int sock, void *bytes, size_t n, int *fds, int max, int *got, int flags)
{
	union control c;
	struct iovec iov = { bytes, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof(c.bytes) };
	ssize_t k;
	while ((k = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | flags)) < 0 && errno == EINTR)
		;
	if (k >= 0)
		take(&m, fds, max, got);
	if (k >= 0 && m.msg_flags & MSG_CTRUNC) {
		errno = EMFILE;
		return -1;
	}
	return k;
}
