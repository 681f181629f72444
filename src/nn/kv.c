/* kv.c - the memory of the key-value cache: one block, for each layer keys and then values of all pages. */
#include "nn/model.h"
#include "base/dtype.h"

#include <stdlib.h>

static uint64_t page_layer_bytes(const struct ww_model *m)
{
	return (uint64_t)WW_KV_PAGE * (uint64_t)m->config.kv_heads * (uint64_t)m->config.head_dim *
		ww_dtype_bytes(m->dtype);
}

uint64_t ww_kv_page_bytes(const struct ww_model *m) { return 2 * (uint64_t)m->config.layers * page_layer_bytes(m); }

int64_t ww_kv_stride(const struct ww_model *m) { return (m->config.max_position + WW_KV_PAGE - 1) / WW_KV_PAGE; }

enum ww_rc ww_kv_new(struct ww_model *m, int64_t pages, struct ww_kv **out, struct ww_err *err)
{
	struct ww_kv *kv;
	int64_t layers = m->config.layers;
	uint64_t each = (uint64_t)pages * page_layer_bytes(m);
	enum ww_rc rc = WW_OK;
	WW_CHECK(WW_NEW(kv, 1, err));
	WW_BUG(pages < 1 || pages > INT32_MAX / WW_KV_PAGE);
	*kv = (struct ww_kv){ .m = m, .pages = pages };
	WW_TRY(WW_NEW(kv->k, 2 * layers, err));
	kv->v = kv->k + layers;
	WW_TRY(m->dev->ops->alloc(m->dev, (size_t)(2 * (uint64_t)layers * each), &kv->base, err));
	for (int64_t i = 0; i < 2 * layers; i++)
		kv->k[i] = (struct ww_arr){ (char *)kv->base + (size_t)i * each, m->dtype };
	*out = kv;
out:
	if (rc != WW_OK)
		ww_kv_free(kv);
	return rc;
}

void ww_kv_free(struct ww_kv *kv)
{
	if (!kv)
		return;
	if (kv->base)
		kv->m->dev->ops->free(kv->m->dev, kv->base);
	free(kv->k);
	free(kv);
}
