/* What every cpu kernel of the task `marks` begins with. */
@include block_cpu.h
#include <math.h>
#define MARKS_ARGS                                                                                                        \
	const float *x = WW_ARG(const float *, 0), *level = WW_ARG(const float *, 1);                                     \
	unsigned char *above = WW_ARG(unsigned char *, 2);                                                                \
	long long *place = WW_ARG(long long *, 3);                                                                        \
	float *far = WW_ARG(float *, 4);                                                                                  \
	long long n = WW_ARG(long long, 5), row = b->x
