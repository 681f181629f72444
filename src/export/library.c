/* library.c - the C library that every form carries.
 *
 * Files: NAME.h, NAME.c, data.S with plan.image, kernels.bin and kernels.pack (binary data), runtime/ (the code that
 * replayed the plan under the judge), Makefile.  For a person to read, and for nothing else: kernels.cu or kernels.c,
 * plan.c and plan.txt.
 *
 * kernels.pack is what is needed to compile the device code anew: the program behind its macros, and the cookbook's
 * headers that it includes, directly or through one another.
 */
#include "export/parts.h"
#include "export/embed.h"
#include "base/fs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_HEADERS = 64, MAX_HEADER_BYTES = 1 << 20 };

struct headers {
	const char *name[MAX_HEADERS]; /* "ww/vec.cuh" */
	const char *text[MAX_HEADERS];
	size_t bytes[MAX_HEADERS];
	int n;
};

static enum ww_rc find_header(struct ww_export *x, struct headers *h, const char *name, struct ww_err *err);

/* Every #include <ww/...> or "ww/..." of a text. */
static enum ww_rc scan_includes(struct ww_export *x, struct headers *h, const char *text, struct ww_err *err)
{
	for (const char *p = text; (p = strstr(p, "#")); p++) {
		const char *q = p + 1 + strspn(p + 1, " \t");
		if (strncmp(q, "include", 7))
			continue;
		q += 7 + strspn(q + 7, " \t");
		size_t n = *q == '<' ? strcspn(q + 1, ">\n") : *q == '"' ? strcspn(q + 1, "\"\n") : 0;
		char name[256];
		if (n < 4 || n >= sizeof(name) || strncmp(q + 1, "ww/", 3))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)n, q + 1);
		WW_CHECK(find_header(x, h, name, err));
	}
	return WW_OK;
}

static enum ww_rc find_header(struct ww_export *x, struct headers *h, const char *name, struct ww_err *err)
{
	for (int i = 0; i < h->n; i++)
		if (!strcmp(h->name[i], name))
			return WW_OK;
	char root[PATH_MAX], path[PATH_MAX];
	enum ww_rc rc = ww_fs_resource("skills/cuda/include", root, err);
	if (rc != WW_OK || (rc = ww_fs_join(path, root, name, err)) != WW_OK)
		return rc;
	if (strstr(name, "..") || !ww_fs_is_file(path))
		return WW_OK; /* behind an #if that is not taken: the compiler was content without it */
	ww_auto_str s = WW_STR_INIT(MAX_HEADER_BYTES);
	rc = ww_fs_read(path, MAX_HEADER_BYTES, &s, err);
	if (rc == WW_OK && h->n == MAX_HEADERS)
		rc = ww_err_set(err, WW_ERR_LIMIT, "the device code includes more than %d headers", MAX_HEADERS);
	if (rc == WW_OK) {
		int i = h->n++;
		h->name[i] = ww_arena_strdup(&x->arena, name);
		h->text[i] = ww_arena_strdup(&x->arena, s.p);
		h->bytes[i] = s.len;
		if (!h->name[i] || !h->text[i])
			rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory while exporting");
		else
			rc = scan_includes(x, h, h->text[i], err);
	}
	return rc;
}

static enum ww_rc put(
	struct ww_export *x, struct ww_export_sink *sink, const char *path, const void *bytes, size_t n, struct ww_err *err)
{
	return sink->put(x, sink, path, bytes, n, err);
}

static enum ww_rc put_rendered(
	struct ww_export *x, struct ww_export_sink *sink, const char *path, const char *template_path, struct ww_err *err)
{
	ww_auto_str s = WW_STR_INIT(4 << 20);
	ww_render_embedded(&x->vars, template_path, &s);
	return put(x, sink, path, s.p, s.len, err);
}

