#include "task/confined.h"
#include "sandbox/sandbox.h"
#include "task/surroundings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_FILES = 4096, TMP_FILES = 1 << 16 };
static const int64_t TMP_BYTES = 4ll << 30, SHM_BYTES = 64 << 20;
static const int64_t RESERVED_BYTES = 1 << 30; /* writable and never touched: stacks, the heap's growth (recycle.h) */

enum { DIR_AT, CACHE_AT, ROOTS_AT, TARGET_AT, MEMORY_AT, PROGRAM_AT };

/* Where there is no /proc of its own.  CUDA names its threads by /proc/self/task/N/comm and looks around in the rest.
 */
static void add_shared_proc(struct ww_surroundings *s, int cuda)
{
	static const char *const files[] = { "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems",
		"/proc/sys/vm" };
	ww_surroundings_add(s, "/proc/self", WW_BIND_WRITE);
	for (size_t i = 0; i < WW_ARRAY_LEN(files); i++)
		ww_surroundings_add(s, files[i], WW_BIND_READ);
	if (cuda)
		ww_surroundings_add(s, "/proc", WW_BIND_READ);
}

static enum ww_rc confine(char **argv, enum ww_sandbox_level *reached, struct ww_err *err)
{
	static struct ww_surroundings s;
	int cuda = !strcmp(argv[TARGET_AT], "cuda");
	const char *python = strcmp(argv[TARGET_AT], "tool") ? argv[PROGRAM_AT] : NULL;
	WW_CHECK(ww_surroundings_add_program(&s, python, cuda, err));
	ww_surroundings_add_list(&s, argv[ROOTS_AT], WW_BIND_READ);
	ww_surroundings_add(&s, argv[CACHE_AT], WW_BIND_WRITE);
	if (!ww_sandbox_has_namespaces())
		add_shared_proc(&s, cuda);
	const struct ww_sandbox_opts o = { .profile = cuda ? WW_PROFILE_PYTHON_CUDA : WW_PROFILE_PYTHON,
		.binds = s.b,
		.n_binds = s.n,
		.tmp = argv[DIR_AT],
		.tmp_bytes = TMP_BYTES,
		.tmp_entries = TMP_FILES,
		.shm_bytes = SHM_BYTES,
		.with_proc = ww_sandbox_has_namespaces(),
		.limits = { .file_bytes = TMP_BYTES,
			.files = OPEN_FILES,
			.data_bytes = cuda ? 0 : atoll(argv[MEMORY_AT]) + RESERVED_BYTES } };
	return ww_sandbox_enter(&o, reached, err);
}

int ww_confined_main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	enum ww_sandbox_level reached;
	if (argc <= PROGRAM_AT) {
		fprintf(stderr, "warpwright __confined: DIR CACHE ROOTS cpu|cuda|tool MEMORY PROGRAM [ARG...]\n");
		return 126;
	}
	enum ww_rc rc = confine(argv, &reached, &err);
	if (rc != WW_OK || dup2(2, 1) < 0 || chdir(argv[DIR_AT]) < 0) {
		fprintf(stderr, "%s\n", rc == WW_OK ? "cannot enter the private directory" : err.msg);
		_exit(rc == WW_ERR_MISSING ? 127 : 126);
	}
	ww_surroundings_environment(argv[DIR_AT], !strcmp(argv[TARGET_AT], "cuda"));
	if (reached != WW_SANDBOX_NAMESPACES) /* no /dev/shm, which locks between processes need */
		setenv("TORCHINDUCTOR_COMPILE_THREADS", "1", 1);
	execv(argv[PROGRAM_AT], argv + PROGRAM_AT);
	perror(argv[PROGRAM_AT]);
	_exit(127); /* nothing that runs at exit (a leak checker traces) may meet the filter */
}
