/* spares.h - warm runners. */
#pragma once

#include "judge/internal.h"

/* A runner that is ready, for one candidate (and its baseline another); gone through, it comes back here. */
enum ww_rc ww_spare_take(struct ww_judge *j, struct ww_runner **out, struct ww_err *err) WW_MUST_CHECK;
void ww_spare_give(struct ww_judge *j, struct ww_runner *r);
/* cuda: start one more runner if there are fewer than may be in use at once; waits until it has its context. */
void ww_spare_more(struct ww_judge *j);
void ww_spare_free_all(struct ww_judge *j);
