/* torch/extension.h - see torch/types.h beside this file; for the host compiler also the bindings to Python. */
#pragma once

#include <torch/types.h>
#ifndef __CUDACC__
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
