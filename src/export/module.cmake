# The files that exports carry are linked into the binary (embed.c); a change of one rebuilds it.
set(WW_EMBEDDED include/ww/plan.h bridge/wwbridge/operators.py src/judge/image_data.h src/judge/run/exec.h
	src/judge/run/exec_cpu.c
	src/judge/run/exec_cuda.c src/judge/run/exec_cuda_library.c src/judge/run/exec_cuda_library.h
	src/judge/run/exec_cuda_conv.c src/judge/run/exec_cuda_conv.h)
file(GLOB templates RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS src/export/templates/*)
list(APPEND WW_EMBEDDED ${templates})
set(map "#define WW_SOURCE_TREE \"${CMAKE_SOURCE_DIR}\"\n#define WW_EMBED_MAP(X)")
foreach(path ${WW_EMBEDDED})
	string(MAKE_C_IDENTIFIER ${path} symbol)
	string(APPEND map " \\\n\tX(${symbol}, \"${path}\")")
	set_property(SOURCE src/export/embed.c APPEND PROPERTY OBJECT_DEPENDS ${CMAKE_SOURCE_DIR}/${path})
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/export_embedded.h CONTENT "${map}\n" @ONLY)
target_include_directories(ww_export PRIVATE ${CMAKE_BINARY_DIR}/generated)
