/* bytecode.h - PyTorch's byte code, where its packages were installed without it.
 *
 * Problem.  Some installers and images leave byte code out (uv does by default).  Python then compiles each module that
 * it imports, and keeps what it compiled beside the source.  Processes that hold tasks see packages read-only, so each
 * of them would compile them anew: 9.6 s of a processor in place of 3.3 for PyTorch with torch.compile.
 *
 * So a process of ours, which sees no task, imports once what the others import (bridge/bytecode.py) and keeps the byte
 * code in the cache directory; the others read it there.  Python compares each file with its source.
 */
#pragma once

#include "base/err.h"

#include <limits.h>

/* The directory of the byte code for this interpreter, for -X pycache_prefix=DIR; "" where the packages have theirs, or
 * it cannot be had.  The first call for an installation takes as long as importing PyTorch.  Any number of threads and
 * processes may call it. */
void ww_bytecode_dir(const char *python, char dir[PATH_MAX]);
/* The same by another program than bridge/bytecode.py, and not remembered (tests). */
void ww_bytecode_dir_by(const char *python, const char *script, char dir[PATH_MAX]);

/* Arguments of an interpreter that reads it: appends "-X" and `option`, which is written; nothing for "". */
int ww_bytecode_args(const char *dir, const char **args, char option[PATH_MAX + 32]);
