/* compile.h - from kernels.cu to a cubin (NVRTC), from kernels.c to an ELF shared object (cc).
 *
 * A compiler is a large program that reads untrusted text: it can be made to print any file that it can open, to run
 * for ever and to use up all memory.  So it runs only in a job forked from a warm zygote (`warpwright __compiler`,
 * src/sandbox/zygote.h) that sees the solution, our headers and the compiler's own, and is killed at its limits.  On
 * the cuda target the zygote has NVRTC loaded and a precompiled header of cuda_fp16.h and cuda_bf16.h in memory that
 * its jobs share.
 *
 * What comes out is checked before it is handed over (binary_check.h): device globals without a value, device-side
 * malloc, printf and launches, on the cpu target writable data, constructors, system calls and imports beyond a short
 * list, are refused by name.
 *
 * The device source is compiled as if it stood behind these lines: on cuda `#include <cuda_fp16.h>` and `#include
 * <cuda_bf16.h>`; on both targets one #define for each of the image's macros.  Lines are counted from the solution's
 * own first line.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "judge/image.h"
#include "sandbox/sandbox.h"

/* name, short text */
#define WW_COMPILE_RESULT_MAP(X)                                                                \
	X(WW_COMPILE_OK, "ok")                                                                  \
	X(WW_COMPILE_FAILED, "the device code does not compile")                                \
	X(WW_COMPILE_REFUSED, "the device code contains what no solution may contain")          \
	X(WW_COMPILE_LIMIT, "the compiled code is larger than its limit")                       \
	X(WW_COMPILE_TIMEOUT, "the compiler ran longer than its limit")                         \
	X(WW_COMPILE_CRASHED, "the compiler crashed, ran out of memory or did what the sandbox forbids")

enum ww_compile_result {
#define X(name, text) name,
	WW_COMPILE_RESULT_MAP(X)
#undef X
};
const char *ww_compile_result_text(enum ww_compile_result r);

enum {
	WW_COMPILE_MAX_BINARY = 64 << 20, /* bytes of a cubin or shared object */
	WW_COMPILE_LOG_BYTES = 16384      /* clean text of one compilation */
};

struct ww_compiler;
struct ww_compiler_opts {
	enum ww_target target;
	int cc;                          /* cuda: compute capability, 90 for 9.0 (compiled for sm_90a) */
	double max_s;                    /* processor time of one compilation, whole seconds; five times that by the clock;
	                                  * 0: 60 s */
	int64_t max_memory_bytes;        /* address space of one compiler process; 0: 4 GiB */
	const volatile int *interrupted; /* ends the waiting for a compilation where it becomes nonzero; may be NULL */
};

/* Start the zygote; the compiler may then be used by any number of threads at once (one job process each).
 * WW_ERR_MISSING names what is not installed (NVRTC, cc, the CUDA headers) and the command that installs it. */
enum ww_rc ww_compiler_open(
	struct ww_compiler **out, const struct ww_compiler_opts *opts, struct ww_err *err) WW_MUST_CHECK;
void ww_compiler_close(struct ww_compiler *c);
/* From now on keep good binaries in the store, and take them from there; not while the compiler is in use.  The store
 * outlives the compiler. */
struct ww_store;
void ww_compiler_keep(struct ww_compiler *c, struct ww_store *store);
enum ww_sandbox_level ww_compiler_level(const struct ww_compiler *c);
int ww_compiler_pid(const struct ww_compiler *c); /* the zygote's, for tests that kill it */
/* Which compiler, version, target and flags, for cache keys and for people: "nvrtc 13.0 sm_90a --std=c++17 ...". */
const char *ww_compiler_identity(const struct ww_compiler *c);

struct ww_compiled_kernel {
	const char *kernel, *symbol;
}; /* as the plan names it; in the binary */
struct ww_compiled {
	void *binary; /* cubin or ELF shared object, malloc'ed; NULL unless WW_COMPILE_OK */
	size_t binary_bytes;
	struct ww_compiled_kernel *kernels; /* each kernel name of the image once, in order of first launch */
	int n_kernels;
	char *log; /* what the compiler said, or why it was refused: clean, bounded; set by every call */
	double seconds;
};
void ww_compiled_init(struct ww_compiled *c);
void ww_compiled_release(struct ww_compiled *c);
/* The symbol of a kernel name, or NULL. */
const char *ww_compiled_symbol(const struct ww_compiled *c, const char *kernel);

/* Compile for the launches and with the macros of a validated image.  A plan without launches needs no device code:
 * its result is WW_COMPILE_OK with an empty binary (NULL, 0).  out must be initialised; a second call into the same
 * one releases the first. */
enum ww_rc ww_compiler_compile(struct ww_compiler *c, const char *source, size_t bytes, const struct ww_image *image,
	struct ww_compiled *out, enum ww_compile_result *result, struct ww_err *err) WW_MUST_CHECK;

/* The text that stands before the solution's source (see above), for exports, which must compile the same program. */
void ww_compile_prelude(const struct ww_image *image, struct ww_str *out);
/* The options that device code of this target is compiled with, space-separated, for exports; without -I and -D. */
const char *ww_compile_flags(enum ww_target target);

/* The worker's entry, `warpwright __compiler`. */
int ww_compiler_main(int argc, char **argv);
