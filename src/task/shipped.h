/* shipped.h - task sets that come with the program, by name: `cpu-small` and `cpu-small#1-17` wherever a set and a task
 * of one can be named. */
#pragma once

#include "base/str.h"

/* Where the set of this name lies, into path (PATH_MAX bytes); 0: there is none of that name, or a file or directory of
 * the name is there, which comes first. */
int ww_shipped_find(const char *name, char *path);
/* Append the names of all, with commas between. */
void ww_shipped_names(struct ww_str *out);
