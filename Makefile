# The daily commands. `make help` lists them.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 300
CMAKE_FLAGS ?=
MODELS ?=
export TORCH_DIR

SOURCES = $(wildcard $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp'))

# $(call configure,build folder,further options): the generator is chosen once, on the first call.
configure = mkdir -p $(1) && { cmake -B $(1) -DTORCH_DIR="$$(cat .deps/torch_dir)" $(2) $(CMAKE_FLAGS) \
  $$(test -f $(1)/CMakeCache.txt || ! command -v ninja >/dev/null || echo -G Ninja) >$(1)/configure.log 2>&1 \
  || { cat $(1)/configure.log; exit 1; }; }
# Without the test framework, unless the folder is configured already.
configure_quickly = $(call configure,build,$$(test -f build/CMakeCache.txt || echo -DAHEAD_BUILD_TESTS=OFF))
build = cmake --build $(1) --parallel $(JOBS)
ctest = ctest --test-dir $(1) --output-on-failure --parallel $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup configure build demo test bench bench-models fuzz soak asan tsan format lint headers docs-check install clean

help:  ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

setup:
	@tools/setup.sh

configure: setup
	@$(call configure,build,-DAHEAD_BUILD_TESTS=ON)

build: configure  ## Build the library, the tests and the examples
	@$(call build,build)

# Threads that spin while they wait would make it slow on a busy machine.
demo: setup  ## Train a small GPT eagerly and compiled, side by side
	@$(configure_quickly)
	@$(call build,build) --target 08_train
	@OMP_WAIT_POLICY=passive build/examples/08_train

test: build  ## Build everything and run all tests
	@$(call ctest,build)

bench: setup  ## Build and run the benchmarks
	@$(call configure,build,-DAHEAD_BUILD_BENCH=ON)
	@$(call build,build) --target benchmarks
	@python3 tools/bench.py

# More of it, or less: MODELS='--quick', MODELS='--models gpt12,mlp --rounds 5'.
bench-models: setup  ## Compare models with torch.compile, JAX and eager; installs what that needs
	@tools/setup.sh peers
	@$(call configure,build,-DAHEAD_BUILD_BENCH=ON)
	@$(call build,build) --target bench_models
	@python3 tools/bench_models.py $(MODELS)

fuzz: configure  ## Run the fuzzer for FUZZ_SECONDS (default 600)
	@$(call build,build) --target test_fuzz
	@AHEAD_FUZZ_SECONDS=$(FUZZ_SECONDS) build/tests/test_fuzz

soak: configure  ## Run threads that do everything at once for SOAK_SECONDS (default 300)
	@$(call build,build) --target test_soak
	@OMP_WAIT_POLICY=passive AHEAD_SOAK_SECONDS=$(SOAK_SECONDS) build/tests/test_soak

asan: setup  ## Run the unit tests under AddressSanitizer
	@$(call configure,build-asan,-DAHEAD_SANITIZE=address -DAHEAD_BUILD_EXAMPLES=OFF)
	@$(call build,build-asan)
	@$(call ctest,build-asan) --label-regex unit

tsan: setup  ## Run the unit tests under ThreadSanitizer
	@$(call configure,build-tsan,-DAHEAD_SANITIZE=thread -DAHEAD_BUILD_EXAMPLES=OFF)
	@$(call build,build-tsan)
	@$(call ctest,build-tsan) --label-regex unit

format:  ## Format all C++ files in place
	@tools/setup.sh lint
	@.deps/clang-format -i $(SOURCES)

lint: configure  ## Check format, layers and, in src/, the clang-tidy rules
	@tools/setup.sh lint
	@.deps/clang-format --dry-run -Werror $(SOURCES)
	@python3 tools/check_layers.py
	@printf '%s\n' $(filter src/%.cpp,$(SOURCES)) | xargs -P $(JOBS) -n 4 .deps/clang-tidy -p build --quiet

headers: build  ## Compile each header alone, which batches of files would hide
	@python3 tools/check_headers.py build $(JOBS)

docs-check:  ## Check the links, file names and commands in the documentation
	@python3 tools/check_docs.py

install: setup  ## Install the library below PREFIX (default /usr/local)
	@$(configure_quickly)
	@$(call build,build) --target ahead
	@cmake --install build --prefix $(PREFIX)

clean:  ## Remove everything that was built; downloads stay
	rm -rf build build-asan build-tsan
