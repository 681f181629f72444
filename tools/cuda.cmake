# Where CUDA is: CUDA_HEADERS, the directory of <cuda.h>, of a toolkit, else of PyTorch's wheels (the cuda target needs
# no more); NVCC, of a toolkit (the engine's kernels).  Each is ...-NOTFOUND where there is none.  All of it may come
# after the first configuration: the globs are looked at again by each build.
if(NOT DEFINED WW_CUDA_TOOLKITS)
	set(WW_CUDA_TOOLKITS $ENV{CUDA_HOME} /usr/local/cuda)
endif()
set(pythons ${CMAKE_SOURCE_DIR}/.venv)
if(DEFINED ENV{WW_PYTHON})
	get_filename_component(bin $ENV{WW_PYTHON} DIRECTORY)
	list(PREPEND pythons ${bin}/..)
endif()
list(TRANSFORM pythons APPEND /lib/python3*/site-packages/nvidia/*/include/cuda.h OUTPUT_VARIABLE wheels)
file(GLOB wheels CONFIGURE_DEPENDS ${wheels})
list(TRANSFORM wheels REPLACE /cuda.h$ "")
foreach(dir ${WW_CUDA_TOOLKITS})
	file(GLOB seen CONFIGURE_DEPENDS ${dir}/include/cuda.h ${dir}/bin/nvcc)
endforeach()
find_path(CUDA_HEADERS cuda.h HINTS ${WW_CUDA_TOOLKITS} PATHS ${wheels} PATH_SUFFIXES include)
find_program(NVCC nvcc HINTS ${WW_CUDA_TOOLKITS} PATH_SUFFIXES bin)
