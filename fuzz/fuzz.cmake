# Fuzz targets.  Each builds as a plain program with a mutation driver of its own; with -DWW_FUZZ=ON and clang it links
# libFuzzer instead.  The plain one runs as a test, longer runs by hand:  build-san/fuzz_image --mutate 100000 1
option(WW_FUZZ "libFuzzer targets (clang)" OFF)

# The program fuzz_NAME from fuzz/SOURCE, and the test fuzz/NAME with so many mutations.
function(ww_fuzz name source mutations)
	add_executable(fuzz_${name} fuzz/${source})
	target_link_libraries(fuzz_${name} PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
	if(WW_FUZZ)
		target_compile_definitions(fuzz_${name} PRIVATE WW_LIBFUZZER=1)
		target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address)
		target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address)
	else()
		ww_test(fuzz/${name} fuzz/${source} $<TARGET_FILE:fuzz_${name}> --mutate ${mutations} 1)
		set_tests_properties(fuzz/${name} PROPERTIES LABELS unit TIMEOUT 120)
	endif()
endfunction()

# Plans, and the bridge from our side.
ww_fuzz(image fuzz_image.c 20000)
target_include_directories(fuzz_image PRIVATE tests/unit/judge)
ww_fuzz(bridge fuzz_bridge.c 1000)
target_link_options(fuzz_bridge PRIVATE -Wl,--wrap=ww_worker_start,--wrap=ww_worker_send)

# The parsers of the engine: one program for each kind of file.
foreach(kind safetensors config tokenizer)
	string(TOUPPER ${kind} KIND)
	ww_fuzz(nn_${kind} fuzz_nn.c 10000)
	target_compile_definitions(fuzz_nn_${kind} PRIVATE KIND=${KIND})
endforeach()

ww_fuzz(wire fuzz_wire.c 10000)		# streams of model servers
ww_fuzz(serve fuzz_serve.c 3000)	# messages of clients of `serve`
ww_fuzz(chat fuzz_chat.c 10000)		# conversations and answers in the chat forms
ww_fuzz(graph fuzz_graph.c 400)		# graphs, and the planner on what is accepted

if(WW_FUZZ)
	if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
		message(FATAL_ERROR "WW_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang -DWW_FUZZ=ON")
	endif()
	target_link_options(warpwright PRIVATE -fsanitize=address)
	foreach(mod base sandbox task judge nn infer policy serve)
		# libseccomp's argument macros leave a field out, which clang warns about.
		target_compile_options(ww_${mod} PRIVATE -fsanitize=fuzzer-no-link,address -Wno-missing-field-initializers)
	endforeach()
else()	# the bridge from the other side
	ww_test(fuzz/worker fuzz/fuzz_worker.py python3 ${CMAKE_SOURCE_DIR}/fuzz/fuzz_worker.py 1000 1)
	set_tests_properties(fuzz/worker PROPERTIES LABELS unit TIMEOUT 60)
endif()
