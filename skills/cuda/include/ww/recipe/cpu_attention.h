/* recipe/cpu_attention.h - the launch for <ww/cpu/attention.h>. */
#ifndef WW_RECIPE_CPU_ATTENTION_H
#define WW_RECIPE_CPU_ATTENTION_H
#include <ww/plan.h>
#include <ww/recipe/cpu_attention_scratch.h>

/* q (batch, heads, lq, d), k and v (batch, heads / group, lk, d) with any strides but the last, which is 1 (elements;
 * batch, head, row).  group 0 counts as 1.  Tunables: bq (multiple of 8), bk (multiple of 48); 0 chooses. */
struct ww_cpu_attention {
	long long batch, heads, group, lq, lk, d;
	int q_buf, k_buf, v_buf;
	long long q_offset_bytes, k_offset_bytes, v_offset_bytes;
	long long q_stride[3], k_stride[3], v_stride[3];
	int causal;
	float scale;
	long long bq, bk;
};
static inline void ww_recipe_cpu_attention(struct ww_plan *p, const char *kernel, const struct ww_cpu_attention *r)
{
	long long bq = r->bq, bk = r->bk ? r->bk : r->d <= 128 ? 192 : 96;
	int i;

	if (!bq) {
		bq = ww_min(256, ww_cdiv(r->lq, 8) * 8);
		while (bq > 64 && ww_cdiv(r->lq, bq) * r->batch * r->heads < 4 * ww_device(p)->threads)
			bq = ww_cdiv(bq / 2, 8) * 8;
	}
	ww_launch(p, kernel, ww_cdiv(r->lq, bq), r->batch * r->heads, 1, 1, 1, 1);
	ww_shared(p, 4 * WW_ATTN_SCRATCH(r->d, bq, bk));
	ww_arg_i64(p, r->heads);
	ww_arg_i64(p, r->group ? r->group : 1);
	ww_arg_i64(p, r->lq);
	ww_arg_i64(p, r->lk);
	ww_arg_i64(p, r->d);
	for (i = 0; i < 3; i++)
		ww_arg_i64(p, r->q_stride[i]);
	for (i = 0; i < 3; i++)
		ww_arg_i64(p, r->k_stride[i]);
	for (i = 0; i < 3; i++)
		ww_arg_i64(p, r->v_stride[i]);
	ww_arg_i64(p, bq);
	ww_arg_i64(p, bk);
	ww_arg_i32(p, r->causal);
	ww_arg_f32(p, r->scale);
	ww_arg_buf(p, r->q_buf, r->q_offset_bytes);
	ww_arg_buf(p, r->k_buf, r->k_offset_bytes);
	ww_arg_buf(p, r->v_buf, r->v_offset_bytes);
}
#endif
