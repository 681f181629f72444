/* launch.c - the process that candidates are forked from: gives up its view of the system, then becomes Python.
 *
 * `warpwright __candidates PYTHON BRIDGE cuda|cpu BYTECODE` is born in namespaces of its own (ww_proc_spawn).  It asks
 * the interpreter where its files are (no untrusted input has been read yet), makes a private root of them, of the
 * compilers, of our harness and of the devices, and execs bridge/candidate.py with two descriptors: 3, the control
 * socket, and 4, the system-call filter that every candidate loads.
 *
 * What is visible: task/surroundings.h.
 *
 * The process keeps its capabilities over its own namespaces, because each candidate gets a pid, mount, network and ipc
 * namespace of its own below them; candidate.py takes the capabilities from what it forks.  Rejected: one set of
 * namespaces for all candidates (they could signal and inspect each other), one start of Python for each (import torch
 * takes 2 s). */
#include "judge/forms/forms.h"

#include "base/fs.h"
#include "sandbox/proc.h"
#include "sandbox/sandbox.h"
#include "task/surroundings.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FILTER_FD = 4 };

/* /tmp is each candidate's own. */
static void set_environment(int cuda)
{
	static const char *const fixed[][2] = { { "TORCH_EXTENSIONS_DIR", "/tmp/build" },
		{ "TORCHINDUCTOR_CACHE_DIR", "/tmp/inductor" }, { "TRITON_CACHE_DIR", "/tmp/triton" },
		{ "TORCHINDUCTOR_COMPILE_THREADS", "1" }, { "PYTHONDONTWRITEBYTECODE", "1" } };
	ww_surroundings_environment("/tmp", cuda);
	for (size_t i = 0; i < WW_ARRAY_LEN(fixed); i++)
		setenv(fixed[i][0], fixed[i][1], 1);
	if (cuda)
		setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1); /* memory that can be lent (lent.h) */
}

int ww_candidates_main(int argc, char **argv)
{
	static struct ww_surroundings s;
	struct ww_err err = WW_ERR_INIT;
	char script[PATH_MAX];

	if (argc != 4)
		return 126;
	int cuda = !strcmp(argv[2], "cuda");
	ww_surroundings_add(&s, argv[1], WW_BIND_READ);
	ww_surroundings_add(&s, argv[3], WW_BIND_READ);
	if (ww_surroundings_add_program(&s, argv[0], cuda, &err) != WW_OK ||
		ww_fs_join(script, argv[1], "candidate.py", &err) != WW_OK ||
		ww_surroundings_enter(&s, cuda, 0, FILTER_FD, &err) != WW_OK)
		return ww_surroundings_fail(&err);
	set_environment(cuda);
	ww_surroundings_python(argv[0], argv[3], (const char *const[]){ script, argv[2], NULL });
}
