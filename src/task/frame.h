/* frame.h - messages of the bridge's protocol, as bytes and over a socket (docs/formats/bridge.md).
 *
 *     offset  size  field
 *          0     4  magic "WWBR"
 *          4     4  version, 1
 *          8     4  bytes of the JSON body that follows, at most 16 MiB
 *         12     4  descriptors that follow the body, at most 4096
 *
 * little-endian.  Descriptors come after the body, at most 128 with each single byte 'F', by SCM_RIGHTS.
 */
#pragma once

#include "base/err.h"
#include "base/fdpass.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WW_FRAME_HEADER_BYTES = 16,
	WW_FRAME_VERSION = 1,
	WW_FRAME_MAX_BODY = 16 << 20,
	WW_FRAME_MAX_FDS = 4096,
	WW_FRAME_FDS_PER_BYTE = WW_FDPASS_MAX
};

struct ww_frame {
	uint32_t body_bytes, n_fds;
};

void ww_frame_pack(unsigned char out[WW_FRAME_HEADER_BYTES], const struct ww_frame *f);
/* Everything is checked: a wrong magic, another version or a number beyond its limit is WW_ERR_PROTOCOL. */
enum ww_rc ww_frame_parse(
	const unsigned char in[WW_FRAME_HEADER_BYTES], struct ww_frame *f, struct ww_err *err) WW_MUST_CHECK;

/* A non-blocking end of a socket that frames, and bytes between them, go over: wait() returns once `events` may be
 * there.  A broken frame is WW_ERR_PROTOCOL, the end of the stream WW_ERR_WORKER. */
struct ww_frames {
	int sock;
	enum ww_rc (*wait)(void *ctx, short events, struct ww_err *err);
	void *ctx;
	int small; /* what comes are short answers: few values are taken (ww_json_parse_message()) */
};
enum ww_rc ww_frames_put(const struct ww_frames *s, const void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_frames_get(const struct ww_frames *s, void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* n descriptors, each message of them with one byte; *got are the caller's to close, also after an error. */
enum ww_rc ww_frames_get_fds(const struct ww_frames *s, int *fds, int n, int *got, struct ww_err *err) WW_MUST_CHECK;
/* body NULL is WW_ERR_NOMEM. */
enum ww_rc ww_frames_send(
	const struct ww_frames *s, const json_t *body, const int *fds, int n_fds, struct ww_err *err) WW_MUST_CHECK;
/* What a body holds is counted before it is parsed; too much is WW_ERR_PROTOCOL.
 * *n descriptors come with it, `max` at most, close-on-exec; after an error none is left open. */
enum ww_rc ww_frames_receive(
	const struct ww_frames *s, json_t **body, int *fds, int max, int *n, struct ww_err *err) WW_MUST_CHECK;