static enum ww_rc put_runtime(struct ww_export *x, struct ww_export_sink *sink, struct ww_err *err)
{
	static const struct {
		const char *from, *to;
		int target;
	} files[] = { { "include/ww/plan.h", "runtime/ww/plan.h", 0 },
		{ "src/judge/image_data.h", "runtime/judge/image_data.h", 0 },
		{ "src/judge/run/exec.h", "runtime/judge/run/exec.h", 0 },
		{ "src/judge/run/exec_cpu.c", "runtime/judge/run/exec_cpu.c", WW_TARGET_CPU },
		{ "src/judge/run/exec_cuda.c", "runtime/judge/run/exec_cuda.c", WW_TARGET_CUDA },
		{ "src/judge/run/exec_cuda_library.c", "runtime/judge/run/exec_cuda_library.c", WW_TARGET_CUDA },
		{ "src/judge/run/exec_cuda_library.h", "runtime/judge/run/exec_cuda_library.h", WW_TARGET_CUDA },
		{ "src/judge/run/exec_cuda_conv.c", "runtime/judge/run/exec_cuda_conv.c", WW_TARGET_CUDA },
		{ "src/judge/run/exec_cuda_conv.h", "runtime/judge/run/exec_cuda_conv.h", WW_TARGET_CUDA },
		{ "src/export/templates/recompile.h.in", "recompile.h", WW_TARGET_CUDA } };
	int target = x->cuda ? WW_TARGET_CUDA : WW_TARGET_CPU;
	for (size_t i = 0; i < WW_ARRAY_LEN(files); i++) {
		const struct ww_embedded *e = ww_embedded_find(files[i].from);
		WW_BUG(!e);
		WW_CHECK(files[i].target && files[i].target != target ? WW_OK : put(x, sink, files[i].to, e->bytes, e->n, err));
	}
	return x->cuda ? put_rendered(x, sink, "recompile.c", "src/export/templates/recompile.c.in", err) : WW_OK;
}

static enum ww_rc put_headers(
	struct ww_export *x, struct ww_export_sink *sink, const struct headers *h, struct ww_err *err)
{
	for (int i = 0; i < h->n; i++) {
		char path[512];
		snprintf(path, sizeof(path), "runtime/%s", h->name[i]);
		WW_CHECK(put(x, sink, path, h->text[i], h->bytes[i], err));
	}
	return WW_OK;
}

static void add_terminated(struct ww_str *s, const char *text) { ww_str_add(s, text, strlen(text) + 1); }

static enum ww_rc put_device_code(struct ww_export *x, struct ww_export_sink *sink, struct ww_err *err)
{
	const struct ww_solution *sol = x->o->solution;
	ww_auto_str program = WW_STR_INIT(4 << 20), pack = WW_STR_INIT(32 << 20);
	struct headers h = { .n = 0 };
	ww_compile_prelude(x->image, &program);
	ww_str_addf(&program, "#line 1 \"kernels.%s\"\n", x->cuda ? "cu" : "c");
	ww_str_add(&program, sol->device_source, sol->device_bytes);
	WW_CHECK(scan_includes(x, &h, program.p, err));
	add_terminated(&pack, "kernels");
	add_terminated(&pack, program.p);
	for (int i = 0; i < h.n; i++) {
		add_terminated(&pack, h.name[i]);
		add_terminated(&pack, h.text[i]);
	}
	if (program.cut || pack.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "the device code and its headers are larger than 32 MiB");
	if (x->cuda) {
		WW_CHECK(put(x, sink, "kernels.pack", pack.p, pack.len, err));
		WW_CHECK(put(x, sink, "kernels.bin", x->compiled.binary, x->compiled.binary_bytes, err));
	} else {
		/* The cpu library is built from source where it is used: nothing to embed. */
		WW_CHECK(put(x, sink, "kernels.pack", "", 0, err));
		WW_CHECK(put(x, sink, "kernels.bin", "", 0, err));
		WW_CHECK(put_headers(x, sink, &h, err));
		WW_CHECK(put(x, sink, "kernels_build.c", program.p, program.len, err));
	}
	WW_CHECK(put(x, sink, x->cuda ? "kernels.cu" : "kernels.c", sol->device_source, sol->device_bytes, err));
	return put(x, sink, "plan.c", sol->plan_source, sol->plan_bytes, err);
}

enum ww_rc ww_export_library(struct ww_export *x, struct ww_export_sink *sink, struct ww_err *err)
{
	char path[512];
	ww_auto_str text = WW_STR_INIT(16 << 20);
	snprintf(path, sizeof(path), "%s.h", x->name);
	WW_CHECK(put_rendered(x, sink, path, "src/export/templates/lib.h.in", err));
	snprintf(path, sizeof(path), "%s.c", x->name);
	WW_CHECK(put_rendered(
		x, sink, path, x->cuda ? "src/export/templates/lib_cuda.c.in" : "src/export/templates/lib_cpu.c.in", err));
	WW_CHECK(put_rendered(x, sink, "data.S", "src/export/templates/lib_data.S.in", err));
	WW_CHECK(put_rendered(x, sink, "Makefile", "src/export/templates/Makefile.lib.in", err));
	WW_CHECK(put(x, sink, "plan.image", x->image, x->image->total_bytes, err));
	ww_image_print(x->image, x->facts, &text);
	WW_CHECK(put(x, sink, "plan.txt", text.p, text.len, err));
	WW_CHECK(put_runtime(x, sink, err));
	return put_device_code(x, sink, err);
}
