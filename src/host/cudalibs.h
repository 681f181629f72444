/* cudalibs.h - where CUDA's own libraries and headers are.
 *
 * A user with PyTorch has them in the Python environment's `nvidia` wheels, a user with the toolkit under
 * /usr/local/cuda; both may be there in different versions.  The wheels come first: they are what the baselines run
 * on.  Searched in this order, first hit wins:
 *
 *     $WW_CUDA_LIBS                                  directories, ':' between them
 *     the environment of $WW_PYTHON, $VIRTUAL_ENV, then .venv beside the program, each with
 *         lib/python3.N/site-packages/nvidia/NAME/lib  (cu13 wheels share one directory, cu12 wheels have one each)
 *     $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*: lib64
 *     the dynamic linker's own directories, $LD_LIBRARY_PATH among them
 */
#pragma once

#include "base/err.h"

/* The path of the first file called one of `names` (ends with NULL; best version first: {"libnvrtc.so.13",
 * "libnvrtc.so.12", NULL}) into out (PATH_MAX bytes).  WW_ERR_MISSING names the library and what to install. */
enum ww_rc ww_cudalib_find(const char *const *names, char *out, struct ww_err *err) WW_MUST_CHECK;
/* The same and dlopen() it (RTLD_NOW | RTLD_GLOBAL, as these libraries look each other up); the handle lives until
 * exit. */
enum ww_rc ww_cudalib_open(const char *const *names, void **handle, struct ww_err *err) WW_MUST_CHECK;
/* The directory that holds cuda_fp16.h, of the same installation as NVRTC where it has one. */
enum ww_rc ww_cuda_include_dir(char *out, struct ww_err *err) WW_MUST_CHECK;

extern const char *const ww_cudalib_nvrtc[], *const ww_cudalib_cublaslt[], *const ww_cudalib_cudnn[],
																			   *const ww_cudalib_cupti[];
