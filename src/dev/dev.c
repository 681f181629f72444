/* dev.c - opens a device by name. */
#include "dev/dev.h"

#include <string.h>

enum ww_rc ww_dev_open(const char *name, int exact, struct ww_dev **out, struct ww_err *err)
{
	if (!strcmp(name, "ref"))
		return ww_dev_ref_open(out, err);
	if (!strcmp(name, "cpu"))
		return ww_dev_cpu_open(exact, out, err);
	return ww_err_set(err, WW_ERR_USAGE, "no device \"%.40s\"; ref and cpu are known", name);
}

void ww_dev_close(struct ww_dev *d)
{
	if (d)
		d->ops->close(d);
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
