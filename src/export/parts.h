/* parts.h - what the files of src/export share: one export under way. */
#pragma once

#include "export/export.h"
#include "base/hash.h"
#include "base/tmpdir.h"
#include "export/render.h"
#include "judge/compile/compile.h"

struct ww_export {
	const struct ww_export_opts *o; /* borrowed */
	const struct ww_facts *facts;
	const json_t *graph; /* of the task, borrowed */
	const char *name;    /* C identifier made of the task's name */
	int cuda;
	char id[WW_HASH_HEX]; /* of everything that determines the export */
	struct ww_image *image;
	struct ww_compiled compiled;
	struct ww_vars vars;
	struct ww_arena arena;
	char dir[4096]; /* the directory that is being filled */
};

/* Build the solution and set every variable of the templates; x->dir is the caller's to fill in.  End it also after an
 * error. */
enum ww_rc ww_export_begin(struct ww_export *x, const struct ww_export_opts *o, struct ww_err *err) WW_MUST_CHECK;
void ww_export_end(struct ww_export *x);
/* A Python process that imports PyTorch and then waits for a line (ahead.c). */
enum ww_export_use {
	WW_EXPORT_CALL,   /* confined to a directory of its own: templates/run_one.py */
	WW_EXPORT_CHECKS, /* templates/run_all.py */
	WW_EXPORT_USES
};
struct ww_export_python {
	pid_t pid; /* 0: none */
	int in, out;
	struct ww_tmpdir dir; /* of WW_EXPORT_CALL */
};
#define WW_EXPORT_PYTHON_NONE { 0, -1, -1, WW_TMPDIR_INIT }
/* One that has been started ahead, or a new one. */
enum ww_rc ww_export_python_take(struct ww_export_python *p, enum ww_export_use use, struct ww_err *err) WW_MUST_CHECK;
/* Send it the line, on which it begins. */
void ww_export_python_tell(struct ww_export_python *p, const char *line);
/* Read what it prints into out until it ends; its wait status (waitpid(2)) to *status.  With `use` (may be NULL) the
 * device is shared: the program prints the line "ready" before it uses the device, and goes on when it reads another
 * line, sent once take() has returned.  It prints "rest" when it gives the device back. */
enum ww_rc ww_export_python_finish(struct ww_export_python *p, const struct ww_judge_use *use,
	const volatile int *interrupted, struct ww_str *out, int *status, struct ww_err *err) WW_MUST_CHECK;
void ww_export_python_end(struct ww_export_python *p); /* safe twice */
/* The last line of what a program printed that is a JSON object, or NULL; tail gets the last 400 bytes for messages. */
json_t *ww_export_report(struct ww_str *out, struct ww_str *tail);
/* Whether an error that such a program reports is a lack of memory (on the device, in most cases).  *gib: GiB that it
 * needs at least, which is what it held and what it asked for, as far as PyTorch's text says so; else 0. */
int ww_export_lacks_memory(const char *why, double *gib);
/* Set every variable of the templates. */
void ww_export_vars(struct ww_export *x);
/* What an export says of its verdict: correctness, each speed-up with its interval, each flag with what it means.  One
 * line of text that can stand in a C comment and in a Python docstring. */
void ww_export_verdict_text(const struct ww_verdict *v, struct ww_str *out);
/* One file under x->dir; parents are made. */
enum ww_rc ww_export_file(
	struct ww_export *x, const char *path, const void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* The same, rendered from an embedded template. */
enum ww_rc ww_export_render(
	struct ww_export *x, const char *path, const char *template_path, struct ww_err *err) WW_MUST_CHECK;

/* The files of the C library, one call of put each, with paths relative to the library's folder. */
struct ww_export_sink {
	enum ww_rc (*put)(struct ww_export *x, struct ww_export_sink *sink, const char *path, const void *bytes, size_t n,
		struct ww_err *err);
	const char *prefix;  /* folder below x->dir, "" or "lib/" */
	struct ww_str *text; /* text that a collecting sink appends to */
};
enum ww_rc ww_export_library(struct ww_export *x, struct ww_export_sink *sink, struct ww_err *err) WW_MUST_CHECK;
/* The three forms, into x->dir. */
enum ww_rc ww_export_c(struct ww_export *x, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_export_torch(struct ww_export *x, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_export_kernelbench(struct ww_export *x, struct ww_err *err) WW_MUST_CHECK;
