/* sanitize.c - kernels run once for compute-sanitizer (sanitize.sh), without PyTorch, whose kernels the tools would
 * watch as well.
 *
 *     sanitize KERNELS.cu INCLUDES [i|p|o:NAME:DTYPE:SIZE,SIZE,...]...     a cookbook solution, by bench/kernels/lab.c
 *     and its plan.c,
 *                                                                          both linked with this
 *     sanitize                                                             the runner's own kernels
 *     (src/judge/run/kernels_ptx.h)
 *
 * Inputs and parameters are filled from the host; outputs and scratch are left as they are allocated, so that
 * initcheck sees who reads what nobody wrote (LAB_BARE keeps the lab from poisoning scratch). */
#include "judge/run/kernels_ptx.h"

#include <ww/plan.h>

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lab_begin(int sms);
void lab_tensor(int which, const char *name, int dtype, int rank, const long long *size, const long long *stride,
	unsigned long long ptr);
int lab_build(const char *kernels, const char *includes, const char *cubin_path, int dry);
int lab_run(void *stream);
const char *lab_error(void);

#define MAP(X) X(cuInit) X(cuDeviceGet) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) \
	X(cuMemAlloc) X(cuMemAllocHost) X(cuMemcpyHtoD) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuLaunchKernel)
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
#define X(name) static __typeof__(&name) p_##name;
MAP(X)
#undef X

static void must(int ok, const char *what)
{
	if (ok)
		return;
	printf("FAILED: %s\n", what);
	exit(1);
}

static int open_device(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	CUdevice device;
	CUcontext context;
	int sms = 0;
	must(lib != NULL, "libcuda.so.1");
#define X(name)                                                                                                           \
	*(void **)&p_##name = dlsym(lib, TEXT(name));                                                                     \
	must(p_##name != NULL, TEXT(name));
	MAP(X)
#undef X
	must(!p_cuInit(0) && !p_cuDeviceGet(&device, 0) && !p_cuDevicePrimaryCtxRetain(&context, device) &&
			!p_cuCtxSetCurrent(context),
		"a context");
	p_cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	return sms;
}

/* Bytes of an element of the types that the cases have (ww/plan.h); 0: of another. */
static size_t element_bytes(int dtype)
{
	return dtype == WW_F32 ? 4 : dtype == WW_BF16 ? 2 : dtype == WW_I64 ? 8 : dtype == WW_BOOL ? 1 : 0;
}

/* Between -1 and 1; whole numbers below 7, which are valid classes everywhere here; masks that hold for two of three.
 */
static void fill(char *p, int dtype, long long n)
{
	uint64_t state = 0x9e3779b97f4a7c15ull ^ (uint64_t)n;
	for (long long i = 0; i < n; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		float v = (float)(int32_t)(state >> 32) / 2147483648.0f;
		uint32_t bits;
		memcpy(&bits, &v, 4);
		if (dtype == WW_F32)
			memcpy(p + 4 * i, &v, 4);
		else if (dtype == WW_BF16)
			memcpy(p + 2 * i, (char *)&bits + 2, 2);
		else if (dtype == WW_BOOL)
			p[i] = (state >> 40) % 3 != 0;
		else
			memcpy(p + 8 * i, &(int64_t){ (int64_t)(state >> 40) % 7 }, 8);
	}
}

/* "i:x:1:37,1000" */
static void add_tensor(const char *text)
{
	long long size[8], stride[8], n = 1;
	char name[128], *copy = strdup(text);
	int dtype = 0, rank = 0, at = 0;
	must(sscanf(copy + 2, "%127[^:]:%d:%n", name, &dtype, &at) == 2 && element_bytes(dtype), text);
	for (char *s = strtok(copy + 2 + at, ","); s && rank < 8; s = strtok(NULL, ","))
		size[rank++] = atoll(s);
	for (int k = rank - 1; k >= 0; n *= size[k--])
		stride[k] = n;
	size_t bytes = (size_t)n * element_bytes(dtype);
	CUdeviceptr p;
	must(!p_cuMemAlloc(&p, bytes), "memory");
	if (text[0] != 'o') {
		char *host = malloc(bytes);
		must(host != NULL, "memory of the host's");
		fill(host, dtype, n);
		must(!p_cuMemcpyHtoD(p, host, bytes), "a copy");
		free(host);
	}
	lab_tensor(text[0] == 'i' ? 0 : text[0] == 'p' ? 1 : 2, name, dtype, rank, size, stride, p);
	free(copy);
}

static void own_kernels(void)
{
	CUmodule module;
	CUfunction digest, stamp;
	CUdeviceptr sum, data;
	void *host;
	uint64_t key = 7, words[2 * 1000] = { 1 };
	must(!p_cuModuleLoadData(&module, ww_kernels_ptx) && !p_cuModuleGetFunction(&digest, module, "ww_digest") &&
			!p_cuModuleGetFunction(&stamp, module, "ww_stamp"),
		"the runner's kernels");
	must(!p_cuMemAlloc(&sum, 8) && !p_cuMemAlloc(&data, sizeof(words)) && !p_cuMemAllocHost(&host, 64), "memory");
	must(!p_cuMemcpyHtoD(sum, &(uint64_t){ 0 }, 8) && !p_cuMemcpyHtoD(data, words, sizeof(words)), "a copy");
	for (uint64_t pairs = 1; pairs <= 1000; pairs += pairs / 3 + 1)
		for (unsigned blocks = 1; blocks <= 4; blocks++) {
			void *args[] = { &data, &pairs, &key, &sum };
			must(!p_cuLaunchKernel(digest, blocks, 1, 1, 256, 1, 1, 0, NULL, args, NULL), "ww_digest");
		}
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)host;
	must(!p_cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &at }, NULL), "ww_stamp");
	must(!p_cuCtxSynchronize() && *(volatile uint64_t *)host != 0, "the end of the runner's kernels");
}

int main(int argc, char **argv)
{
	int sms = open_device();
	if (argc < 3) {
		own_kernels();
	} else {
		lab_begin(sms);
		for (int i = 3; i < argc; i++)
			add_tensor(argv[i]);
		must(!lab_build(argv[1], argv[2], NULL, 0), lab_error());
		must(!lab_run(NULL), lab_error());
		must(!p_cuCtxSynchronize(), "the end of the kernels");
	}
	printf("ran\n");
	return 0;
}
