/* tool_files.c - write, read, edit, multi_edit: the files of the workspace, and those of the skill to read.
 *
 * All of them are idempotent over a resume: a call whose answer was not recorded is carried out again on a workspace
 * that was rebuilt from the answered calls only.  A call changes one file, whole or not at all, so that an answer which
 * reports an error has changed nothing and can be left out of that.
 */
#include "agent/tool_bash.h"
#include "agent/tools.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define PATH_PROPERTY                                                                                                  \
	"\"path\":{\"type\":\"string\",\"description\":\"relative to the workspace, where the solution's files lie\"}"

static int is_valid_path(const char *path, struct ww_tool_result *r)
{
	ww_auto_str why = WW_STR_INIT(512);
	int ok = ww_workspace_is_path(path, &why);
	if (!ok)
		ww_tool_malformed(r, "%s", why.p);
	return ok;
}

/* Answer with the workspace's reason for a refusal. */
static void refuse(struct ww_tool_result *r, const struct ww_str *why)
{
	ww_str_adds(&r->text, why->p);
	r->is_error = 1;
}

/* The file as it was before a write that the shell's tree refused. */
static enum ww_rc put_back(
	struct ww_tool_env *env, const char *path, const struct ww_str *old, int existed, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(512);
	return existed ? ww_workspace_write(env->workspace, path, old->p, old->len, &why, err)
				   : ww_workspace_remove(env->workspace, path, err);
}

/* Into the workspace and the shell's tree, or into neither. */
static enum ww_rc store(
	struct ww_tool_env *env, const char *path, const char *text, size_t n, struct ww_tool_result *r, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(512), note = WW_STR_INIT(512), old = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES);
	int existed;
	WW_CHECK(ww_workspace_read(env->workspace, path, &old, &existed, &why, err));
	ww_str_reset(&why);
	WW_CHECK(ww_workspace_write(env->workspace, path, text, n, &why, err));
	if (!why.len) {
		ww_tool_bash_put(env, path, text, n, &why, &note);
		if (why.len) {
			ww_str_adds(&why, " in the shell; nothing is changed; remove with bash what is in the way");
			WW_CHECK(put_back(env, path, &old, existed, err));
		}
	}
	if (why.len) {
		refuse(r, &why);
		return WW_OK;
	}
	ww_str_addf(&r->text, "%s: %zu bytes written%s", path, n, note.p);
	r->data = json_pack("{s:b}", "ok", 1);
	return WW_OK;
}

static enum ww_rc write_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *path = ww_json_str(args, "path", ""), *text = ww_json_str(args, "text", "");
	return is_valid_path(path, r) ? store(env, path, text, strlen(text), r, err) : WW_OK;
}

const struct ww_tool ww_tool_write = {
	{ "write", "Write a whole file of the workspace; folders above it are made.",
		"{\"type\":\"object\",\"properties\":{" PATH_PROPERTY
		",\"text\":{\"type\":\"string\",\"description\":\"the whole "
		"file\"}},\"required\":[\"path\",\"text\"],\"additionalProperties\":false}" },
	.run = write_run, .changes_files = 1
};

/* The file into `text`; a file that cannot be read answers the call. */
static enum ww_rc load(struct ww_tool_env *env, const char *path, struct ww_str *text, int *found,
	struct ww_tool_result *r, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(512);
	WW_CHECK(ww_workspace_read(env->workspace, path, text, found, &why, err));
	if (!*found)
		refuse(r, &why);
	return WW_OK;
}

/* `count` lines from line `first` (1-based) of text. */
static void add_lines(struct ww_str *out, const struct ww_str *text, int64_t first, int64_t count)
{
	const char *p = text->p, *end = text->p + text->len;
	for (int64_t line = 1; p < end && line < first; line++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		p = nl ? nl + 1 : end;
	}
	const char *stop = p;
	for (; stop < end && count > 0; count--) {
		const char *nl = memchr(stop, '\n', (size_t)(end - stop));
		stop = nl ? nl + 1 : end;
	}
	ww_str_add_bounded(out, p, (size_t)(stop - p), WW_TOOL_TEXT_MAX_BYTES);
}

static const struct ww_skill *skill_of(const struct ww_tool_env *env, const char *path)
{
	return env->opts && !strncmp(path, "skill/", 6) ? env->opts->skill : NULL;
}

static enum ww_rc load_skill(const struct ww_skill *s, const char *path, struct ww_str *text, int *found,
	struct ww_tool_result *r, struct ww_err *err)
{
	enum ww_rc rc = ww_skill_read(s, path + 6, text, found, err);
	if (rc == WW_OK && !*found) {
		ww_str_adds(&r->text, "the skill has no file of that name; read skill/ lists what there is");
		r->is_error = 1;
	}
	return rc;
}

static enum ww_rc read_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *path = ww_json_str(args, "path", "");
	const struct ww_skill *skill = skill_of(env, path);
	ww_auto_str text = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES);
	int found = 0;
	if (!skill && !is_valid_path(path, r))
		return WW_OK;
	WW_CHECK(skill ? load_skill(skill, path, &text, &found, r, err) : load(env, path, &text, &found, r, err));
	if (found)
		add_lines(&r->text, &text, ww_json_int(args, "first_line", 1), ww_json_int(args, "lines", 1 << 30));
	return WW_OK;
}

