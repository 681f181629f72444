/* trajectory.c - see trajectory.h. */
#include "train/trajectory.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum ww_rc ww_trajectory_init(struct ww_trajectory *t, int64_t n, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*t = (struct ww_trajectory){ .n = n };
	WW_TRY(WW_NEW(t->ids, n + 1, err));
	WW_TRY(WW_NEW(t->own, n + 1, err));
	WW_TRY(WW_NEW(t->logp, n + 1, err));
out:
	if (rc != WW_OK)
		ww_trajectory_release(t);
	return rc;
}

void ww_trajectory_release(struct ww_trajectory *t)
{
	free(t->ids);
	free(t->own);
	free(t->logp);
	*t = (struct ww_trajectory){ 0 };
}

enum ww_rc ww_trajectory_check(const struct ww_trajectory *t, int64_t vocab, struct ww_err *err)
{
	for (int64_t i = 0; i < t->n; i++)
		if (t->ids[i] < 0 || t->ids[i] >= vocab)
			return ww_err_set(err, WW_ERR_USAGE,
				"token %d is outside the model's vocabulary of %lld; the episode is of another model", t->ids[i],
				(long long)vocab);
	return WW_OK;
}

void ww_trajectory_mark(struct ww_trajectory *t, int64_t at, const float *logp, int64_t n)
{
	WW_BUG(at < 1 || at + n > t->n);
	memset(t->own + at, 1, (size_t)n);
	memcpy(t->logp + at, logp, (size_t)n * sizeof(*logp));
	t->own_n += n;
}

void ww_trajectory_rows(const struct ww_trajectory *t, int64_t base, int32_t *rows, int32_t *targets, float *logp)
{
	int64_t k = 0;
	for (int64_t i = 1; i < t->n; i++) {
		if (!t->own[i])
			continue;
		if (rows)
			rows[k] = (int32_t)(base + i - 1);
		if (targets)
			targets[k] = t->ids[i];
		if (logp)
			logp[k] = t->logp[i];
		k++;
	}
	WW_BUG(k != t->own_n);
}
