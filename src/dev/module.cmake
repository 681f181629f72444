# The inner loops of the cpu backend, once for each vector width; which one runs is decided at run time.  Multiply-adds
# are contracted, so that all tiles of one table round alike.
set(WW_KERNEL_FLAGS -O3 -ffp-contract=fast -fno-math-errno -Wno-psabi)
set_source_files_properties(src/dev/cpu/kernels_base.c PROPERTIES COMPILE_OPTIONS "${WW_KERNEL_FLAGS}")
set_source_files_properties(src/dev/cpu/kernels_avx2.c PROPERTIES COMPILE_OPTIONS "${WW_KERNEL_FLAGS};-mavx2;-mfma")
set_source_files_properties(src/dev/cpu/kernels_avx512.c PROPERTIES COMPILE_OPTIONS
	"${WW_KERNEL_FLAGS};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mprefer-vector-width=512")

# The cuda backend is a plug-in, built where an nvcc is found that knows the flags.  Its kernels are machine code for
# Hopper, and PTX for what comes later; the runtime is linked in, cuBLASLt is opened when a device is (only its header
# is needed here).
set(WW_NVCC_FLAGS -std=c++17 -O3 -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/skills/cuda/include
	-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90
	--compress-mode=size -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics)
if(NVCC)
	file(WRITE ${CMAKE_BINARY_DIR}/cuda/probe.cu "")
	execute_process(COMMAND ${NVCC} --dryrun ${WW_NVCC_FLAGS} -c -o probe.o probe.cu
		WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/cuda RESULT_VARIABLE unusable OUTPUT_QUIET ERROR_VARIABLE said)
	if(unusable)	# one of before CUDA 12.8; all but the engine's cuda backend works without
		message(WARNING "${NVCC} cannot build the engine's kernels: ${said}")
	endif()
endif()
if(NVCC AND NOT unusable)
	get_filename_component(WW_CUDA_BIN ${NVCC} REALPATH)
	get_filename_component(WW_CUDA_ROOT ${WW_CUDA_BIN}/../.. ABSOLUTE)
	find_library(WW_CUDART cudart_static HINTS ${WW_CUDA_ROOT} PATH_SUFFIXES lib64 targets/x86_64-linux/lib REQUIRED)
	file(GLOB cuda_kernels CONFIGURE_DEPENDS src/dev/cuda/*.cu)
	file(GLOB cuda_hosts CONFIGURE_DEPENDS src/dev/cuda/*.c)
	set(cuda_objects)
	foreach(src ${cuda_kernels})
		get_filename_component(name ${src} NAME_WE)
		set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
		add_custom_command(OUTPUT ${object} DEPENDS ${src} DEPFILE ${object}.d COMMAND ${NVCC} ${WW_NVCC_FLAGS}
			-MD -MF ${object}.d -MT ${object} -c -o ${object} ${src}
			COMMENT "Building CUDA object ${name}.o")
		list(APPEND cuda_objects ${object})
	endforeach()
	file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
	add_library(warpwright-engine-cuda MODULE ${cuda_hosts} ${cuda_objects} src/dev/fused.c
		src/host/cudalibs.c src/base/err.c src/base/fs.c
		src/base/arena.c src/base/str.c src/base/time.c)
	target_compile_options(warpwright-engine-cuda PRIVATE -fvisibility=hidden)
	target_include_directories(warpwright-engine-cuda SYSTEM PRIVATE ${WW_CUDA_ROOT}/include)
	# libstdc++: what CUB's sort includes wants <iostream>
	target_link_libraries(warpwright-engine-cuda PRIVATE ${WW_CUDART} Threads::Threads dl rt m -l:libstdc++.a)
	target_link_options(warpwright-engine-cuda PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL -static-libgcc)
	set_target_properties(warpwright-engine-cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
	install(TARGETS warpwright-engine-cuda LIBRARY DESTINATION lib/warpwright)
endif()
