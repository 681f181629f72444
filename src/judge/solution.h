/* solution.h - a solution's files, read from a directory (or one file), and which of the three forms they are.
 *
 *     plan         plan.c beside kernels.cu or kernels.c
 *     cuda-agent   model_new.py; kernels/ with .cu, .cuh, .cpp, .h, .hpp, .inc, .inl.  What CUDA Agent's directories
 *                  hold besides and freeze (model.py, binding.cpp, binding_registry.h, utils/) is not read: ours stands
 *                  in.
 *     kernelbench  one .py file that defines ModelNew; given as the file, or as the only such file of a directory
 *
 * in this order, by content.  docs/forms.md says how the last two are judged.
 */
#pragma once

#include "judge/judge.h"

struct ww_solution_files {
	enum ww_target target;       /* a plan's by which kernels.* there is; see below for the other forms */
	struct ww_solution solution; /* points into what follows */
	struct ww_str device, plan;
	struct ww_str *texts; /* n of each */
	char **paths;
	struct ww_solution_file *files;
	int n;
};

/* Read a solution.  Only plain files of at most WW_SOLUTION_MAX_BYTES are taken.  want: the target that is asked for,
 * or 0: of a plan the one that is there, cuda with both kernels.cu and kernels.c; of another form cuda where its text
 * speaks of CUDA or Triton, else cpu.  What is missing or too large is WW_ERR_USAGE and says so.  Release it also after
 * an error. */
enum ww_rc ww_solution_load(
	struct ww_solution_files *f, const char *path, enum ww_target want, struct ww_err *err) WW_MUST_CHECK;
void ww_solution_files_release(struct ww_solution_files *f);

/* The same from files in memory, one after the other: begin, add each, end.  Release it also after an error. */
void ww_solution_begin(struct ww_solution_files *f, enum ww_form form, enum ww_target target);
/* A file of the form's directory by its name there (see above; of `kernelbench` it is WW_SOLUTION_KERNELBENCH). */
enum ww_rc ww_solution_add(
	struct ww_solution_files *f, const char *name, const char *text, size_t n, struct ww_err *err) WW_MUST_CHECK;
void ww_solution_end(struct ww_solution_files *f);
#define WW_SOLUTION_KERNELBENCH "kernel.py"
/* 1 where a file of this name belongs to a solution of the form. */
int ww_solution_has_place(enum ww_form form, enum ww_target target, const char *name);
/* The k-th file that a solution of the form cannot do without, NULL behind the last. */
const char *ww_solution_needs(enum ww_form form, enum ww_target target, int k);
/* File k by its name in the form's directory, as ww_solution_add() takes it; NULL behind the last. */
const char *ww_solution_file(const struct ww_solution_files *f, int k, const char **text);
/* Content hash of all that belongs to it: 64 digits and a NUL. */
void ww_solution_id(const struct ww_solution *s, char out[65]);
/* "kernels.cu" or "kernels.c". */
const char *ww_solution_device_file(enum ww_target target);
/* Does this Python text define a class ModelNew? */
int ww_solution_defines_model(const char *text);
