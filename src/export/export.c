/* export.c - one export from beginning to end: gather, write beside, check, rename.
 *
 * The check runs before the export gets its name: a directory of that name has been seen to work in a process that
 * has none of our state.  Until then everything is in DIR.new-XXXXXX, which a failed or interrupted export removes.
 */
#include "export/parts.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/time.h"
#include "export/embed.h"
#include "host/lease.h"
#include "judge/pytorch.h"
#include "task/ref.h"
#include "task/task.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHECK_OUTPUT_BYTES = 65536 };

static const struct {
	const char *name;
	enum ww_rc (*write)(struct ww_export *x, struct ww_err *err);
} formats[WW_EXPORT_COUNT] = { [WW_EXPORT_C] = { "c", ww_export_c },
	[WW_EXPORT_TORCH] = { "torch", ww_export_torch },
	[WW_EXPORT_KERNELBENCH] = { "kernelbench", ww_export_kernelbench } };

const char *ww_export_format_name(enum ww_export_format f) { return formats[f].name; }

enum ww_rc ww_export_format_parse(const char *name, enum ww_export_format *out, struct ww_err *err)
{
	ww_auto_str names = WW_STR_INIT(256);
	for (int i = 0; i < WW_EXPORT_COUNT; i++) {
		if (!strcmp(name, formats[i].name)) {
			*out = (enum ww_export_format)i;
			return WW_OK;
		}
		ww_str_addf(&names, "%s%s", i ? ", " : "", formats[i].name);
	}
	ww_err_set(err, WW_ERR_USAGE, "no export format \"%s\"; there are %s", name, names.p);
	return err->rc;
}

enum ww_rc ww_export_file(struct ww_export *x, const char *path, const void *bytes, size_t n, struct ww_err *err)
{
	char full[PATH_MAX], parent[PATH_MAX];
	WW_CHECK(ww_fs_join(full, x->dir, path, err));
	snprintf(parent, sizeof(parent), "%s", full);
	*strrchr(parent, '/') = 0;
	WW_CHECK(ww_fs_mkdirs(parent, err));
	return ww_fs_write(full, bytes, n, err);
}

enum ww_rc ww_export_render(struct ww_export *x, const char *path, const char *template_path, struct ww_err *err)
{
	ww_auto_str s = WW_STR_INIT(256 << 20);
	ww_render_embedded(&x->vars, template_path, &s);
	return s.cut || x->vars.failed ? ww_err_set(err, WW_ERR_NOMEM, "out of memory while exporting")
								   : ww_export_file(x, path, s.p, s.len, err);
}

/* Words of C and C++, and what GNU C defines: the header declares struct NAME. */
static const char taken[] =
	" alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class compl "
	"concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete "
	"do double dynamic_cast else enum explicit export extern false float for friend goto if inline int linux long "
	"mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
	"reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
	"template this thread_local throw true try typedef typeid typename typeof union unix unsigned using virtual void "
	"volatile wchar_t while xor xor_eq ";

static int is_taken(const char *name)
{
	char word[32];
	return (size_t)snprintf(word, sizeof(word), " %s ", name) < sizeof(word) && strstr(taken, word);
}

/* The task's name as a C identifier and Python module name. */
static char *identifier(struct ww_arena *a, const char *name)
{
	int as_it_is = *name && !isdigit((unsigned char)*name) && !is_taken(name);
	char *id = ww_arena_printf(a, "%s%.60s", as_it_is ? "" : "task_", name);
	for (char *p = id; p && *p; p++)
		if (!isalnum((unsigned char)*p))
			*p = '_';
	return id;
}

static void hash_all(struct ww_export *x)
{
	const struct ww_solution *s = x->o->solution;
	struct ww_hash_part parts[] = { { x->o->task->source, x->o->task->source_bytes },
		{ s->device_source, s->device_bytes }, { s->plan_source, s->plan_bytes }, { x->image, x->image->total_bytes },
		{ x->compiled.binary, x->compiled.binary_bytes }, { WW_VERSION, strlen(WW_VERSION) },
		{ &x->o->format, sizeof(x->o->format) } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), x->id);
}

/* ---- From beginning to end --------------------------------------------------------------------------------------- */

