# Tests.  Labels: unit (cmocka), cli (TAP scripts through prove), gpu, fault, slow.  tests/README.md says what a test
# may cost.
enable_testing()
find_library(CMOCKA cmocka)
# What judges keep, by content, lasts from run to run; the user's stays out of it.
set(WW_TEST_ENV "WARPWRIGHT=$<TARGET_FILE:warpwright>" "WW_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
	"WARPWRIGHT_HOME=${CMAKE_SOURCE_DIR}" "XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/test-cache")

# ww_test(NAME SOURCE COMMAND...): a test whose processor time is noted (tests/cost/cost.c).  Its budget stands in
# SOURCE as "budget: 20 CPU-seconds", else it is 3; "budget: 20 CPU-seconds, all 50" gives NAME_all its own.  Those with
# the largest begin first, so that no core is idle at the end.
add_executable(test-cost tests/cost/cost.c)
set_target_properties(test-cost PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
function(ww_test name source)
	set(words "budget: ([0-9]+) CPU-seconds")
	if(name MATCHES "_all$")
		set(words "budget: [0-9]+ CPU-seconds, all ([0-9]+)")
	endif()
	file(STRINGS ${source} budget REGEX "${words}" LIMIT_COUNT 1)
	string(REGEX REPLACE ".*${words}.*" "\\1" budget "${budget}")
	if(NOT budget)
		set(budget 3)
	endif()
	add_test(NAME ${name} COMMAND test-cost run ${CMAKE_BINARY_DIR}/test-costs ${name} ${budget} ${ARGN})
	set_tests_properties(${name} PROPERTIES COST ${budget} ENVIRONMENT "${WW_TEST_ENV}" TIMEOUT 180 SKIP_RETURN_CODE 77
		SKIP_REGULAR_EXPRESSION "Result: NOTESTS")	# what prove says of one that skips
endfunction()

if(CMOCKA)
	file(GLOB_RECURSE unit_srcs CONFIGURE_DEPENDS tests/unit/*/test_*.c)
	foreach(src ${unit_srcs})
		get_filename_component(name ${src} NAME_WE)
		get_filename_component(dir ${src} DIRECTORY)
		get_filename_component(mod ${dir} NAME)
		set(t ${mod}_${name})
		add_executable(${t} ${src})
		target_include_directories(${t} PRIVATE tests/unit skills/cuda/include)
		target_link_libraries(${t} PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS} ${CMOCKA})
		set_target_properties(${t} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
		add_dependencies(${t} warpwright)
		if(name STREQUAL "test_tables" AND CUDA_HEADERS)
			target_sources(${t} PRIVATE src/judge/run/plugin_tables.c)
		elseif(name STREQUAL "test_guards" AND CUDA_HEADERS)
			target_sources(${t} PRIVATE src/judge/run/plugin_memory.c)
		endif()
		if(name MATCHES "^test_(tables|guards|exec_conv)$" AND CUDA_HEADERS)
			target_include_directories(${t} SYSTEM PRIVATE ${CUDA_HEADERS})
		endif()
		set(part "")		# of what a comparison with a Python library can look at; all of it below
		if(name STREQUAL "test_oracle_model")
			set(part cpu 5)
		elseif(name STREQUAL "test_oracle_tokenizer")
			set(part 1000)
		endif()
		ww_test(${mod}/${name} ${src} $<TARGET_FILE:${t}> ${part})
		set_tests_properties(${mod}/${name} PROPERTIES LABELS unit)
		file(STRINGS ${src} all REGEX "^ \\* all: " LIMIT_COUNT 1)
		if(all)
			ww_test(${mod}/${name}_all ${src} $<TARGET_FILE:${t}> all)
			set_tests_properties(${mod}/${name}_all PROPERTIES LABELS slow TIMEOUT 900)
		endif()
		# The cpu cookbook once more as the judge compiles it, at the machine's own vector width, and at that of AVX2.
		set(widths "")
		if(name MATCHES "^test_cpu_" AND mod STREQUAL "cookbook")
			set(widths native)
			file(STRINGS /proc/cpuinfo avx2 REGEX "^flags.* avx2 .*" LIMIT_COUNT 1)
			if(avx2)
				list(APPEND widths x86-64-v3)
			endif()
		endif()
		foreach(width ${widths})
			add_executable(${t}_${width} ${src})
			target_include_directories(${t}_${width} PRIVATE tests/unit skills/cuda/include)
			target_compile_options(${t}_${width} PRIVATE -O3 -march=${width} -fno-math-errno
				-fno-trapping-math -ffp-contract=fast)
			target_link_libraries(${t}_${width} PRIVATE ${CMOCKA} Threads::Threads m)
			set_target_properties(${t}_${width} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
			ww_test(${mod}/${name}_${width} ${src} $<TARGET_FILE:${t}_${width}>)
			set_tests_properties(${mod}/${name}_${width} PROPERTIES LABELS unit)
		endforeach()
		# Comparisons with Python libraries; without .venv-oracle (tools/setup check) they say that they skip.
		if(name MATCHES "^test_oracle_")
			set_tests_properties(${mod}/${name} PROPERTIES LABELS "unit;oracle" TIMEOUT 300
				SKIP_REGULAR_EXPRESSION "# skip: ")
		endif()
	endforeach()
	# Those that start PyTorch.
	set_tests_properties(judge/test_judge_cpu task/test_ref judge/test_candidate PROPERTIES TIMEOUT 240)
endif()

if(TARGET nn_test_oracle_tokenizer)
	ww_test(nn/test_oracle_tokenizer_all tests/unit/nn/test_oracle_tokenizer.c $<TARGET_FILE:nn_test_oracle_tokenizer>)
	ww_test(nn/test_oracle_model_all tests/unit/nn/test_oracle_model.c $<TARGET_FILE:nn_test_oracle_model>)
	set_tests_properties(nn/test_oracle_tokenizer_all nn/test_oracle_model_all PROPERTIES
		LABELS "oracle;slow" TIMEOUT 900
		SKIP_REGULAR_EXPRESSION "# skip: ")
endif()

# Every operation of a device against the scalar reference; prints a table, fails on an error above its limit.
add_executable(test-ops tests/ops/test_ops.c)
target_link_libraries(test-ops PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
set_target_properties(test-ops PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
ww_test(dev/test_ops tests/ops/test_ops.c $<TARGET_FILE:test-ops> cpu)
ww_test(dev/test_ops_base tests/ops/test_ops.c $<TARGET_FILE:test-ops> cpu exact)
ww_test(dev/test_ops_cuda tests/ops/test_ops.c $<TARGET_FILE:test-ops> cuda)
set_tests_properties(dev/test_ops_cuda PROPERTIES LABELS gpu)
if(TARGET dev_test_exact)
	ww_test(dev/test_exact_cuda tests/unit/dev/test_exact.c $<TARGET_FILE:dev_test_exact> cuda)
	ww_test(nn/test_oracle_model_cuda tests/unit/nn/test_oracle_model.c $<TARGET_FILE:nn_test_oracle_model> cuda)
	ww_test(dev/test_draw_cuda tests/unit/dev/test_sample.c $<TARGET_FILE:dev_test_sample> cuda)
	set_tests_properties(dev/test_exact_cuda dev/test_draw_cuda nn/test_oracle_model_cuda PROPERTIES LABELS gpu)
endif()
set_tests_properties(dev/test_ops dev/test_ops_base PROPERTIES LABELS unit TIMEOUT 300)
set_tests_properties(dev/test_ops_base PROPERTIES ENVIRONMENT WARPWRIGHT_CPU_KERNELS=base)

# How fast a device's operations are at the shapes of a model, and a step of training made of them.
foreach(kind ops step)
	add_executable(bench-${kind} bench/ops/bench_${kind}.c)
	target_link_libraries(bench-${kind} PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
	set_target_properties(bench-${kind} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()

# What the agent's loop costs by itself (bench/results/agent.md).
add_executable(bench-loop bench/loop/loop.c)
target_link_libraries(bench-loop PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})

# One agentic step at the published lengths (docs/recipe.md).
add_executable(bench-long-step bench/train/long_step.c)
target_link_libraries(bench-long-step PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
set_target_properties(bench-long-step PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# Many clients of `serve` at a time (bench/results/serve.md).
add_executable(bench-serve bench/serve/load.c)
target_link_libraries(bench-serve PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})

# Disguised copies among a million tasks (bench/results/dedup.md).
add_executable(bench-dedup bench/synth/dedup.c)
target_link_libraries(bench-dedup PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
set_target_properties(bench-dedup PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# What bench/accuracy judges and tests/cli/planner_texts.t compares; links to little, so that it runs on a machine
# that has only a distribution of ours.
add_executable(accuracy-variants bench/accuracy/variants.c)
target_link_libraries(accuracy-variants PRIVATE -Wl,--as-needed ww_policy ww_task ww_base ${WW_SYSTEM_LIBS})
set_target_properties(accuracy-variants PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# Kernels of the cookbook on the cpu with their references: tests/cli/planner_emulated.t runs them.  Those
# that compute much are optimised.
find_program(HOST_CXX NAMES c++)
file(GLOB emulated_checks CONFIGURE_DEPENDS tests/emulate/*_check.cc)
foreach(source ${emulated_checks})
	get_filename_component(name ${source} NAME_WE)
	set(level -O0)
	if(name MATCHES "^(attention|conv|few|gemm)_check$")
		set(level -Og)
	endif()
	set(made ${CMAKE_BINARY_DIR}/tests/emulated/${name})
	add_custom_command(OUTPUT ${made} DEPENDS ${source} DEPFILE ${made}.d
		COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/tests/emulated
		COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${HOST_CXX} -std=c++20 -w -mf16c -ffp-contract=off -fno-extern-tls-init
			-I ${CMAKE_SOURCE_DIR}/tests/emulate -I ${CMAKE_SOURCE_DIR}/skills/cuda/include
			-I ${CMAKE_SOURCE_DIR}/include ${level} -MD -MF ${made}.d -MT ${made} -c -o ${made}.o ${source}
		COMMAND ${HOST_CXX} -o ${made} ${made}.o
		COMMENT "Building ${name} for the host" VERBATIM)
	list(APPEND emulated_programs ${made})
endforeach()
if(HOST_CXX)
	add_custom_target(emulated-checks ALL DEPENDS ${emulated_programs})
endif()

# How far the planner gets with a graph (bench/coverage).
add_executable(coverage-plan bench/coverage/plan.c)
target_link_libraries(coverage-plan PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
set_target_properties(coverage-plan PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# What cuDNN offers for convolutions (bench/results/convolutions.md).
if(CUDA_HEADERS)
	add_executable(bench-algorithms bench/conv/algorithms.c)
	target_include_directories(bench-algorithms SYSTEM PRIVATE ${CUDA_HEADERS})
	target_link_libraries(bench-algorithms PRIVATE dl m)
	set_target_properties(bench-algorithms PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()

# Where the time of our own convolution goes (bench/results/convolutions.md).  Compiling takes minutes: only by name.
if(CUDA_HEADERS AND NVCC AND NOT unusable)
	file(GLOB conv_headers CONFIGURE_DEPENDS skills/cuda/include/ww/*.cuh)
	add_library(bench-conv-library OBJECT EXCLUDE_FROM_ALL bench/conv/library.c)
	target_include_directories(bench-conv-library PRIVATE skills/cuda/include)
	target_include_directories(bench-conv-library SYSTEM PRIVATE ${CUDA_HEADERS})
	target_compile_options(bench-conv-library PRIVATE -Wno-unused-function)
	add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/tests/bench-conv-parts
		COMMAND ${NVCC} -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I${CMAKE_SOURCE_DIR}/skills/cuda/include
			-o tests/bench-conv-parts ${CMAKE_SOURCE_DIR}/bench/conv/parts.cu $<TARGET_OBJECTS:bench-conv-library> -ldl
		DEPENDS bench/conv/parts.cu bench/conv/parts.h bench-conv-library $<TARGET_OBJECTS:bench-conv-library>
			${conv_headers}
		WORKING_DIRECTORY ${CMAKE_BINARY_DIR} COMMAND_EXPAND_LISTS)
	add_custom_target(bench-conv-parts DEPENDS ${CMAKE_BINARY_DIR}/tests/bench-conv-parts)
endif()

# A version manager's `python3` is a script that looks for the interpreter each time: scripts are run by that one.
execute_process(COMMAND python3 -c "import sys; print(sys.executable)" OUTPUT_VARIABLE script_python
	OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
# Scripts print TAP; `prove` fails on a wrong plan, a failed line or a bad exit code.  "# label: gpu" in the head of a
# script adds a label, "# timeout: 900" gives it more than 300 seconds, "# processors: 2" says that it keeps two busy.
# "# all: what" says that the script does more when it is called with "all", which is another test, label slow.
# Two that measure wait for each other by the judge's own lease on the device.
file(GLOB cli_tests CONFIGURE_DEPENDS tests/cli/*.t)
foreach(script ${cli_tests})
	get_filename_component(name ${script} NAME_WE)
	file(STRINGS ${script} labels REGEX "^# label: " LIMIT_COUNT 1)
	string(REPLACE "# label: " "" labels "${labels}")
	file(STRINGS ${script} limit REGEX "^# timeout: [0-9]+$" LIMIT_COUNT 1)
	string(REPLACE "# timeout: " "" limit "${limit}")
	if(NOT limit)
		set(limit 300)
	endif()
	file(STRINGS ${script} busy REGEX "^# processors: [0-9]+$" LIMIT_COUNT 1)
	string(REPLACE "# processors: " "" busy "${busy}")
	if(NOT busy)
		set(busy 1)
	endif()
	file(STRINGS ${script} first LIMIT_COUNT 1)
	set(by env)
	if(first STREQUAL "#!/usr/bin/env python3" AND EXISTS "${script_python}")
		set(by ${script_python})
	endif()
	ww_test(cli/${name} ${script} prove -v --exec ${by} ${script})
	set_tests_properties(cli/${name} PROPERTIES LABELS "cli;${labels}" TIMEOUT ${limit} PROCESSORS ${busy}
		WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
	file(STRINGS ${script} all REGEX "^# all: " LIMIT_COUNT 1)
	if(all)
		ww_test(cli/${name}_all ${script} prove -v --exec ${by} ${script} :: all)
		set_tests_properties(cli/${name}_all PROPERTIES LABELS "cli;slow" TIMEOUT 1800
			WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
	endif()
endforeach()

# Known cheats (tests/cheats): on the cpu target those that need no timing, and those of the cuda target as far as they
# get without a GPU: of each row of docs/threat-model.md the first, behind `make check` the others.  make check-cheats
# and check-cheats-gpu run all of them.
add_executable(cheats-compile tests/cheats/compile_cuda.c)
target_link_libraries(cheats-compile PRIVATE -Wl,--start-group ${WW_LIBS} -Wl,--end-group ${WW_SYSTEM_LIBS})
set_target_properties(cheats-compile PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set(cheats ${CMAKE_SOURCE_DIR}/tests/cheats/run)
ww_test(cheats/quick tests/cheats/run ${cheats} --quick --first)
ww_test(cheats/compile-only tests/cheats/run ${cheats} --compile-only --first)
ww_test(cheats/quick_all tests/cheats/run ${cheats} --quick)
ww_test(cheats/compile-only_all tests/cheats/run ${cheats} --compile-only)
set_tests_properties(cheats/quick cheats/compile-only PROPERTIES LABELS cli TIMEOUT 300)
set_tests_properties(cheats/quick_all cheats/compile-only_all PROPERTIES LABELS slow TIMEOUT 300)
