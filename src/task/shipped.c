/* shipped.c - see shipped.h.  A folder data/NAME with a file tasks.jsonl.zst is a set; the examples are directories. */
#include "task/shipped.h"

#include "base/fs.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name, *resource;
} examples[] = { { "examples-cuda", "examples/cuda" }, { "examples-cpu", "examples/cpu" } };

/* A name is one word: no path, and nothing hidden. */
static int is_name(const char *text) { return *text && *text != '.' && strlen(text) < 64 && !strpbrk(text, "/#\\"); }

int ww_shipped_find(const char *name, char *path)
{
	char resource[128];
	struct ww_err ignored;
	if (!is_name(name) || access(name, F_OK) == 0)
		return 0;
	snprintf(resource, sizeof(resource), "data/%s/tasks.jsonl.zst", name);
	for (size_t i = 0; i < WW_ARRAY_LEN(examples); i++)
		if (!strcmp(name, examples[i].name))
			snprintf(resource, sizeof(resource), "%s", examples[i].resource);
	return ww_fs_resource(resource, path, &ignored) == WW_OK;
}

static int is_set(const struct dirent *e)
{
	char resource[PATH_MAX], path[PATH_MAX];
	struct ww_err ignored;
	snprintf(resource, sizeof(resource), "data/%s/tasks.jsonl.zst", e->d_name);
	return is_name(e->d_name) && ww_fs_resource(resource, path, &ignored) == WW_OK;
}

void ww_shipped_names(struct ww_str *out)
{
	char dir[PATH_MAX];
	struct ww_err ignored;
	struct dirent **found = NULL;
	int n = ww_fs_resource("data", dir, &ignored) == WW_OK ? scandir(dir, &found, is_set, alphasort) : 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(examples); i++)
		ww_str_addf(out, "%s%s", i ? ", " : "", examples[i].name);
	for (int i = 0; i < n; i++) {
		ww_str_addf(out, ", %s", found[i]->d_name);
		free(found[i]);
	}
	free(found);
}
