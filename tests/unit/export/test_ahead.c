/* The Python processes that import PyTorch ahead: whose they are, and that they read the byte code which others have
 * made of packages that came without it.  PyTorch is made up. */
#include "unit.h"

#include "base/fs.h"
#include "base/mem.h"
#include "export/parts.h"
#include "host/machine.h"
#include "sandbox/sandbox.h"
#include "task/bytecode.h"
#include "task/ref.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char top[] = "/tmp/ww_test_ahead_XXXXXX";

static void put(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX], parent[PATH_MAX];
	struct ww_err err;
	assert_int_equal(ww_fs_join(path, dir, name, &err), WW_OK);
	snprintf(parent, sizeof(parent), "%s", path);
	*strrchr(parent, '/') = 0;
	assert_int_equal(ww_fs_mkdirs(parent, &err), WW_OK);
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
}

/* An environment of the interpreter that is here, with a PyTorch without byte code; 0 where there is none. */
static int make_environment(char python[PATH_MAX])
{
	char found[PATH_MAX], real[PATH_MAX], version[32], packages[PATH_MAX], text[PATH_MAX + 64];
	struct ww_err err;
	if (ww_ref_find_python(found, &err) != WW_OK)
		return 0;
	ww_host_python_version(found, version, sizeof(version));
	if (!*version || !realpath(found, real))
		return 0;
	snprintf(packages, sizeof(packages), "%s/lib/python%s/site-packages", top, version);
	put(packages, "torch/__init__.py", "");
	put(packages, "torch/version.py", "__version__ = '2.11.0'\n");
	put(packages, "torch/testing/_internal/opinfo/__init__.py", "");
	put(packages, "torch-2.11.0.dist-info/METADATA", "Name: torch\nVersion: 2.11.0\n");
	put(top, "bridge/bytecode.py", "import torch\n");
	put(top, "bin/none", "");
	snprintf(python, PATH_MAX, "%s/bin/python", top);
	assert_int_equal(symlink(real, python), 0);
	*strrchr(real, '/') = 0;
	snprintf(text, sizeof(text), "home = %s\ninclude-system-site-packages = false\n", real);
	put(top, "pyvenv.cfg", text);
	return setenv("WW_PYTHON", python, 1) == 0;
}

/* The command line of a process that has become Python, with spaces for its NULs. */
static void command_line(pid_t pid, char line[8192])
{
	char path[64];
	*line = 0;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	for (int k = 0; k < 500 && !strstr(line, " -c "); k++) {
		usleep(10000);
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, line, 8191);
		close(fd);
		for (ssize_t i = 0; i < n; i++)
			line[i] = line[i] ? line[i] : ' ';
		line[n > 0 ? n : 0] = 0;
	}
}

static char code[PATH_MAX]; /* the directory of the byte code */

/* Judges beside it would take a stranger on the GPU for a disturbance. */
static void command_lines_say_whose_they_are(void **state)
{
	(void)state;
	for (int use = 0; use < WW_EXPORT_USES; use++) {
		WW_AUTO(ww_export_python_end) struct ww_export_python p = WW_EXPORT_PYTHON_NONE;
		struct ww_err err = WW_ERR_INIT;
		char line[8192];
		assert_int_equal(ww_export_python_take(&p, (enum ww_export_use)use, &err), WW_OK);
		command_line(p.pid, line);
		assert_non_null(strstr(line, " " WW_JUDGE_EXPORTED " "));
		assert_non_null(strstr(line, code));
	}
}

static void byte_code_is_read(void **state)
{
	WW_AUTO(ww_export_python_end) struct ww_export_python p = WW_EXPORT_PYTHON_NONE;
	ww_auto_str out = WW_STR_INIT(4096);
	struct ww_err err = WW_ERR_INIT;
	char line[PATH_MAX + 64];
	int status;
	(void)state;
	assert_int_equal(ww_export_python_take(&p, WW_EXPORT_CALL, &err), WW_OK);
	put(p.dir.path, "look.py", "import os, torch\nprint('read', os.path.exists(torch.__cached__), torch.__cached__)\n");
	snprintf(line, sizeof(line), "[\"%s/look.py\"]\n", p.dir.path);
	ww_export_python_tell(&p, line);
	assert_int_equal(ww_export_python_finish(&p, NULL, NULL, &out, &status, &err), WW_OK);
	assert_non_null(strstr(out.p, "read True"));
	assert_non_null(strstr(out.p, code));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(command_lines_say_whose_they_are),
		cmocka_unit_test(byte_code_is_read) };
	char command[PATH_MAX], python[PATH_MAX], script[PATH_MAX];
	int failed = 0;
	if (!mkdtemp(top) || setenv("XDG_CACHE_HOME", top, 1))
		return 1;
	int skips = ww_sandbox_probe() < WW_SANDBOX_LANDLOCK || !make_environment(python);
	snprintf(script, sizeof(script), "%s/bridge/bytecode.py", top);
	if (!skips) {
		ww_bytecode_dir_by(python, script, code); /* complete: the program's own script is not asked */
		failed = cmocka_run_group_tests(tests, NULL, NULL);
	} else {
		fprintf(stderr, "skipped: no Python, or neither namespaces nor Landlock\n");
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	return system(command) ? 1 : skips ? 77 : failed;
}
