/* proto.c - frames over the runner's socket (see proto.h).
 *
 * Descriptors are sent with the head's first byte. */
#include "judge/run/proto.h"

#include "base/fdpass.h"
#include "base/fs.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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
	struct iovec parts[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)payload, bytes } }, *at = parts;
	WW_BUG(n_fds > WW_RUN_MAX_FDS || bytes > WW_RUN_MAX_PAYLOAD);
	for (int n_parts = bytes ? 2 : 1; n_parts;) {
		ssize_t n = ww_fdpass_send(sock, at, n_parts, fds, n_fds, 0);
		if (n < 0 && errno == EAGAIN)
			return ww_err_set(err, WW_ERR_TIMEOUT, "the runner does not read");
		if (n < 0)
			return ww_err_errno(err, WW_ERR_WORKER, "cannot write to the runner");
		n_fds = 0; /* they have gone with the first byte */
		for (; n_parts && (size_t)n >= at->iov_len; n_parts--)
			n -= (ssize_t)at++->iov_len;
		if (n_parts)
			*at = (struct iovec){ (char *)at->iov_base + n, at->iov_len - (size_t)n };
	}
	return WW_OK;
}

enum ww_rc ww_run_recv(int sock, struct ww_run_head *head, void *payload, size_t max_bytes, int *fds, int max_fds,
	unsigned long long deadline_ns, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	size_t done = 0;
	int got = 0;

	while (done < sizeof(*head)) {
		WW_TRY(ww_fd_wait(sock, POLLIN, deadline_ns, err));
		ssize_t n = ww_fdpass_receive(sock, (char *)head + done, sizeof(*head) - done, fds, max_fds, &got, 0);
		if (n <= 0) {
			rc = n == 0 || errno == ECONNRESET ? ww_err_set(err, WW_ERR_WORKER, "the other end closed")
											   : ww_err_errno(err, WW_ERR_WORKER, "recvmsg");
			goto out;
		}
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
