/* compile_wire.h - between the judge and a compile job.
 *
 * Request: struct ww_compile_request, the macro lines, the kernel names (each with its NUL), the source.  Reply: struct
 * ww_compile_reply, the symbols (each with its NUL, as many as kernel names), the log, the binary.
 */
#pragma once

#include "base/str.h"
#include "judge/compile/compile.h"
#include "sandbox/zygote.h"

enum { WW_COMPILE_RAW_LOG_BYTES = 1 << 20, WW_COMPILE_NAMES_BYTES = 8 << 20 };

struct ww_compile_request {
	uint32_t n_kernels, macros_bytes, names_bytes, source_bytes;
};
struct ww_compile_reply {
	uint32_t result, symbols_bytes, log_bytes, binary_bytes;
};

/* One job as the two back ends see it. */
struct ww_compile_job {
	const char *macros, *names, *source;
	size_t macros_bytes, names_bytes, source_bytes;
	int n_kernels;
	double max_cpu_s;                   /* of all processes of the job together */
	struct ww_str symbols, log, binary; /* the answer */
};

/* A back end runs inside the worker: warm once before isolation, then one job a process. */
struct ww_compile_backend {
	/* Find and load the compiler; fill binds with what its jobs read.  `dir` is a private directory or NULL. */
	enum ww_rc (*load)(int cc, const char *dir, struct ww_str *hello, struct ww_err *err);
	int (*binds)(struct ww_sandbox_bind *out, int max);
	enum ww_compile_result (*run)(struct ww_compile_job *job);
};
extern const struct ww_compile_backend ww_compile_nvrtc, ww_compile_cc;

/* Flags that both compile jobs and exports use. */
extern const char *const ww_nvrtc_flags[], *const ww_cc_flags[]; /* end with NULL */