static enum ww_rc write_readme(struct ww_export *x, struct ww_err *err)
{
	static const char *const use[WW_EXPORT_COUNT] = {
		[WW_EXPORT_C] =
			"`make` builds the library; @NAME@.h says how to call it; `make example` builds a program that runs it on "
			"raw files\n(example.c); `python check.py` compares it with the original module (model.py).\n\nA program compiles with @NAME@.h and runs with lib@NAME@.so@TRAVELS@, "
			"in one directory.\nIt passes the weights in the header's order: `python weights.py [STATE_DICT.pt]` "
			"writes them to @NAME@.weights\n(so does `warpwright export --format c --weights`), "
			"and @NAME@_load_weights() reads that file; ship it with the library.",
		[WW_EXPORT_TORCH] = "Put this directory on the Python path; from warpwright_@NAME@ import ModelNew, "
							"which is built like the original "
							"(Model, unchanged), or optimized(module).\n"
							"`python check.py` compares the two.  The C library in lib/ is built on first use.",
		[WW_EXPORT_KERNELBENCH] =
			"The one Python file defines ModelNew (and Model, the original); `python check.py` compares "
			"the two."
	};
	static const char *const where[WW_EXPORT_COUNT] = { [WW_EXPORT_C] = "",
		[WW_EXPORT_TORCH] = ", in the package's lib/",
		[WW_EXPORT_KERNELBENCH] = ", as texts at the end of that file" };
	const char *text =
		"# @NAME@\n\nGenerated by Warpwright @VERSION@ from @TASK@ (sha256 @TASK_ID@).\n@VERIFIED@\n\n@USE@\n"
		"\nThe kernels and the plan are kernels.@EXT@ and plan.c@WHERE@; plan.txt lists the plan's nodes and buffers.  On a "
		"machine of another kind the device code\nis compiled anew and a warning says that it is unverified there; "
		"`warpwright judge TASK.py DIR` verifies it there.\n@MUTATED@";
	ww_auto_str s = WW_STR_INIT(65536);
	ww_auto_str how = WW_STR_INIT(4096);
	ww_render(&x->vars, use[x->o->format], strlen(use[x->o->format]), &how);
	ww_vars_set(&x->vars, "USE", how.p);
	ww_vars_set(&x->vars, "WHERE", where[x->o->format]);
	ww_render(&x->vars, text, strlen(text), &s);
	return ww_export_file(x, "README.md", s.p, s.len, err);
}

/* Replace `dir` by x->dir: the old export is moved aside first, so that there is always a whole one. */
static enum ww_rc move_to_dir(struct ww_export *x, struct ww_err *err)
{
	char old[PATH_MAX];
	struct ww_err ignored;
	if ((size_t)snprintf(old, sizeof(old), "%s.old", x->dir) >= sizeof(old))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", x->dir);
	int had = rename(x->o->dir, old) == 0;
	if (rename(x->dir, x->o->dir) < 0) {
		ww_err_errno(err, WW_ERR_IO, "cannot create %s", x->o->dir);
		if (had && rename(old, x->o->dir) < 0)
			ww_err_wrap(err, "the earlier export is now %s", old);
		return err->rc;
	}
	if (had && ww_fs_remove_tree(old, &ignored) != WW_OK)
		return ww_err_set(err, WW_ERR_IO, "the export is in %s, but %s cannot be removed", x->o->dir, old);
	return WW_OK;
}

enum ww_rc ww_export_check_dir(const char *dir, struct ww_err *err)
{
	char marker[PATH_MAX];
	enum ww_rc rc = ww_fs_join(marker, dir, "check.py", err);
	if (rc != WW_OK || access(dir, F_OK) != 0 || ww_fs_is_file(marker))
		return rc;
	return ww_err_set(err, WW_ERR_USAGE, "%s exists and is no earlier export; name another directory", dir);
}

enum ww_rc ww_export_begin(struct ww_export *x, const struct ww_export_opts *o, struct ww_err *err)
{
	*x = (struct ww_export){ .o = o, .facts = ww_judge_task_facts(o->judged), .graph = ww_judge_task_graph(o->judged) };
	ww_arena_init(&x->arena, 256 << 20);
	ww_compiled_init(&x->compiled);
	x->vars.arena = &x->arena;
	x->cuda = x->facts->device.target == WW_TARGET_CUDA;
	x->name = identifier(&x->arena, o->task->name);
	WW_CHECK(x->name ? WW_OK : ww_err_set(err, WW_ERR_NOMEM, "out of memory while exporting"));
	WW_CHECK(ww_judge_artifacts(o->judged, o->solution, &x->image, &x->compiled, err));
	if (ww_pytorch_count(x->image) && o->format == WW_EXPORT_C)
		return ww_err_set(err, WW_ERR_USAGE,
			"PyTorch runs some operators of this solution (%.200s ...), which a C library cannot; use torch or kernelbench",
			ww_pytorch_names(x->image));
	hash_all(x);
	ww_export_vars(x);
	return WW_OK;
}

void ww_export_end(struct ww_export *x)
{
	free(x->image);
	ww_compiled_release(&x->compiled);
	ww_arena_release(&x->arena);
}

