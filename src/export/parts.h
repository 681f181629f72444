/* parts.h - what the files of src/export share: one export under way. */
#ifndef WW_EXPORT_PARTS_H
#define WW_EXPORT_PARTS_H

#include "export/export.h"
#include "base/hash.h"
#include "export/render.h"
#include "judge/compile/compile.h"

struct ww_export {
	const struct ww_export_opts *o;
	const struct ww_facts *facts;
	const json_t *graph;		/* of the task, borrowed */
	const char *name;		/* C identifier made of the task's name */
	int cuda;
	char id[WW_HASH_HEX];		/* of everything that determines the export */
	struct ww_image *image;
	struct ww_compiled compiled;
	struct ww_vars vars;
	struct ww_arena arena;
	char dir[4096];			/* the directory that is being filled */
};

/* Set every variable of the templates. */
void ww_export_vars(struct ww_export *x);
/* One file under x->dir; parents are made. */
enum ww_rc ww_export_file(struct ww_export *x, const char *path, const void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* The same, rendered from an embedded template. */
enum ww_rc ww_export_render(struct ww_export *x, const char *path, const char *template_path, struct ww_err *err) WW_MUST_CHECK;

/* The files of the C library, one call of put each, with paths relative to the library's folder. */
struct ww_export_sink {
	enum ww_rc (*put)(struct ww_export *x, struct ww_export_sink *sink, const char *path, const void *bytes, size_t n,
			  struct ww_err *err);
	const char *prefix;		/* folder below x->dir, "" or "lib/" */
	struct ww_str *text;		/* where a sink that collects collects */
};
enum ww_rc ww_export_library(struct ww_export *x, struct ww_export_sink *sink, struct ww_err *err) WW_MUST_CHECK;
/* The three forms, into x->dir. */
enum ww_rc ww_export_c(struct ww_export *x, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_export_torch(struct ww_export *x, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_export_kernelbench(struct ww_export *x, struct ww_err *err) WW_MUST_CHECK;

#endif
