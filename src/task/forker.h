/* forker.h - a process that has imported PyTorch and forks reference workers.
 *
 * Importing PyTorch and torch.compile takes 4 to 6 s of a processor, more than the rest of opening a small task.  So
 * where many tasks are opened, one process does it once, and each worker is a fork of it in namespaces of its own.  No
 * task is ever seen by the process that forks.  A worker sees what one that is started by itself sees (confined.h): the
 * caches of other tasks are covered.  Only where the system allows namespaces.
 *
 * Any number of threads may call ww_forker_fork() at once.
 */
#pragma once

#include "base/err.h"
#include "base/target.h"
#include "sandbox/proc.h"

#include <stdint.h>

struct ww_forker;
struct ww_forker_opts {
	enum ww_target target;
	const char *caches;              /* the directory that each worker's cache_dir is in */
	const char *roots;               /* ww_task.roots: directories that every worker may read, ':' between */
	int exports;                     /* workers will export graphs: import what that needs at once */
	int compiles;                    /* workers will run torch.compile: import what it needs too, once */
	const char *worker;              /* NULL: bridge/worker.py of this program (tests give others) */
	const volatile int *interrupted; /* may be NULL */
};

/* Start it and wait until it has imported PyTorch.  WW_ERR_MISSING where there are no namespaces, or no PyTorch. */
enum ww_rc ww_forker_open(struct ww_forker **out, const struct ww_forker_opts *o, struct ww_err *err) WW_MUST_CHECK;
void ww_forker_close(struct ww_forker *f); /* its workers end with it; NULL is fine */

/* Importing torch.export takes longer than PyTorch itself, and tasks whose graph is in the store do without.  Whether
 * workers that are forked from now on have it; ww_forker_import() imports it, where that was not done. */
int ww_forker_exports(struct ww_forker *f);
enum ww_rc ww_forker_import(struct ww_forker *f, struct ww_err *err) WW_MUST_CHECK;

/* A worker with its socket and the pipe that carries what it prints, as ww_proc_spawn() would have started it.
 * cache_dir (NULL: none): the only one that it sees; max_bytes: of private memory, on cpu. */
enum ww_rc ww_forker_fork(struct ww_forker *f, const char *cache_dir, uint64_t max_bytes, struct ww_proc *out,
	struct ww_err *err) WW_MUST_CHECK;

/* `warpwright __workers CACHES ROOTS cpu|cuda exports|compiles|- BYTECODE PYTHON BRIDGE WORKER`, in namespaces of its
 * own: shows what workers may see, and becomes WORKER --fork.  Keeps its capabilities over its own namespaces, since
 * each worker gets others below them; the workers lose them. */
int ww_workers_main(int argc, char **argv);
