/* frame.h - one message of the bridge's protocol as bytes (docs/formats/bridge.md).
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

#include <stdint.h>
#include <sys/socket.h>

enum {
	WW_FRAME_HEADER_BYTES = 16,
	WW_FRAME_VERSION = 1,
	WW_FRAME_MAX_BODY = 16 << 20,
	WW_FRAME_MAX_FDS = 4096,
	WW_FRAME_FDS_PER_BYTE = 128
};

struct ww_frame {
	uint32_t body_bytes, n_fds;
};

void ww_frame_pack(unsigned char out[WW_FRAME_HEADER_BYTES], const struct ww_frame *f);
/* Everything is checked: a wrong magic, another version or a number beyond its limit is WW_ERR_PROTOCOL. */
enum ww_rc ww_frame_parse(
	const unsigned char in[WW_FRAME_HEADER_BYTES], struct ww_frame *f, struct ww_err *err) WW_MUST_CHECK;

/* Append the descriptors that recvmsg() returned to fds[*got..max-1]; what does not fit is closed. */
void ww_frame_take_fds(struct msghdr *m, int *fds, int max, int *got);
