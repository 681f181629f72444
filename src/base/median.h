/* median.h - the median of doubles. */
#pragma once

#include <stddef.h>

/* For qsort(3): doubles, ascending. */
int ww_by_double(const void *a, const void *b);
/* The median of x[0..n-1], which is sorted on the way; NAN for n = 0. */
double ww_median(double *x, size_t n);
