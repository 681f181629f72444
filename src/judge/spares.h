/* spares.h - a pool of runners that are ready for the next candidate. */
#pragma once

#include "judge/internal.h"

/* Take a runner that is ready, for one candidate; return it by ww_spare_give(), which keeps it or ends it. */
enum ww_rc ww_spare_take(struct ww_judge *j, struct ww_runner **out, struct ww_err *err) WW_MUST_CHECK;
void ww_spare_give(struct ww_judge *j, struct ww_runner *r);
/* cuda: start one more runner if there are fewer than can be in use at once; waits until it has its CUDA context. */
void ww_spare_more(struct ww_judge *j);
void ww_spare_free_all(struct ww_judge *j);
