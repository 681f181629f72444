#include "nn/settings.h"

#include "base/fs.h"
#include "base/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SETTINGS_MAX = 1 << 16 };

enum ww_rc ww_settings_read(const char *dir, struct ww_settings *out, struct ww_err *err)
{
	char path[PATH_MAX];
	json_auto_t *v = NULL;
	*out = (struct ww_settings){ .prompt = "" };
	WW_CHECK(ww_fs_join(path, dir, WW_SETTINGS_FILE, err));
	if (!ww_fs_is_file(path))
		return WW_OK;
	WW_CHECK(ww_json_read_file(path, SETTINGS_MAX, &v, err));
	const char *prompt = ww_json_str(v, "prompt", "");
	if (*prompt && strcmp(prompt, "full") && strcmp(prompt, "compact"))
		return ww_err_set(err, WW_ERR_USAGE, "%s: \"prompt\" is neither full nor compact", path);
	snprintf(out->prompt, sizeof(out->prompt), "%s", prompt);
	return WW_OK;
}

enum ww_rc ww_settings_write(const char *dir, const struct ww_settings *s, struct ww_err *err)
{
	json_auto_t *v = json_pack("{s:s}", "prompt", s->prompt);
	return ww_json_write_file(dir, WW_SETTINGS_FILE, SETTINGS_MAX, v, err);
}
