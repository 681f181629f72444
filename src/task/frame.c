/* frame.c - headers of the bridge's protocol (frame.h). */
#include "task/frame.h"

#include <string.h>
#include <unistd.h>

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

void ww_frame_take_fds(struct msghdr *m, int *fds, int max, int *got)
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
