#include "cmd/table.h"

#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "judge/forms/forms.h"
#include "judge/run/proto.h"
#include "agent/shell/shell.h"
#include "task/confined.h"
#include "task/forker.h"

#define X(name) &ww_cmd_##name,
const struct ww_cmd *const ww_cmd_table[] = { WW_COMMANDS(X) NULL };
#undef X

const struct ww_worker_main ww_worker_table[] = { { "builder", ww_builder_main }, { "candidates", ww_candidates_main },
	{ "compiler", ww_compiler_main }, { "confined", ww_confined_main }, { "shell", ww_shell_main },
	{ "runner", ww_runner_main }, { "workers", ww_workers_main }, { NULL, NULL } };
