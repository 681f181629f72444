/* progress.c - reports each stage of a judgement to the judge's caller; asks whether the caller has interrupted it. */
#include "judge/internal.h"

#include "base/log.h"

void ww_judge_progress(const struct ww_judge *j, const char *stage)
{
	ww_log(WW_LOG_DEBUG, "stage: %s", stage);
	if (j->opts.progress)
		j->opts.progress(j->opts.progress_ctx, stage);
}

enum ww_rc ww_judge_interrupted(const struct ww_judge *j, struct ww_err *err)
{
	if (j->opts.interrupted && *j->opts.interrupted)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	return WW_OK;
}