const struct ww_tool ww_tool_read = {
	{ "read", "Read a file of the workspace, or a file or folder of the skill (skill/...).",
		"{\"type\":\"object\",\"properties\":{" PATH_PROPERTY
		",\"first_line\":{\"type\":\"integer\",\"description\":\"1 is "
		"the first\"},\"lines\":{\"type\":\"integer\",\"description\":\"how many; all by default\"}},"
		"\"required\":[\"path\"],\"additionalProperties\":false}" },
	.run = read_run
};

/* ---- Edits ------------------------------------------------------------------------------------------------------- */

static size_t count_of(const char *text, const char *old)
{
	size_t n = 0;
	for (const char *at = text; *old && (at = strstr(at, old)); at += strlen(old))
		n++;
	return n;
}

/* One replacement in `text`; 0 with the answer in r where it cannot be made.  `which` says which of several it is. */
static int replace(
	struct ww_str *text, const json_t *edit, const char *which, const char *path, struct ww_tool_result *r)
{
	const char *old = ww_json_str(edit, "old", ""), *with = ww_json_str(edit, "new", "");
	size_t n = count_of(text->p, old);
	if (!n || (n > 1 && !ww_json_bool(edit, "all", 0))) {
		ww_str_addf(&r->text,
			"%s\"old\" %s in %s; it must occur exactly once (or \"all\" be true), nothing was changed", which,
			!n ? "does not occur" : "occurs more than once", path);
		r->is_error = 1;
		return 0;
	}
	ww_auto_str out = WW_STR_INIT(2 * WW_WORKSPACE_FILE_BYTES);
	const char *p = text->p;
	for (const char *at; (at = strstr(p, old)); p = at + strlen(old)) {
		ww_str_add(&out, p, (size_t)(at - p));
		ww_str_adds(&out, with);
	}
	ww_str_adds(&out, p);
	int fits = !out.cut && out.len <= WW_WORKSPACE_FILE_BYTES;
	if (fits) {
		struct ww_str was = *text;
		*text = out;
		out = was;
	} else {
		ww_str_addf(
			&r->text, "%s%s would be larger than %d bytes; nothing was changed", which, path, WW_WORKSPACE_FILE_BYTES);
		r->is_error = 1;
	}
	return fits;
}

static int replace_all(struct ww_str *text, const json_t *edits, const char *path, struct ww_tool_result *r)
{
	char which[32];
	json_t *edit;
	size_t i;
	json_array_foreach(edits, i, edit) {
		snprintf(which, sizeof(which), "edit %zu: ", i + 1);
		if (!replace(text, edit, which, path, r))
			return 0;
	}
	return 1;
}

/* With `edits` all of them, one after the other; else the one that args is. */
static enum ww_rc edit_file(
	struct ww_tool_env *env, const json_t *args, const json_t *edits, struct ww_tool_result *r, struct ww_err *err)
{
	const char *path = ww_json_str(args, "path", "");
	ww_auto_str text = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES);
	int found = 0;
	if (!is_valid_path(path, r))
		return WW_OK;
	WW_CHECK(load(env, path, &text, &found, r, err));
	if (found && memchr(text.p, 0, text.len)) {
		ww_str_addf(&r->text, "%s is not text", path);
		r->is_error = 1;
	} else if (found && (edits ? replace_all(&text, edits, path, r) : replace(&text, args, "", path, r))) {
		return store(env, path, text.p, text.len, r, err);
	}
	return WW_OK;
}

static enum ww_rc edit_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	return edit_file(env, args, NULL, r, err);
}

static enum ww_rc multi_edit_run(
	struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	return edit_file(env, args, json_object_get(args, "edits"), r, err);
}

#define EDIT_PROPERTIES                                                                                                \
	"\"old\":{\"type\":\"string\",\"description\":\"the passage, which must occur exactly once\"},\"new\":{\"type\":\"string\"," \
	"\"description\":\"what stands there instead\"},\"all\":{\"type\":\"boolean\",\"description\":\"true: replace it wherever "  \
	"it occurs\"}"

const struct ww_tool ww_tool_edit = { { "edit", "Replace one passage of a file of the workspace.",
										  "{\"type\":\"object\",\"properties\":{" PATH_PROPERTY "," EDIT_PROPERTIES
										  "},\"required\":[\"path\",\"old\",\"new\"],\"additionalProperties\":false}" },
	.run = edit_run, .changes_files = 1 };

const struct ww_tool ww_tool_multi_edit = {
	{ "multi_edit", "Replace several passages of one file, one after the other; all of them or none.",
		"{\"type\":\"object\",\"properties\":{" PATH_PROPERTY
		",\"edits\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":64,\"description\":\"each sees what the ones "
		"before it left\",\"items\":{\"type\":\"object\","
		"\"properties\":{" EDIT_PROPERTIES "},\"required\":[\"old\",\"new\"],\"additionalProperties\":false}}},"
		"\"required\":[\"path\",\"edits\"],\"additionalProperties\":false}" },
	.run = multi_edit_run, .changes_files = 1
};
