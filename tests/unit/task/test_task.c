/* Task files: what is read, what is refused and how. */
#include "unit.h"

#include "base/fs.h"
#include "task/surroundings.h"
#include "task/task.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/ww_test_task_XXXXXX";

static void put(const void *bytes, size_t n)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void refused(const char *word)
{
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_task_load(&t, path, &err), WW_ERR_USAGE);
	if (!strstr(err.msg, word))
		fail_msg("\"%s\" lacks \"%s\"", err.msg, word);
	assert_null(strchr(err.msg, '\n'));
	ww_task_release(&t);
}

static void loads_a_task(void **state)
{
	(void)state;
	struct ww_task t, u;
	struct ww_err err = WW_ERR_INIT;
	const char text[] = "# Grüße\nclass Model: pass\n";
	put(text, sizeof(text) - 1);
	assert_int_equal(ww_task_load(&t, path, &err), WW_OK);
	assert_string_equal(t.source, text);
	assert_int_equal(t.source_bytes, sizeof(text) - 1);
	assert_string_equal(t.path, path);
	assert_string_equal(t.name, strrchr(path, '/') + 1);
	assert_int_equal(strlen(t.id), 64);
	assert_int_equal(ww_task_from_text(&u, "other.py", text, sizeof(text) - 1, &err), WW_OK);
	assert_string_equal(u.id, t.id);
	assert_string_equal(u.name, "other");
	ww_task_release(&u);
	assert_int_equal(ww_task_from_text(&u, "other.py", text, sizeof(text) - 2, &err), WW_OK);
	assert_string_not_equal(u.id, t.id);
	ww_task_release(&u);
	ww_task_release(&t);
}

static void refuses_what_is_no_task(void **state)
{
	(void)state;
	put("", 0);
	refused("empty");
	put(" \n\t\n", 4);
	refused("empty");
	put("x = 1\0y = 2\n", 12);
	refused("UTF-8");
	put("x = '\xff'\n", 8);
	refused("UTF-8");
	put("x = '\xe2\x82", 7);
	refused("UTF-8");
	char *big = malloc(WW_TASK_MAX_BYTES + 1);
	memset(big, '#', WW_TASK_MAX_BYTES + 1);
	put(big, WW_TASK_MAX_BYTES + 1);
	refused("larger");
	put(big, WW_TASK_MAX_BYTES);
	free(big);
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_task_load(&t, path, &err), WW_OK);
	ww_task_release(&t);
	assert_int_equal(ww_task_load(&t, "/tmp", &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "not a file"));
	assert_int_equal(ww_task_load(&t, "/nowhere/at/all.py", &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "no file"));
}

/* ---- Files that a task's text names ------------------------------------------------------------------------------ */

static char folder[] = "/tmp/ww-task-XXXXXX";

