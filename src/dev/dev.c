/* dev.c - opens a device by name.
 *
 * `cuda` is a plug-in (src/dev/cuda), so that the program starts where there is no driver.  It lies beside the binary
 * in a build, and in ../lib/warpwright in a distribution or an installation.  Also here: memory of devices that use the
 * host's.
 */
#include "dev/dev.h"

#include "base/fs.h"
#include "base/log.h"
#include "host/machine.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ww_rc open_plugin(int exact, struct ww_dev **out, struct ww_err *err)
{
	char path[PATH_MAX];
	__typeof__(&ww_dev_cuda_open) open_device = NULL;
	if (ww_fs_plugin(WW_DEV_PLUGIN_CUDA, path, err) != WW_OK)
		return ww_err_set(
			err, WW_ERR_MISSING, "no %s beside the program; warpwright doctor says what brings it", WW_DEV_PLUGIN_CUDA);
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays: CUDA cannot be unloaded */
	if (lib)
		*(void **)&open_device = dlsym(lib, "ww_dev_cuda_open");
	if (!open_device)
		return ww_err_set(err, WW_ERR_MISSING, "the plug-in %.300s cannot be used: %.300s", path, dlerror());
	return open_device(sizeof(struct ww_dev_ops), exact, out, err);
}

enum { HEAD = 64 }; /* before each block: its size, so that freeing it can be counted */

/* As open_plugin().  CUDA's own words for "no driver" are that it is too old. */
static enum ww_rc open_cuda(int exact, struct ww_dev **out, struct ww_err *err)
{
	struct ww_host_gpus gpus;
	enum ww_rc rc = open_plugin(exact, out, err);
	if (rc != WW_ERR_MISSING)
		return rc;
	ww_host_gpus(&gpus);
	return gpus.n ? rc
				  : ww_err_set(err, rc, "no GPU that CUDA can use: %s; the device \"cpu\" works without one", gpus.why);
}

/* Log why a GPU that exists cannot be used. */
static enum ww_rc open_auto(int exact, struct ww_dev **out, struct ww_err *err)
{
	struct ww_err why = WW_ERR_INIT;
	if (open_plugin(exact, out, &why) == WW_OK)
		return WW_OK;
	if (!access("/dev/nvidia0", F_OK))
		ww_log(WW_LOG_WARN, "the model runs on the cpu: %s", why.msg);
	return ww_dev_cpu_open(exact, out, err);
}

enum ww_rc ww_dev_open(const char *name, int exact, struct ww_dev **out, struct ww_err *err)
{
	if (!strcmp(name, "auto"))
		WW_CHECK(open_auto(exact, out, err));
	else if (!strcmp(name, "ref"))
		WW_CHECK(ww_dev_ref_open(out, err));
	else if (!strcmp(name, "cpu"))
		WW_CHECK(ww_dev_cpu_open(exact, out, err));
	else if (!strcmp(name, "cuda"))
		WW_CHECK(open_cuda(exact, out, err));
	else
		return ww_err_set(err, WW_ERR_USAGE, "no device \"%.40s\"; the devices are ref, cpu and cuda", name);
	if (!(*out)->id[0])
		snprintf((*out)->id, sizeof((*out)->id), "cpu");
	return WW_OK;
}

void ww_dev_close(struct ww_dev *d)
{
	if (d)
		d->ops->close(d);
}

enum ww_rc ww_dev_host_alloc(struct ww_dev *d, size_t bytes, void **out, struct ww_err *err)
{
	size_t whole = bytes > SIZE_MAX - 2 * HEAD ? 0 : (bytes + 2 * HEAD - 1) & ~(size_t)(HEAD - 1);
	char *p = whole ? aligned_alloc(HEAD, whole) : NULL;
	if (!p)
		return ww_err_set(err, WW_ERR_NOMEM, "cannot allocate %zu bytes", bytes);
	memcpy(p, &whole, sizeof(whole));
	ww_dev_count(d, (int64_t)whole);
	*out = p + HEAD;
	return WW_OK;
}

void ww_dev_host_free(struct ww_dev *d, void *p)
{
	size_t whole;
	if (!p)
		return;
	memcpy(&whole, (char *)p - HEAD, sizeof(whole));
	ww_dev_count(d, -(int64_t)whole);
	free((char *)p - HEAD);
}

/* The one number in a file; 0 where there is none. */
static uint64_t number_in(const char *path)
{
	unsigned long long v = 0;
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%llu", &v) != 1)
		v = 0;
	if (f)
		fclose(f);
	return v;
}

void ww_dev_host_memory(struct ww_dev *d, uint64_t *free_bytes, uint64_t *total_bytes)
{
	*total_bytes = ww_host_memory_bytes(free_bytes);
	/* A container's limit counts before the machine's memory. */
	uint64_t limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
	if (limit && limit < *total_bytes) {
		*total_bytes = limit;
		if (used < limit && limit - used < *free_bytes)
			*free_bytes = limit - used;
	}
}

uint16_t ww_bf16_from(float x)
{
	uint32_t u;
	memcpy(&u, &x, 4);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float ww_bf16_to(uint16_t x)
{
	uint32_t u = (uint32_t)x << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
