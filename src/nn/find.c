#include "nn/find.h"

#include "base/fs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum ww_rc ww_model_find(const char *name, char *dir, struct ww_err *err)
{
	char shipped[NAME_MAX + 8], config[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	if (strchr(name, '/') || ww_fs_is_dir(name) ||
		(size_t)snprintf(shipped, sizeof(shipped), "models/%s", name) >= sizeof(shipped)) {
		int n = snprintf(dir, PATH_MAX, "%s", name);
		return n < PATH_MAX ? WW_OK : ww_err_set(err, WW_ERR_LIMIT, "path too long: %.200s", name);
	}
	if (ww_fs_resource(shipped, dir, &ignored) != WW_OK)
		return ww_err_set(err, WW_ERR_USAGE,
			"no model \"%.200s\": there is no such directory here, and no model of that name comes with this program; "
			"name a directory with config.json, weights and tokenizer (docs/train.md makes one)",
			name);
	WW_CHECK(ww_fs_join(config, dir, "config.json", err));
	if (!ww_fs_is_file(config))
		return ww_err_set(err, WW_ERR_USAGE,
			"the weights of the model \"%.200s\" do not come with this version (%.600s has none); train one "
			"(docs/train.md) and name its directory",
			name, dir);
	return WW_OK;
}