static void put_file(const char *name, const char *text)
{
	char full[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	snprintf(full, sizeof(full), "%s/%s", folder, name);
	*strrchr(full, '/') = 0;
	assert_int_equal(ww_fs_mkdirs(full, &err), WW_OK);
	snprintf(full, sizeof(full), "%s/%s", folder, name);
	assert_int_equal(ww_fs_write(full, text, strlen(text), &err), WW_OK);
}

/* The files of a task of this text, as "a.py b.pt"; its id into id. */
static const char *files_of(const char *text, char id[WW_HASH_HEX])
{
	static char list[1024];
	char full[PATH_MAX];
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	put_file("tasks/task.py", text);
	snprintf(full, sizeof(full), "%s/tasks/task.py", folder);
	if (ww_task_load(&t, full, &err) != WW_OK)
		fail_msg("%s", err.msg);
	*list = 0;
	for (int i = 0; i < t.n_files; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? " " : "", t.files[i].name);
	memcpy(id, t.id, WW_HASH_HEX);
	ww_task_release(&t);
	return list;
}

static void finds_the_files_that_its_text_names(void **state)
{
	(void)state;
	static const struct {
		const char *text, *files;
	} rows[] = { { "import torch, os\n", "" }, { "from layers import Foo\n", "deep.py layers.py" },
		{ "import os, deep as d; import torch\n", "deep.py layers.py" },
		{ "x = 1\nif x:\n    import deep\n", "deep.py layers.py" },
		{ "# import deep\ns = 'import deep'\n\"\"\"\nimport deep\n\"\"\"\n", "" },
		{ "import important\nimported = from_ = 1\n", "" },
		{ "from pkg.sub import (a,\n  b)\n", "pkg/__init__.py pkg/sub.py" },
		{ "import torch.nn as nn, pkg.sub as ps, deep\n", "deep.py layers.py pkg/__init__.py pkg/sub.py" },
		{ "from ns import mod\n", "ns/mod.py" }, { "import ns\n", "" }, { "import shared\n", "shared.py" },
		{ "w = load(r\"w.pt\") + load('./w.pt') + load(\"data/v.pt\")\n", "data/v.pt w.pt" },
		{ "w = '/etc/passwd' + '../other.pt' + 'no such file' + 'data' + ''\n", "" }, { "w = 'w.pt", "w.pt" },
		{ "from . import deep\n", "" }, { "import", "" }, { "from", "" }, { "x = '", "" }, { "x = '''w.pt''", "" } };
	char id[WW_HASH_HEX], again[WW_HASH_HEX], search[PATH_MAX];
	put_file("tasks/layers.py", "import deep\nclass Foo: pass\n");
	put_file("tasks/deep.py", "import layers\n");
	put_file("tasks/pkg/__init__.py", "");
	put_file("tasks/pkg/sub.py", "from . import a\n");
	put_file("tasks/ns/mod.py", "");
	put_file("tasks/w.pt", "1");
	put_file("tasks/data/v.pt", "2");
	put_file("other.pt", "3");
	put_file("path/shared.py", "");
	put_file("path/deep.py", "x = 'hidden by the folder'\n");
	snprintf(search, sizeof(search), "/nowhere:%s/path", folder);
	setenv("PYTHONPATH", search, 1);
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		if (strcmp(files_of(rows[i].text, id), rows[i].files))
			fail_msg("%s: found \"%s\", not \"%s\"", rows[i].text, files_of(rows[i].text, id), rows[i].files);
	files_of("from layers import Foo\n", id);
	put_file("tasks/deep.py", "x = 1\n"); /* imported by what is imported */
	files_of("from layers import Foo\n", again);
	assert_string_not_equal(id, again);
	put_file("tasks/deep.py", "import layers\n");
	files_of("from layers import Foo\n", again);
	assert_string_equal(id, again);
	unsetenv("PYTHONPATH");
}

/* The user's own number of connections does not reach a reference worker; the bench's does, where there is a GPU. */
static void environment_of_a_worker(void **state)
{
	static const struct {
		const char *user, *bench;
		int cuda;
		const char *want;
	} rows[] = { { NULL, NULL, 1, NULL }, { "8", NULL, 1, NULL }, { "8", "1", 1, "1" }, { NULL, "1", 0, NULL } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		int status;
		pid_t pid = fork();
		if (!pid) {
			clearenv();
			if (rows[i].user)
				setenv("CUDA_DEVICE_MAX_CONNECTIONS", rows[i].user, 1);
			if (rows[i].bench)
				setenv("WARPWRIGHT_CUDA_CONNECTIONS", rows[i].bench, 1);
			ww_surroundings_environment("/tmp", rows[i].cuda);
			const char *got = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
			_exit(rows[i].want ? !got || strcmp(got, rows[i].want) : got != NULL);
		}
		assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	int fd = mkstemp(path);
	if (fd < 0 || !mkdtemp(folder))
		return 1;
	close(fd);
	const struct CMUnitTest tests[] = { cmocka_unit_test(loads_a_task), cmocka_unit_test(refuses_what_is_no_task),
		cmocka_unit_test(finds_the_files_that_its_text_names), cmocka_unit_test(environment_of_a_worker) };
	struct ww_err ignored = WW_ERR_INIT;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	(void)!ww_fs_remove_tree(folder, &ignored);
	return failed;
}
