# A thin front for CMake and Ninja, and for tools/setup, which installs what is missing.
BUILD ?= build
PREFIX ?= /usr/local
INSTALLED ?= $(BUILD)/installed.txt
PYTHON := .venv/bin/python
NINJA := cmake --build $(BUILD)
# Tests side by side: each that judges holds a PyTorch of its own (about 1 GB), and measuring is one at a time in any
# case. Three more than cores, since some wait for the device, a time limit or a server; five at most, for the memory.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 3 ? n + 3 : 5)))
# The slow ones keep a core or two busy all the time: more of them at once only bring each nearer to its time limit.
SLOW_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 5)))

.PHONY: program all setup setup-check demo fuzz check check-cheats check-cheats-gpu \
	check-gpu check-san check-all check-slow check-failed dist bench install uninstall clean

# What is installed: the program, its plug-ins, the manual.
program: $(BUILD)/build.ninja
	@$(NINJA) --target installed

# Tests, fuzzers and benches as well.
all: $(BUILD)/build.ninja
	@$(NINJA)

$(BUILD)/build.ninja: CMakeLists.txt tests/tests.cmake | setup-build
	@cmake -G Ninja -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX) > $(BUILD).log 2>&1 \
		|| { cat $(BUILD).log; exit 1; }
	@mv $(BUILD).log $(BUILD)/cmake.log

.PHONY: setup-build
setup-build:
	@tools/setup build

setup:
	@tools/setup all

# And the Python libraries that tests compare us with.
setup-check:
	@tools/setup check

# Set up everything, build, and optimize one example: on the GPU where there is one, else on the cpu target.
demo: setup program
	@tools/demo

# What the tests cost is shown behind them (tests/README.md).
CTEST := run() { cd $(BUILD) && rm -f test-costs Testing/Temporary/LastTestsFailed.log && ctest "$$@"; code=$$?; \
	tests/test-cost show test-costs; [ $$code = 0 ] || \
	echo "check: a busy machine makes some tests fail; make check-failed runs those that failed again, one by one"; \
	return $$code; }; run

check: setup-check all
	@$(CTEST) -j $(JOBS) --output-on-failure -LE "gpu|slow"

# Needs a GPU, and no build: tests/gpu/run is satisfied with a directory of `make dist` and a Python with PyTorch.
check-gpu: setup all
	@tests/gpu/run

check-all: all
	@tools/setup oracle
	@$(CTEST) -j $(JOBS) --output-on-failure

# What check-all has beyond check, without a GPU.
check-slow: all
	@tools/setup oracle
	@$(CTEST) -j $(SLOW_JOBS) --output-on-failure -L slow -LE gpu

# The tests that failed in the last run, one by one: those that measure disturb each other.
check-failed:
	@cd $(BUILD) && log=Testing/Temporary/LastTestsFailed.log && \
	{ test -s $$log || { echo "check-failed: no test failed in the last run" >&2; exit 1; }; } && \
	echo "again, one by one: $$(cut -d: -f2 $$log | tr '\n' ' ')" && \
	ctest --rerun-failed --output-on-failure && rm -f $$log

# Every known way to cheat the judge, as an attack beside its honest twin (docs/threat-model.md).
check-cheats: setup all
	@tests/cheats/run && tests/cheats/run --compile-only && { tests/cheats/spinning || [ $$? = 77 ]; }

check-cheats-gpu: setup all
	@tests/cheats/run --target cuda

check-san: setup
	@cmake -G Ninja -S . -B build-san -DWW_SANITIZE=ON > /dev/null && cmake --build build-san
	@cd build-san && ctest -j $(JOBS) --output-on-failure -L unit

# libFuzzer and AddressSanitizer on untrusted input: plans, the bridge from both sides, the engine's files,
# streams of model servers, clients of `serve`, what a model writes, and the graphs of tasks.
FUZZ_RUNS ?= 10000
FUZZ_TARGETS := fuzz_image fuzz_bridge fuzz_nn_safetensors fuzz_nn_config fuzz_nn_tokenizer fuzz_wire \
	fuzz_serve fuzz_chat fuzz_graph
fuzz: setup all
	@cmake -G Ninja -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DWW_FUZZ=ON -DWW_WERROR=OFF > /dev/null \
		&& cmake --build build-fuzz --target $(FUZZ_TARGETS)
	@for t in $(FUZZ_TARGETS); do \
		$(BUILD)/$$t --corpus build-fuzz/corpus-$$t && echo "== $$t" && \
		build-fuzz/$$t -runs=$(FUZZ_RUNS) -max_len=65536 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
			build-fuzz/corpus-$$t 2> build-fuzz/$$t.log; code=$$?; \
		grep -E "^stat::number_of_executed|ERROR|SUMMARY" build-fuzz/$$t.log; [ $$code = 0 ] || exit 1; done
	@echo "== fuzz_worker.py" && $(PYTHON) fuzz/fuzz_worker.py $(FUZZ_RUNS) 1 --torch

dist: all
	@tools/dist $(BUILD)

bench: setup all
	@bench/run

install: program
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@cp $(BUILD)/install_manifest.txt $(INSTALLED) && echo >> $(INSTALLED)

uninstall:
	@tools/uninstall $(INSTALLED)

clean:
	@rm -rf $(BUILD) build-san dist
