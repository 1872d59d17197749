# The few words of the README. CMake and its presets do the work; a word here is one line of them, after the set-up that a
# fresh machine needs.

PREFIX ?= /usr/local
PRESET ?= release
CTEST_ARGS ?=

# OpenMP threads of tests that run at once would fight for the cores: one test at a time per two of them.
TEST_JOBS ?= $(shell echo $$(( ($$(nproc) + 1) / 2 )))

.DEFAULT_GOAL := build
.PHONY: help deps build demo test bench install asan tsan format check-format check-readme clean

help:
	@echo "make demo              set up, build, and train three models with these gradients on real data"
	@echo "make test              set up, build, and run every test; scripts/install-deps --python-all adds PyTorch and JAX"
	@echo "make bench             set up, build, and measure; scripts/install-deps --bench adds PyTorch to compare with"
	@echo "make install           build and install into PREFIX ($(PREFIX)); DESTDIR is honoured"
	@echo "make build             set up and build; the default. PRESET=$(PRESET), or debug, ci, asan, tsan"
	@echo "make asan              the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan              the tests under ThreadSanitizer"
	@echo "make format            clang-format over every C and C++ source, ruff over Python's; make check-format only looks"
	@echo "make check-readme      run the commands of README.md in a fresh clone, and compare their output"
	@echo "make clean             remove what was built (not the Python environments)"

deps:
	@scripts/install-deps

build: deps
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

demo: deps
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target demo-programs
	scripts/demo.sh build/$(PRESET)

test: build
	ctest --preset $(PRESET) -j $(TEST_JOBS) $(CTEST_ARGS)

bench: deps
	cmake --preset $(PRESET) -DONEHOT_BENCH=ON
	scripts/bench.sh build/$(PRESET)

# The loader finds libraries in /usr/local/lib by its cache; a staged or private installation needs none.
install: build
	cmake --install build/$(PRESET) --prefix $(abspath $(PREFIX))
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

asan: deps
	@$(MAKE) --no-print-directory test PRESET=asan

tsan:
	@scripts/install-deps --dev
	@$(MAKE) --no-print-directory test PRESET=tsan

format:
	@scripts/format

check-format:
	@scripts/format --check

check-readme:
	@scripts/check-readme

clean:
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name '*-venv' -exec rm -rf {} +; fi
