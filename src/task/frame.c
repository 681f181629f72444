/* frame.c - frames of the bridge: header, JSON, descriptors one message a byte 'F' (frame.h). */
#include "task/frame.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/range.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char magic[4] = "WWBR";

static void put32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void ww_frame_pack(unsigned char out[WW_FRAME_HEADER_BYTES], const struct ww_frame *f)
{
	memcpy(out, magic, 4);
	put32(out + 4, WW_FRAME_VERSION);
	put32(out + 8, f->body_bytes);
	put32(out + 12, f->n_fds);
}

enum ww_rc ww_frame_parse(const unsigned char in[WW_FRAME_HEADER_BYTES], struct ww_frame *f, struct ww_err *err)
{
	if (memcmp(in, magic, 4))
		return ww_err_set(err, WW_ERR_PROTOCOL, "the reference worker sent bytes that are no message");
	if (get32(in + 4) != WW_FRAME_VERSION)
		return ww_err_set(err, WW_ERR_PROTOCOL, "the reference worker speaks version %u of the protocol, not %d",
			get32(in + 4), WW_FRAME_VERSION);
	f->body_bytes = get32(in + 8);
	f->n_fds = get32(in + 12);
	if (f->body_bytes > WW_FRAME_MAX_BODY || f->n_fds > WW_FRAME_MAX_FDS)
		return ww_err_set(err, WW_ERR_PROTOCOL, "the reference worker announced %u bytes and %u descriptors, too many",
			f->body_bytes, f->n_fds);
	return WW_OK;
}

/* ---- Over a socket ----------------------------------------------------------------------------------------------- */

/* After a call that moved nothing: wait, or say why there is nothing to wait for. */
static enum ww_rc wait_more(const struct ww_frames *s, ssize_t k, short events, struct ww_err *err)
{
	if (k == 0 || (errno != EAGAIN && errno != EINTR))
		return ww_err_set(err, WW_ERR_WORKER, "the other side closed the connection");
	return s->wait(s->ctx, events, err);
}

static enum ww_rc put(
	const struct ww_frames *s, const void *bytes, size_t n, const int *fds, int n_fds, struct ww_err *err)
{
	for (size_t done = 0; done < n;) {
		struct iovec rest = { (char *)(uintptr_t)bytes + done, n - done };
		ssize_t k = ww_fdpass_send(s->sock, &rest, 1, fds, done ? 0 : n_fds, MSG_DONTWAIT);
		if (k > 0)
			done += (size_t)k;
		else
			WW_CHECK(wait_more(s, k, POLLOUT, err));
	}
	return WW_OK;
}

enum ww_rc ww_frames_put(const struct ww_frames *s, const void *bytes, size_t n, struct ww_err *err)
{
	return put(s, bytes, n, NULL, 0, err);
}

enum ww_rc ww_frames_get(const struct ww_frames *s, void *bytes, size_t n, struct ww_err *err)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = recv(s->sock, (char *)bytes + done, n - done, MSG_DONTWAIT);
		if (k > 0)
			done += (size_t)k;
		else
			WW_CHECK(wait_more(s, k, POLLIN, err));
	}
	return WW_OK;
}

enum ww_rc ww_frames_get_fds(const struct ww_frames *s, int *fds, int n, int *got, struct ww_err *err)
{
	for (*got = 0; *got < n;) {
		char byte;
		int before = *got;
		ssize_t k = ww_fdpass_receive(s->sock, &byte, 1, fds, n, got, MSG_DONTWAIT);
		if (k < 0 && errno == EMFILE)
			return ww_err_set(err, WW_ERR_PROTOCOL,
				"not all descriptors of a message arrived; if this process has many files open, raise ulimit -n");
		if (k <= 0)
			WW_CHECK(wait_more(s, k, POLLIN, err));
		else if (*got == before)
			return ww_err_set(err, WW_ERR_PROTOCOL, "fewer descriptors arrived than were announced");
	}
	return WW_OK;
}

enum ww_rc ww_frames_send(const struct ww_frames *s, const json_t *body, const int *fds, int n_fds, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_FRAME_MAX_BODY);
	unsigned char header[WW_FRAME_HEADER_BYTES];
	if (!body)
		return ww_nomem(err);
	WW_BUG(n_fds > WW_FRAME_MAX_FDS);
	ww_json_add(&text, body);
	if (text.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "a request is larger than %d bytes", WW_FRAME_MAX_BODY);
	ww_frame_pack(header, &(struct ww_frame){ (uint32_t)text.len, (uint32_t)n_fds });
	WW_CHECK(put(s, header, sizeof(header), NULL, 0, err));
	WW_CHECK(put(s, text.p, text.len, NULL, 0, err));
	for (int i = 0; i < n_fds; i += WW_FRAME_FDS_PER_BYTE)
		WW_CHECK(put(s, "F", 1, fds + i, (int)ww_min_i64(n_fds - i, WW_FRAME_FDS_PER_BYTE), err));
	return WW_OK;
}

/* A tree takes up to 100 times the memory of its text.  The largest answer is a graph: ten arrays and objects a node.
 */
static enum ww_rc parse(const struct ww_frames *s, const char *text, size_t n, json_t **body, struct ww_err *err)
{
	enum { CONTAINERS = 1 << 19, VALUES = 1 << 22 };
	enum ww_rc rc = ww_json_parse_bounded(text, n, "the worker's answer",
		s->small ? WW_JSON_MESSAGE_CONTAINERS : CONTAINERS, s->small ? WW_JSON_MESSAGE_VALUES : VALUES, body, err);
	if (rc == WW_ERR_LIMIT)
		err->rc = rc = WW_ERR_PROTOCOL;
	return rc;
}

enum ww_rc ww_frames_receive(const struct ww_frames *s, json_t **body, int *fds, int max, int *n, struct ww_err *err)
{
	unsigned char header[WW_FRAME_HEADER_BYTES];
	struct ww_frame f;
	ww_auto_free char *text = NULL;
	*body = NULL;
	*n = 0;
	WW_CHECK(ww_frames_get(s, header, sizeof(header), err));
	WW_CHECK(ww_frame_parse(header, &f, err));
	if (f.n_fds > (uint32_t)max)
		return ww_err_set(err, WW_ERR_PROTOCOL, "%u descriptors arrived, more than %d", f.n_fds, max);
	text = malloc((size_t)f.body_bytes + 1);
	if (!text)
		return ww_nomem(err);
	WW_CHECK(ww_frames_get(s, text, f.body_bytes, err));
	enum ww_rc rc = ww_frames_get_fds(s, fds, (int)f.n_fds, n, err);
	if (rc == WW_OK)
		rc = parse(s, text, f.body_bytes, body, err);
	while (rc != WW_OK && *n > 0)
		ww_fd_close(&fds[--*n]);
	return rc;
}
