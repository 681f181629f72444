/* find.h - where a model lies that somebody has named. */
#pragma once

#include "base/err.h"

/* `name` as a directory; where it has no slash and none of that name is here, the model of that name among those that
 * come with the program.  dir: PATH_MAX bytes. */
enum ww_rc ww_model_find(const char *name, char *dir, struct ww_err *err) WW_MUST_CHECK;
