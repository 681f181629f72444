/* owned.c - see owned.h. */
#include "judge/run/owned.h"

#include "base/fs.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SCRATCH_ALIGN = 256 };

static size_t behind(const struct ww_owned_buffer *b) { return b->map_bytes - b->offset_bytes - b->bytes; }

static void fill_guards(const struct ww_owned_buffer *b)
{
	memset(b->map, WW_RUN_GUARD_BYTE, b->offset_bytes);
	memset(b->map + b->offset_bytes + b->bytes, WW_RUN_GUARD_BYTE, behind(b));
}

enum ww_rc ww_owned_map(
	struct ww_owned *o, const struct ww_run_bind *b, int fd, uint32_t role, uint32_t index, struct ww_err *err)
{
	size_t map_bytes = (b->map_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
	if (!WW_GROW(o->b, &o->cap, o->n + 1))
		return ww_nomem(err);
	void *m = mmap(NULL, map_bytes ? map_bytes : PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot map a buffer of %llu bytes", (unsigned long long)b->map_bytes);
	struct ww_owned_buffer *to = &o->b[o->n++];
	*to = (struct ww_owned_buffer){ m, map_bytes ? map_bytes : PAGE, b->offset_bytes, b->bytes, role, index };
	fill_guards(to);
	return WW_OK;
}

enum ww_rc ww_owned_scratch(size_t bytes, struct ww_run_bind *b, int *fd, struct ww_err *err)
{
	size_t map_bytes = (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
	if (!map_bytes)
		map_bytes = PAGE;
	b->bytes = bytes;
	b->map_bytes = map_bytes;
	b->offset_bytes = (map_bytes - bytes) & ~(size_t)(SCRATCH_ALIGN - 1);
	b->writable = 1;
	*fd = memfd_create("scratch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "memfd");
	if (ftruncate(*fd, (off_t)map_bytes) < 0 ||
		fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		ww_fd_close(fd);
		return ww_err_errno(err, WW_ERR_NOMEM, "no memory for %zu bytes of scratch", bytes);
	}
	return WW_OK;
}

void ww_owned_poison(struct ww_owned *o)
{
	unsigned char byte = ww_run_poison(o->poisoned++);
	for (int i = 0; i < o->n; i++)
		memset(o->b[i].map + o->b[i].offset_bytes, byte, o->b[i].bytes);
}

static int all_guard(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != WW_RUN_GUARD_BYTE)
			return 0;
	return 1;
}

int ww_owned_intact(const struct ww_owned *o, char *why, size_t n)
{
	for (int i = 0; i < o->n; i++) {
		const struct ww_owned_buffer *b = &o->b[i];
		if (all_guard(b->map, b->offset_bytes) && all_guard(b->map + b->offset_bytes + b->bytes, behind(b)))
			continue;
		snprintf(why, n, "the bytes beside %s %u were overwritten", b->role == WW_BUF_OUTPUT ? "output" : "scratch",
			b->index);
		return 0;
	}
	return 1;
}

void ww_owned_release(struct ww_owned *o)
{
	for (int i = 0; i < o->n; i++)
		munmap(o->b[i].map, o->b[i].map_bytes);
	free(o->b);
	memset(o, 0, sizeof(*o));
}
