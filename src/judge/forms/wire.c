/* wire.c - the bridge's frames, for processes of the PyTorch forms: header, JSON, descriptors one a byte 'F'.
 *
 * src/task/worker.c has the same for the reference worker, bound to how that one is watched.  Here the waiting is the
 * caller's: a candidate is watched for memory and death, the process that forks them for time only. */
#include "judge/forms/internal.h"

#include "base/json.h"
#include "base/mem.h"
#include "task/frame.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_SENT_FDS = 1024 };

static enum ww_rc closed(struct ww_err *err)
{
	return ww_err_set(err, WW_ERR_WORKER, "the other side closed the connection");
}

enum ww_rc ww_wire_put(const struct ww_wire *w, const void *bytes, size_t n, struct ww_err *err)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = send(w->sock, (const char *)bytes + done, n - done, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (k > 0) {
			done += (size_t)k;
			continue;
		}
		if (k < 0 && errno != EAGAIN && errno != EINTR)
			return closed(err);
		enum ww_rc rc = w->wait(w->ctx, POLLOUT, err);
		if (rc != WW_OK)
			return rc;
	}
	return WW_OK;
}

static enum ww_rc put_fds(const struct ww_wire *w, const int *fds, int n, struct ww_err *err)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * WW_FRAME_FDS_PER_BYTE)];
		struct cmsghdr align;
	} control;
	char byte = 'F';
	struct iovec iov = { &byte, 1 };
	memset(&control, 0, sizeof(control));
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n);
	for (;;) {
		if (sendmsg(w->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
			return WW_OK;
		if (errno != EAGAIN && errno != EINTR)
			return closed(err);
		enum ww_rc rc = w->wait(w->ctx, POLLOUT, err);
		if (rc != WW_OK)
			return rc;
	}
}

enum ww_rc ww_wire_send(const struct ww_wire *w, const json_t *body, const int *fds, int n_fds, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_FRAME_MAX_BODY);
	unsigned char header[WW_FRAME_HEADER_BYTES];

	if (!body)
		return ww_nomem(err);
	WW_BUG(n_fds > MAX_SENT_FDS);
	ww_json_add(&text, body);
	if (text.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "a request is larger than %d bytes", WW_FRAME_MAX_BODY);
	ww_frame_pack(header, &(struct ww_frame){ (uint32_t)text.len, (uint32_t)n_fds });
	WW_CHECK(ww_wire_put(w, header, sizeof(header), err));
	WW_CHECK(ww_wire_put(w, text.p, text.len, err));
	for (int i = 0; i < n_fds; i += WW_FRAME_FDS_PER_BYTE)
		WW_CHECK(put_fds(w, fds + i, n_fds - i < WW_FRAME_FDS_PER_BYTE ? n_fds - i : WW_FRAME_FDS_PER_BYTE, err));
	return WW_OK;
}

enum ww_rc ww_wire_get(const struct ww_wire *w, void *bytes, size_t n, struct ww_err *err)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = recv(w->sock, (char *)bytes + done, n - done, MSG_DONTWAIT);
		if (k > 0) {
			done += (size_t)k;
			continue;
		}
		if (k == 0 || (errno != EAGAIN && errno != EINTR))
			return closed(err);
		enum ww_rc rc = w->wait(w->ctx, POLLIN, err);
		if (rc != WW_OK)
			return rc;
	}
	return WW_OK;
}

/* One byte with the descriptors of one message; those beyond `max` are closed. */
static enum ww_rc get_some_fds(const struct ww_wire *w, int *fds, int max, int *got, struct ww_err *err)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * WW_FRAME_FDS_PER_BYTE)];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
	};
	ssize_t k;
	int before = *got;
	while ((k = recvmsg(w->sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return closed(err);
		enum ww_rc rc = w->wait(w->ctx, POLLIN, err);
		if (rc != WW_OK)
			return rc;
	}
	if (k == 0)
		return closed(err);
	ww_frame_take_fds(&m, fds, max, got);
	return *got == before ? ww_err_set(err, WW_ERR_PROTOCOL, "an announced file descriptor did not arrive") : WW_OK;
}

enum ww_rc ww_wire_get_fds(const struct ww_wire *w, int *fds, int n, int *got, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*got = 0;
	while (rc == WW_OK && *got < n)
		rc = get_some_fds(w, fds, n, got, err);
	return rc;
}

enum ww_rc ww_wire_receive(const struct ww_wire *w, json_t **body, int *fd, struct ww_err *err)
{
	unsigned char header[WW_FRAME_HEADER_BYTES];
	struct ww_frame f;
	ww_auto_free char *text = NULL;
	int got;

	*body = NULL;
	*fd = -1;
	WW_CHECK(ww_wire_get(w, header, sizeof(header), err));
	WW_CHECK(ww_frame_parse(header, &f, err));
	if (f.n_fds > 1)
		return ww_err_set(err, WW_ERR_PROTOCOL, "more than one file descriptor arrived");
	text = malloc((size_t)f.body_bytes + 1);
	if (!text)
		return ww_nomem(err);
	WW_CHECK(ww_wire_get(w, text, f.body_bytes, err));
	WW_CHECK(ww_wire_get_fds(w, fd, (int)f.n_fds, &got, err));
	return ww_json_parse(text, f.body_bytes, "an answer", body, err);
}
