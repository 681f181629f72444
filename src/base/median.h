/* median.h - the middle of numbers. */
#pragma once

#include <stddef.h>

/* For qsort(3): doubles, ascending. */
int ww_by_double(const void *a, const void *b);
/* Sorts x; of an even number of them the mean of the two in the middle, NAN for n = 0. */
double ww_median(double *x, size_t n);
