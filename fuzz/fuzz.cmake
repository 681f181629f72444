# Fuzz targets.  Each builds as a plain program with a mutation driver of its own; with -DWW_FUZZ=ON and clang it links libFuzzer
# instead.  The plain one runs as a test, longer runs by hand:  build-san/fuzz_image --mutate 100000 1
option(WW_FUZZ "libFuzzer targets (clang)" OFF)

add_executable(fuzz_image fuzz/fuzz_image.c)
target_include_directories(fuzz_image PRIVATE tests/unit/judge)
target_link_libraries(fuzz_image PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
if(WW_FUZZ)
	if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
		message(FATAL_ERROR "WW_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang -DWW_FUZZ=ON")
	endif()
	target_compile_definitions(fuzz_image PRIVATE WW_LIBFUZZER=1)
	target_compile_options(fuzz_image PRIVATE -fsanitize=fuzzer,address)
	target_link_options(fuzz_image PRIVATE -fsanitize=fuzzer,address)
	target_link_options(warpwright PRIVATE -fsanitize=address)
	foreach(mod base sandbox judge)
		# libseccomp's argument macros leave a field out, which clang warns about.
		target_compile_options(ww_${mod} PRIVATE -fsanitize=fuzzer-no-link,address -Wno-missing-field-initializers)
	endforeach()
else()
	add_test(NAME fuzz/image COMMAND fuzz_image --mutate 20000 1)
	set_tests_properties(fuzz/image PROPERTIES LABELS unit TIMEOUT 60)
endif()
