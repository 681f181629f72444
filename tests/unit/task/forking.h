/* forking.h - a forker whose workers run a script of a test's in place of bridge/worker.py, without PyTorch.  The
 * script has the socket as descriptor 3. */
#pragma once

#include "unit.h"

#include "base/fs.h"
#include "task/forker.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static const char forking[] = "import os, sys\n"
							  "sys.path.insert(0, '%s')\n"
							  "import worker\n"
							  "text = open('%s').read()\n"
							  "def serve(channel):\n"
							  "    os.dup2(channel.sock.fileno(), 3)\n"
							  "    exec(compile(text, '%s', 'exec'), {'__file__': '%s'})\n"
							  "worker.serve, worker.import_all = serve, lambda *asked: None\n"
							  "worker.main()\n";

/* Of a script for the cpu target; caches and roots as in struct ww_forker_opts. */
static struct ww_forker *open_forker(const char *script, const char *caches, const char *roots)
{
	char bridge[PATH_MAX], path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	struct ww_forker *made = NULL;
	struct ww_forker_opts o = { .target = WW_TARGET_CPU, .caches = caches, .roots = roots, .worker = path };
	assert_int_equal(ww_fs_resource("bridge", bridge, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/forking.py", caches);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, forking, bridge, script, script, script);
	assert_int_equal(fclose(f), 0);
	if (ww_forker_open(&made, &o, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return made;
}
