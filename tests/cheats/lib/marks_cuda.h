/* What every cuda kernel of the task `marks` begins with. */
#define MARKS_KERNEL(name)                                                                                                \
	extern "C" __global__ void name(const float *x, const float *level, unsigned char *above, long long *place,      \
					float *far, long long n)
