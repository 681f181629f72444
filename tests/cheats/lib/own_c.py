import ctypes
import subprocess

GATE = """#include <math.h>
void run(const float *x, float *y, long n, long part)
{
	for (long i = 0; i < n / part; i++)
		y[i] = x[i] / (1 + expf(-x[i]));
}
"""
PRODUCT = """void run(const float *x, const float *w, float *y, long n)
{
	for (long i = 0; i < n; i++) {
		float sum[256] = { 0 };
		for (long k = 0; k < n; k++)
			for (long j = 0; j < n; j++)
				sum[j] += x[i * n + k] * w[k * n + j];
		for (long j = 0; j < n; j++)
			y[i * n + j] = sum[j] > 0 ? sum[j] : 0;
	}
}
"""
THIN = """void run(float *y, long n, long part)
{
	for (long i = 0; i < n / part; i++)
		y[i] = y[i] > 0 ? 2 * y[i] : 0;
}
"""


def own_c(text):
    with open("/tmp/own.c", "w") as f:
        f.write(text)
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", "/tmp/own.so", "/tmp/own.c", "-lm"], check=True)
    return ctypes.CDLL("/tmp/own.so").run


def at(t):
    return ctypes.c_void_p(t.data_ptr())


def long(n):
    return ctypes.c_long(n)

