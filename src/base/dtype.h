/* dtype.h - element types (enum ww_dtype of ww/plan.h): PyTorch's names, short ones, bytes. */
#pragma once

#include <ww/plan.h>

int ww_dtype_of(const char *name); /* of "float32"; 0: there is none of that name */
/* Of a number that is no type: "?" and 0. */
const char *ww_dtype_name(int dtype);  /* "float32" */
const char *ww_dtype_short(int dtype); /* "f32" */
int ww_dtype_bytes(int dtype);         /* of one element */
