/* kernels_base.c - the inner loops for x86-64: 4 lanes.  Flags: src/dev/module.cmake. */
#define W 4
#define LANES { 0, 1, 2, 3 }
#define NAME ww_cpu_kernels_base
#define LABEL "base"
#include "dev/cpu/kernels_impl.h"
