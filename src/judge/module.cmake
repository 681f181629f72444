# What is kept in the store depends on the code that made it: the hash of its sources, and of TinyCC, is part of every
# key (cache/answers.c). Not the binary's: a relinked program, or a change of something else, finds what it kept.
file(GLOB makers CONFIGURE_DEPENDS src/base/*.[ch] src/sandbox/*.[ch] src/judge/build/*.[ch]
	src/judge/compile/*.[ch] src/judge/image*.[ch])
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/generated/judge_makers.h
	COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/generated/judge_makers.h "-DFILES=${makers};${LIBTCC}"
		-P ${CMAKE_SOURCE_DIR}/tools/hash.cmake
	DEPENDS ${makers} ${LIBTCC} tools/hash.cmake VERBATIM)
target_sources(ww_judge PRIVATE ${CMAKE_BINARY_DIR}/generated/judge_makers.h)
target_include_directories(ww_judge PRIVATE ${CMAKE_BINARY_DIR}/generated)

# The cuda side of the runner: plain C over dlopen, built wherever <cuda.h> is found; needs no nvcc and links to nothing
# of CUDA.
if(CUDA_HEADERS)
	add_library(warpwright-judge-cuda MODULE src/judge/run/plugin_cuda.c src/judge/run/plugin_device.c
		src/judge/run/plugin_memory.c src/judge/run/plugin_tables.c src/judge/run/plugin_clock.c
		src/judge/run/plugin_profile.c
		src/judge/run/plugin_counters.c src/judge/run/exec_cuda.c src/judge/run/exec_cuda_library.c
		src/judge/run/exec_cuda_conv.c)
	target_include_directories(warpwright-judge-cuda SYSTEM PRIVATE ${CUDA_HEADERS})
	target_link_libraries(warpwright-judge-cuda PRIVATE dl)
	set_target_properties(warpwright-judge-cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
	install(TARGETS warpwright-judge-cuda LIBRARY DESTINATION lib/warpwright)
endif()

# The kernels of comparisons, which the judge hands to the reference worker: machine code for Hopper, PTX for others.
if(NVCC AND NOT unusable)
	set(compare ${CMAKE_BINARY_DIR}/warpwright-compare.fatbin)
	add_custom_command(OUTPUT ${compare} DEPENDS src/judge/compare.cu DEPFILE ${compare}.d
		COMMAND ${NVCC} -std=c++17 -O3 -I${CMAKE_SOURCE_DIR}/skills/cuda/include
			-gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80 --compress-mode=size
			-MD -MF ${compare}.d -MT ${compare} --fatbin -o ${compare} ${CMAKE_SOURCE_DIR}/src/judge/compare.cu
		COMMENT "Building warpwright-compare.fatbin")
	add_custom_target(warpwright-compare ALL DEPENDS ${compare})
	install(FILES ${compare} DESTINATION lib/warpwright)
endif()
