# Targets for the command line; CMake does the build itself (CMakePresets.json). `make help` lists them.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# More than the build's jobs, since tests of servers and pages wait as long as they compute.
TEST_JOBS ?= $(shell expr $(JOBS) + 2)
# The name of a model of scripts/models.txt; WINNOW_MODEL is a file of your own. Without both, the default is used.
MODEL ?=
export MODEL
model_file = "$$(bash -c '. scripts/model_table.sh && chosen_model')"

.PHONY: all cuda cuda-check setup model model-name demo tool test test-models test-heavy asan arm-test fuzz debug python-packages wheel wheel-test \
  deb deb-test install format format-check layers docs-check reference tidy bench clean distclean help
.NOTPARALLEL:

all: setup python-packages  ## build the tool, the library and the tests: build/bin/winnow (the default)
	@scripts/setup.sh configure release
	@echo '==> Building'
	@cmake --build --preset release --parallel $(JOBS)

cuda: setup  ## build the tool and its plugin for NVIDIA GPUs (needs nvcc), this machine's or CUDA_ARCHITECTURES="80 90"
	@CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)" scripts/setup.sh cuda
	@echo '==> Building the tool and its plugin'
	@cmake --build --preset release --parallel $(JOBS) --target winnow_cli winnow_cuda

setup:  ## install Debian packages, and build ggml and libllama
	@scripts/setup.sh packages
	@scripts/setup.sh prefix

python-packages: setup  ## install the packages to build and test the Python package, in .venv
	@scripts/setup.sh python

model:  ## fetch the default model, or MODEL=NAME of scripts/models.txt, to models/
	@scripts/setup.sh model "$$MODEL"

model-name:
	@bash -c '. scripts/model_table.sh && model_row "$$MODEL"' >/dev/null

demo: model-name setup model  ## ask a model (MODEL=NAME as above) about a long text, with the whole cache and with a part of it
	@scripts/setup.sh configure release
	@echo '==> Building the library and the demo'
	@cmake --build --preset release --parallel $(JOBS) --target winnow_demo
	@scripts/demo.sh

tool: setup  ## build the tool alone: build/bin/winnow
	@scripts/setup.sh configure release
	@echo '==> Building the tool'
	@cmake --build --preset release --parallel $(JOBS) --target winnow_cli

test: all model  ## build and run every test
	@scripts/setup.sh require haproxy
	@echo '==> Running the tests'
	@ctest --preset release --parallel $(TEST_JOBS)

test-models: setup  ## fetch all models of make model, and test the losses and logits of the larger ones
	@scripts/setup.sh models
	@scripts/setup.sh configure release
	@echo '==> Building the test'
	@cmake --build --preset release --parallel $(JOBS) --target real_models_test
	@WINNOW_REQUIRE_MODELS=1 ctest --preset release --verbose -R RealModelTest

test-heavy: all model  ## test with Ray, instructor, LiteLLM, LlamaIndex and lm-eval, whose packages are large
	@ctest --test-dir build --output-on-failure -C heavy -R heavy

asan: setup  ## run the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/setup.sh configure asan
	@echo '==> Building with sanitizers'
	@cmake --build --preset asan --parallel $(JOBS)
	@ctest --preset asan --parallel $(JOBS)

arm-test:  ## cross-build the tests of kernels, cache and eviction for 64-bit ARM, and run them under qemu
	@scripts/setup.sh arm
	@scripts/setup.sh configure arm
	@echo '==> Cross-building'
	@cmake --build --preset arm --parallel $(JOBS)
	@ctest --preset arm --parallel $(JOBS)

fuzz: setup  ## fuzz every parser of outside input with libFuzzer, for FUZZ_SECONDS (60) or up to FUZZ_RUNS in all
	@scripts/setup.sh require clang libclang-rt-dev libomp-dev llvm
	@scripts/setup.sh configure fuzz
	@echo '==> Building with clang'
	@cmake --build --preset fuzz --parallel $(JOBS)
	@scripts/fuzz.sh $(if $(FUZZ_RUNS),--runs $(FUZZ_RUNS)) $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS))

debug: setup  ## build with asserts, in build-debug/
	@scripts/setup.sh configure debug
	@cmake --build --preset debug --parallel $(JOBS)

wheel: setup python-packages  ## build the Python package for every processor of the platform, to dist/
	@scripts/setup.sh wheel
	@scripts/setup.sh wheel-tagger
	@rm -rf build/untagged
	@.venv/bin/python -m pip wheel . --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir build/untagged \
	  --config-settings=cmake.define.WINNOW_GGML_VARIANTS="$(CURDIR)/.venv/winnow-wheel"
	@echo '==> Naming it after the oldest C library that it runs with'
	@packaging/tag_wheel.sh .venv/bin build/untagged/*.whl dist

wheel-test: wheel model  ## install the wheel into a fresh environment, and use it there
	@packaging/wheel_test.sh .venv/bin/python dist/winnow_llm-*.whl $(model_file)

deb: setup  ## build a Debian package for every processor of the platform, to dist/
	@scripts/setup.sh require help2man dpkg-dev file
	@scripts/setup.sh wheel
	@scripts/setup.sh configure deb
	@cmake --build --preset deb --parallel $(JOBS)
	@cd build-deb && cpack && mkdir -p ../dist && mv winnow_*.deb ../dist/

deb-test: deb model  ## install the package into a fresh Debian, use it there, and remove it
	@scripts/setup.sh require debootstrap
	@packaging/test.sh dist/winnow_*.deb $(model_file)

install: all  ## install to PREFIX (/usr/local)
	@cmake --install build --prefix $(PREFIX)

format:  ## format every source file
	@scripts/format.sh

format-check:  ## list the source files that are not formatted
	@scripts/format.sh --check

cuda-check:  ## compile the GPU kernels for all architectures if nvcc is there, and check registers and instructions
	@scripts/cuda_check.sh

layers:  ## check that no lower layer includes a higher one, and that every cited file exists
	@scripts/check_layers.sh
	@scripts/check_paths.sh

docs-check:  ## check links, commands, lengths, prose and generated parts of the docs (with build/bin/winnow if built)
	@python3 scripts/docs_check.py build/bin/winnow
	@[ ! -x build/bin/winnow_model_table ] || docs/refresh.py --check build/bin/winnow

reference:  ## make the C++ library's reference from its headers, with doxygen, in build/reference/html/index.html
	@scripts/setup.sh require doxygen
	@mkdir -p build/reference
	@doxygen docs/doxygen/Doxyfile

tidy: debug  ## run clang-tidy on src/ and examples/
	@scripts/tidy.sh

bench: all model  ## measure the speed of prefill and decode at several depths
	@build/bin/winnow bench -m $(model_file)

clean:  ## remove what was built
	@rm -rf build build-debug build-asan build-arm build-deb build-fuzz dist

distclean: clean  ## also remove ggml, libllama and the fetched models (the next build fetches them again)
	@rm -rf .venv models

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'