/* One export in progress. */
struct making {
	struct ww_export x;
	char staging[PATH_MAX];
	int begun, made;
	int lacks; /* its check found too little memory of the device; it needs these GiB at least, 0: unknown */
	double gib;
	enum ww_rc rc;
	struct ww_err *err;
};

/* Write everything but the check into a directory beside the final one. */
static enum ww_rc write_all(struct making *m, const struct ww_export_opts *o, struct ww_err *err)
{
	char parent[PATH_MAX], real[PATH_MAX];
	WW_CHECK(ww_export_check_dir(o->dir, err));
	m->begun = 1;
	WW_CHECK(ww_export_begin(&m->x, o, err));
	snprintf(parent, sizeof(parent), "%s", o->dir);
	char *slash = strrchr(parent, '/');
	if (slash && slash != parent) {
		*slash = 0;
		WW_CHECK(ww_fs_mkdirs(parent, err));
	}
	if ((size_t)snprintf(m->staging, sizeof(m->staging), "%s.new-XXXXXX", o->dir) >= sizeof(m->staging) - 128 ||
		!mkdtemp(m->staging))
		return ww_err_errno(err, WW_ERR_IO, "cannot create a directory beside %s", o->dir);
	m->made = 1;
	if (!realpath(m->staging, real)) /* absolute: the process of the checks works in / */
		return ww_err_errno(err, WW_ERR_IO, "%s", m->staging);
	WW_CHECK(ww_fs_join(m->x.dir, real, "export", err));
	WW_CHECK(formats[o->format].write(&m->x, err));
	WW_CHECK(ww_export_render(&m->x, "check.py", "src/export/templates/check.py.in", err));
	WW_CHECK(write_readme(&m->x, err));
	return m->x.vars.failed ? ww_err_set(err, WW_ERR_NOMEM, "out of memory while exporting") : WW_OK;
}

/* ---- The check --------------------------------------------------------------------------------------------------- */

/* From what an export's scripts printed and how the last of them ended. */
static enum ww_rc judge_check(struct making *m, struct ww_str *out, int code, struct ww_err *err)
{
	ww_auto_str tail = WW_STR_INIT(512);
	json_auto_t *report = ww_export_report(out, &tail);
	const char *form = formats[m->x.o->format].name;
	const char *why = ww_json_str(report, "error", NULL);
	m->lacks = ww_export_lacks_memory(why ? why : report ? ww_json_str(report, "no_fp64", "") : tail.p, &m->gib);
	if (!report)
		return ww_err_set(err, WW_ERR_WORKER, "the check of the %s export died: %s", form, tail.p);
	if (why)
		return ww_err_set(err, WW_ERR_WORKER, "the %s export failed its check: %s", form, why);
	if (!ww_json_bool(report, "pass", 0))
		return ww_err_set(err, WW_ERR_WORKER,
			"the %s export failed its check: its error is %.3g times what the original module's allows", form,
			ww_json_to_real(json_object_get(report, "worst"), NAN));
	if (code != 0)
		return ww_err_set(err, WW_ERR_WORKER, "the check of the %s export ended with code %d: %s", form, code, tail.p);
	return WW_OK;
}

/* Read a check's result from the next line of run_all.py's output; without one, all of the output is the reason. */
static void check_of(struct making *m, struct ww_str *all, char **next)
{
	ww_auto_str out = WW_STR_INIT(CHECK_OUTPUT_BYTES);
	char *line = *next, *end = strchr(line, '\n');
	json_t *o = *line == '{' && end ? json_loadb(line, (size_t)(end - line), 0, NULL) : NULL;
	ww_str_adds(&out, o ? ww_json_str(o, "output", "") : all->p);
	m->rc = judge_check(m, &out, o ? (int)json_integer_value(json_object_get(o, "code")) : 1, m->err);
	*next = o ? end + 1 : line;
	json_decref(o);
}

/* Checks run in parallel with each other and with engines, but not while anything is measured. */
struct sharing {
	struct ww_export *x;
	struct ww_share share;
};

static enum ww_rc take_share(void *sharing, struct ww_err *err)
{
	struct sharing *s = sharing;
	if (s->share.fd < 0)
		WW_CHECK(ww_share_open(&s->share, ww_judge_task_device(s->x->o->judged), err));
	return ww_share_step(&s->share, s->x->o->interrupted, err);
}

static void rest(void *sharing)
{
	struct sharing *s = sharing;
	ww_share_rest(&s->share);
}

/* What run_all.py reads: who has scripts to run, on which GPU, whether they wait for a turn, and whether one calls
 * torch.compile. */
