/* zygote_wire.h - the two messages between a zygote and its parent.  Both are the same binary: no versions, no byte
 * order. */
#pragma once

#include <stdint.h>

/* Where a zygote in a private root keeps the directories of its jobs. */
#define WW_ZYGOTE_TMP "/jobs"

struct ww_zygote_ready { /* zygote to parent, once */
	uint32_t rc;         /* enum ww_rc */
	uint32_t level;      /* enum ww_sandbox_level */
	char text[1024];     /* the hello line, or the error */
};
struct ww_zygote_order { /* parent to zygote, one a job, with three descriptors: request, reply, status */
	uint64_t limit_ns, request_bytes, max_reply;
};
