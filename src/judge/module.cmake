# The cuda side of the runner: plain C over dlopen, built wherever <cuda.h> is found; needs no nvcc and links to nothing of CUDA.
if(CUDA_HEADERS)
	add_library(warpwright-judge-cuda MODULE src/judge/run/plugin_cuda.c src/judge/run/plugin_device.c
		src/judge/run/plugin_memory.c src/judge/run/plugin_clock.c src/judge/run/plugin_profile.c
		src/judge/run/plugin_counters.c src/judge/run/exec_cuda.c src/judge/run/exec_cuda_library.c)
	target_include_directories(warpwright-judge-cuda SYSTEM PRIVATE ${CUDA_HEADERS})
	target_link_libraries(warpwright-judge-cuda PRIVATE dl)
	set_target_properties(warpwright-judge-cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
	install(TARGETS warpwright-judge-cuda LIBRARY DESTINATION lib/warpwright)
endif()
