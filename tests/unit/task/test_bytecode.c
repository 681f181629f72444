/* Byte code of packages that were installed without it, for an installation of PyTorch that is made up: made once,
 * again for another version, never where there is some. */
#include "unit.h"

#include "base/fs.h"
#include "host/machine.h"
#include "sandbox/sandbox.h"
#include "task/bytecode.h"
#include "task/ref.h"

#include <stdlib.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/ww_test_bytecode_XXXXXX";
static char python[PATH_MAX], packages[PATH_MAX], script[PATH_MAX];

static const char *put(const char *name, const char *text)
{
	static char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	snprintf(path, sizeof(path), "%s/%s", top, name);
	*strrchr(path, '/') = 0;
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/%s", top, name);
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
	return path;
}

/* An environment of the interpreter that is here; 0 where there is none. */
static int make_environment(void)
{
	struct ww_err err = WW_ERR_INIT;
	char found[PATH_MAX], real[PATH_MAX], version[32], text[PATH_MAX + 64];
	if (ww_ref_find_python(found, &err) != WW_OK)
		return 0;
	ww_host_python_version(found, version, sizeof(version));
	if (!*version || !realpath(found, real))
		return 0;
	snprintf(python, sizeof(python), "%s/bin/python", top);
	snprintf(packages, sizeof(packages), "%s/lib/python%s/site-packages", top, version);
	put("bin/none", "");
	assert_int_equal(symlink(real, python), 0);
	*strrchr(real, '/') = 0;
	snprintf(text, sizeof(text), "home = %s\ninclude-system-site-packages = false\n", real);
	put("pyvenv.cfg", text);
	return 1;
}

static void put_package(const char *name, const char *text)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", packages + strlen(top) + 1, name);
	put(path, text);
}

/* The directory for it, and whether it holds the byte code of a module. */
static int kept(char dir[PATH_MAX])
{
	char pattern[2 * PATH_MAX];
	ww_bytecode_dir_by(python, script, dir);
	snprintf(pattern, sizeof(pattern), "ls '%s%s'/torch/_inductor/__init__.*.pyc > /dev/null 2>&1", dir, packages);
	return *dir && system(pattern) == 0;
}

static void byte_code_is_made_once(void **state)
{
	char dir[PATH_MAX], again[PATH_MAX], pycache[PATH_MAX + 64];
	const char *args[2];
	char option[PATH_MAX + 32];
	(void)state;
	put_package("torch/__init__.py", "");
	put_package("torch/version.py", "__version__ = '2.11.0'\n");
	put_package("torch/_inductor/__init__.py", "wanted = 1\n");
	put_package("torch/testing/_internal/opinfo/__init__.py", "");
	put_package("torch-2.11.0.dist-info/METADATA", "Name: torch\nVersion: 2.11.0\n");
	snprintf(script, sizeof(script), "%s", put("bridge/bytecode.py", "import torch._inductor\n"));
	assert_true(kept(dir));
	assert_int_equal(ww_bytecode_args(dir, args, option), 2);
	assert_string_equal(args[0], "-X");
	assert_non_null(strstr(option, dir));

	put("bridge/bytecode.py", "raise SystemExit(1)\n");
	assert_true(kept(again)); /* it is not asked any more */
	assert_string_equal(again, dir);

	put_package("torch/version.py", "__version__ = '2.12.0'\n");
	char version[PATH_MAX + 64];
	snprintf(version, sizeof(version), "%s/torch/version.py", packages);
	const struct timespec times[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
	assert_int_equal(utimensat(AT_FDCWD, version, times, 0), 0);
	ww_bytecode_dir_by(python, script, again);
	assert_string_equal(again, ""); /* what cannot be made is not used */
	assert_int_equal(ww_bytecode_args(again, args, option), 0);
	put("bridge/bytecode.py", "import torch._inductor\n");
	assert_true(kept(again));
	assert_string_equal(again, dir);

	snprintf(pycache, sizeof(pycache), "%s/torch/testing/_internal/opinfo/__pycache__", packages);
	assert_int_equal(mkdir(pycache, 0755), 0);
	ww_bytecode_dir_by(python, script, again);
	assert_string_equal(again, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(byte_code_is_made_once) };
	char command[PATH_MAX];
	if (!mkdtemp(top) || setenv("XDG_CACHE_HOME", top, 1))
		return 1;
	int skips = ww_sandbox_probe() < WW_SANDBOX_LANDLOCK || !make_environment(),
		failed = skips ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
	if (skips)
		fprintf(stderr, "skipped: no Python, or neither namespaces nor Landlock\n");
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	return system(command) ? 1 : skips ? 77 : failed;
}
