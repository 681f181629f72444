/* tool_files.c - write, read, edit: the two files of a solution.
 *
 * All three are idempotent over a resume: a call whose answer was not recorded is carried out again on a workspace that
 * was rebuilt from the answered calls only.
 */
#include "agent/tools.h"

#include "base/json.h"

#include <string.h>

#define PATH_PROPERTY                                                                                                  \
	"\"path\":{\"type\":\"string\",\"description\":\"kernels.cu (kernels.c on the cpu target) or plan.c\"}"

static int known_path(struct ww_tool_env *env, const char *path, struct ww_tool_result *r)
{
	struct ww_str why = WW_STR_INIT(512);
	int ok = ww_workspace_knows(env->workspace, path, &why);
	if (!ok)
		ww_tool_malformed(r, "%s", why.p);
	ww_str_release(&why);
	return ok;
}

static enum ww_rc store(struct ww_tool_env *env, const char *path, const char *text, size_t n, struct ww_tool_result *r,
			struct ww_err *err)
{
	if (n > WW_SOLUTION_MAX_BYTES) {
		ww_tool_malformed(r, "%s would be %zu bytes; a file may have at most %d", path, n,
				  WW_SOLUTION_MAX_BYTES);
		return WW_OK;
	}
	enum ww_rc rc = ww_workspace_write(env->workspace, path, text, n, err);
	if (rc != WW_OK)
		return rc;
	ww_str_addf(&r->text, "%s: %zu bytes written", path, n);
	r->data = json_pack("{s:b}", "ok", 1);
	return WW_OK;
}

static enum ww_rc write_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *path = ww_json_str(args, "path", ""), *text = ww_json_str(args, "text", "");
	return known_path(env, path, r) ? store(env, path, text, strlen(text), r, err) : WW_OK;
}

const struct ww_tool ww_tool_write = { { "write", "Replace a file of the solution.",
					 "{\"type\":\"object\",\"properties\":{" PATH_PROPERTY
					 ",\"text\":{\"type\":\"string\",\"description\":\"the whole "
					 "file\"}},\"required\":[\"path\",\"text\"],\"additionalProperties\":false}" },
				       write_run };

/* The file into `text`; a file that is not there answers the call. */
static enum ww_rc load(struct ww_tool_env *env, const char *path, struct ww_str *text, int *found,
		       struct ww_tool_result *r, struct ww_err *err)
{
	enum ww_rc rc = ww_workspace_read(env->workspace, path, text, found, err);
	if (rc == WW_OK && !*found) {
		ww_str_addf(&r->text, "%s does not exist yet; write it first", path);
		r->is_error = 1;
	}
	return rc;
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
	struct ww_str text = WW_STR_INIT(WW_SOLUTION_MAX_BYTES);
	int found = 0;
	if (!skill && !known_path(env, path, r))
		return WW_OK;
	enum ww_rc rc = skill ? load_skill(skill, path, &text, &found, r, err) : load(env, path, &text, &found, r, err);
	if (rc == WW_OK && found)
		add_lines(&r->text, &text, ww_json_int(args, "first_line", 1), ww_json_int(args, "lines", 1 << 30));
	ww_str_release(&text);
	return rc;
}

const struct ww_tool ww_tool_read = { { "read", "Read a file of the solution, or a file or folder of the skill (skill/...).",
					"{\"type\":\"object\",\"properties\":{" PATH_PROPERTY
					",\"first_line\":{\"type\":\"integer\",\"description\":\"1 is "
					"the first\"},\"lines\":{\"type\":\"integer\",\"description\":\"how many; all "
					"by default\"}},\"required\":[\"path\"],"
					"\"additionalProperties\":false}" },
				      read_run };

static enum ww_rc replace_once(struct ww_tool_env *env, const char *path, const struct ww_str *text, const char *old,
			       const char *with, struct ww_tool_result *r, struct ww_err *err)
{
	const char *at = *old ? strstr(text->p, old) : NULL;
	if (!at || strstr(at + 1, old)) {
		ww_str_addf(&r->text, "\"old\" %s in %s; it must occur exactly once, nothing was changed",
			    !at ? "does not occur" : "occurs more than once", path);
		r->is_error = 1;
		return WW_OK;
	}
	struct ww_str out = WW_STR_INIT(2 * WW_SOLUTION_MAX_BYTES);
	ww_str_add(&out, text->p, (size_t)(at - text->p));
	ww_str_adds(&out, with);
	ww_str_adds(&out, at + strlen(old));
	enum ww_rc rc = store(env, path, out.p, out.len + (out.cut ? WW_SOLUTION_MAX_BYTES : 0), r, err);
	ww_str_release(&out);
	return rc;
}

static enum ww_rc edit_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *path = ww_json_str(args, "path", "");
	struct ww_str text = WW_STR_INIT(WW_SOLUTION_MAX_BYTES);
	int found = 0;
	if (!known_path(env, path, r))
		return WW_OK;
	enum ww_rc rc = load(env, path, &text, &found, r, err);
	if (rc == WW_OK && found)
		rc = replace_once(env, path, &text, ww_json_str(args, "old", ""), ww_json_str(args, "new", ""), r, err);
	ww_str_release(&text);
	return rc;
}

const struct ww_tool ww_tool_edit = {
	{ "edit", "Replace one passage of a file of the solution.",
	  "{\"type\":\"object\",\"properties\":{" PATH_PROPERTY
	  ",\"old\":{\"type\":\"string\",\"description\":\"the passage, "
	  "which must occur exactly once\"},\"new\":{\"type\":\"string\",\"description\":\"what stands there "
	  "instead\"}},\"required\":[\"path\",\"old\",\"new\"],\"additionalProperties\":false}" },
	edit_run
};
