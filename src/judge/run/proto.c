/* proto.c - frames over the runner's socket (see proto.h).
 *
 * Descriptors are sent with the head's first byte.  The receiver accepts up to WW_RUN_MAX_FDS of them and closes those
 * that its caller did not ask for, so that a peer cannot fill our descriptor table. */
#include "judge/run/proto.h"

#include "base/fs.h"
#include "base/time.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * WW_RUN_MAX_FDS)];
};

enum ww_rc ww_run_send_limit(int sock, int ms, struct ww_err *err)
{
	struct timeval limit = { ms / 1000, ms % 1000 * 1000 };
	return setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0
		? ww_err_errno(err, WW_ERR_SYSTEM, "setsockopt")
		: WW_OK;
}

enum ww_rc ww_run_send(
	int sock, uint32_t op, const void *payload, size_t bytes, const int *fds, int n_fds, struct ww_err *err)
{
	struct ww_run_head head = { WW_RUN_MAGIC, op, (uint32_t)n_fds, (uint32_t)bytes };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)payload, bytes } };
	union control c;
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = bytes ? 2 : 1 };

	WW_BUG(n_fds > WW_RUN_MAX_FDS || bytes > WW_RUN_MAX_PAYLOAD);
	if (n_fds) {
		memset(&c, 0, sizeof(c));
		msg.msg_control = c.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
		struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)n_fds);
	}
	size_t total = sizeof(head) + bytes, done = 0;
	while (done < total) {
		ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return ww_err_set(err, WW_ERR_TIMEOUT, "the runner does not read");
		if (n < 0)
			return ww_err_errno(err, WW_ERR_WORKER, "cannot write to the runner");
		done += (size_t)n;
		msg.msg_control = NULL;
		msg.msg_controllen = 0;
		if (done < sizeof(head)) {
			iov[0].iov_base = (char *)&head + done;
			iov[0].iov_len = sizeof(head) - done;
		} else {
			iov[0].iov_base = (char *)(uintptr_t)payload + (done - sizeof(head));
			iov[0].iov_len = total - done;
			msg.msg_iovlen = 1;
		}
	}
	return WW_OK;
}

static enum ww_rc wait_readable(int sock, unsigned long long deadline_ns, struct ww_err *err)
{
	for (;;) {
		int ms = -1;
		if (deadline_ns) {
			uint64_t now = ww_now_ns();
			if (now >= deadline_ns)
				return ww_err_set(err, WW_ERR_TIMEOUT, "no answer in time");
			unsigned long long left_ms = (deadline_ns - now + 999999) / 1000000;
			ms = left_ms > 3600000 ? 3600000 : (int)left_ms;
		}
		struct pollfd p = { .fd = sock, .events = POLLIN };
		int n = poll(&p, 1, ms);
		if (n > 0)
			return WW_OK;
		if (n < 0 && errno != EINTR)
			return ww_err_errno(err, WW_ERR_SYSTEM, "poll");
	}
}

/* Descriptors of one message: the first max_fds are kept, the others closed. */
static void take_fds(struct msghdr *msg, int *fds, int max_fds, int *got)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		int n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (int i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(h) + sizeof(int) * (size_t)i, sizeof(int));
			if (*got < max_fds)
				fds[(*got)++] = fd;
			else
				close(fd);
		}
	}
}

enum ww_rc ww_run_recv(int sock, struct ww_run_head *head, void *payload, size_t max_bytes, int *fds, int max_fds,
	unsigned long long deadline_ns, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	size_t done = 0;
	int got = 0;

	while (done < sizeof(*head)) {
		union control c;
		struct iovec iov = { (char *)head + done, sizeof(*head) - done };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof(c) };
		WW_TRY(wait_readable(sock, deadline_ns, err));
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			rc = n == 0 || errno == ECONNRESET ? ww_err_set(err, WW_ERR_WORKER, "the other end closed")
											   : ww_err_errno(err, WW_ERR_WORKER, "recvmsg");
			goto out;
		}
		take_fds(&msg, fds, max_fds, &got);
		done += (size_t)n;
	}
	if (head->magic != WW_RUN_MAGIC || head->bytes > max_bytes || head->n_fds != (uint32_t)got)
		WW_TRY(ww_err_set(err, WW_ERR_PROTOCOL, "a frame that is not of the runner's protocol"));
	if (head->bytes)
		WW_TRY(ww_fd_read(sock, payload, head->bytes, deadline_ns, err));
out:
	if (rc != WW_OK)
		for (int i = 0; i < got; i++)
			close(fds[i]);
	return rc;
}