static json_t *jobs_of(const struct making *all, int n, const struct ww_export *x)
{
	json_t *jobs = json_array();
	int compiles = 0;
	for (int i = 0; i < n; i++) {
		const struct ww_export_opts *o = all[i].x.o;
		const char *scripts = o && o->weights && o->format == WW_EXPORT_C ? "weights.py,check.py" : "check.py";
		if (all[i].rc != WW_OK)
			continue;
		json_array_append_new(jobs, json_pack("[s,s]", all[i].x.dir, scripts));
		compiles |= o && o->format == WW_EXPORT_TORCH;
	}
	return json_pack("{s:b, s:i, s:b, s:o}", "turn", x->cuda, "device", ww_judge_task_ordinal(x->o->judged), "compiles",
		compiles, "jobs", jobs);
}

/* The scripts of those that were written, in one process that has imported PyTorch once (templates/run_all.py). */
static enum ww_rc run_scripts(
	struct making *all, int n, struct ww_export_python *python, struct ww_str *out, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(1 << 20);
	struct sharing sharing = { NULL, WW_SHARE_INIT };
	const struct ww_judge_use use = { take_share, rest, &sharing };
	int status;
	for (int i = n - 1; i >= 0; i--)
		sharing.x = all[i].rc == WW_OK ? &all[i].x : sharing.x;
	json_auto_t *jobs = jobs_of(all, n, sharing.x);
	ww_json_add(&line, jobs);
	ww_str_addc(&line, '\n');
	ww_export_python_tell(python, line.p);
	enum ww_rc rc = ww_export_python_finish(
		python, sharing.x->cuda ? &use : NULL, sharing.x->o->interrupted, out, &status, err);
	ww_share_close(&sharing.share);
	return rc;
}

/* Check those that were written beside each other, at least one.  room: what an earlier attempt found too little of;
 * NULL: this is the first.  The process imports PyTorch while others' memory is waited for. */
static void check(struct making *all, int n, struct ww_judge_room *room)
{
	WW_AUTO(ww_export_python_end) struct ww_export_python python = WW_EXPORT_PYTHON_NONE;
	ww_auto_str out = WW_STR_INIT((size_t)n * 4 * CHECK_OUTPUT_BYTES);
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc = ww_export_python_take(&python, WW_EXPORT_CHECKS, &err);
	if (rc == WW_OK && room)
		rc = ww_judge_room_wait(all->x.o->judged, room, all->gib, &err);
	if (rc == WW_OK)
		rc = run_scripts(all, n, &python, &out, &err);
	char *next = out.p ? out.p : "";
	for (int i = 0; i < n; i++)
		if (all[i].rc == WW_OK && rc != WW_OK)
			all[i].rc = ww_err_set(all[i].err, rc, "%s", err.msg);
		else if (all[i].rc == WW_OK)
			check_of(&all[i], &out, &next);
}

/* The memory that a check lacked may have been held by the other checks, or by processes that are not ours: it is made
 * again by itself. */
static void check_again(struct making *m)
{
	struct ww_judge_room room = { 0 };
	while (m->lacks && ww_judge_room_again(m->x.o->judged, &room)) {
		m->lacks = 0;
		m->rc = WW_OK;
		*m->err = (struct ww_err)WW_ERR_INIT;
		check(m, 1, &room);
	}
}

static void check_all(struct making *all, int n)
{
	int written = 0;
	for (int i = 0; i < n; i++) {
		written += all[i].rc == WW_OK;
		if (all[i].rc == WW_OK)
			ww_judge_task_rest(all[i].x.o->judged); /* the checks need the memory that it holds */
	}
	if (written)
		check(all, n, NULL);
	for (int i = 0; i < n; i++)
		check_again(&all[i]);
}

static void end(struct making *m)
{
	struct ww_err ignored;
	if (m->rc == WW_OK)
		m->rc = move_to_dir(&m->x, m->err);
	if (m->made && ww_fs_remove_tree(m->staging, &ignored) != WW_OK && m->rc == WW_OK)
		m->rc = ww_err_set(m->err, WW_ERR_IO, "%s", ignored.msg);
	if (m->begun)
		ww_export_end(&m->x);
}

void ww_exports(const struct ww_export_opts *o, int n, enum ww_rc *rc, struct ww_err *errs)
{
	struct making *all = calloc((size_t)n, sizeof(*all));
	for (int i = 0; i < n; i++) {
		if (!all) {
			rc[i] = ww_err_set(&errs[i], WW_ERR_NOMEM, "out of memory while exporting");
			continue;
		}
		all[i].err = &errs[i];
		all[i].rc = write_all(&all[i], &o[i], &errs[i]);
	}
	if (all)
		check_all(all, n);
	for (int i = 0; all && i < n; i++) {
		end(&all[i]);
		rc[i] = all[i].rc;
	}
	free(all);
}

enum ww_rc ww_export(const struct ww_export_opts *o, struct ww_err *err)
{
	enum ww_rc rc;
	ww_exports(o, 1, &rc, err);
	return rc;
}
