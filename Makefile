# The front door of braid. `make demo` and `make test` set a bare Debian 12 or Ubuntu 24.04 machine up by themselves.
#   BRAID_TORCH=<folder of an installed torch 2.11>  uses that torch; then neither network nor pip is needed
PRESET ?= release
JOBS ?= $(shell nproc)
BRAID = build/bin/braid
DEMO = runs/demo

NINJA = NINJA_STATUS='build: step %f of %t, %e s  ' ninja -j $(JOBS)

.PHONY: all setup configure command demo test test-full asan tidy format format-check bench cuda install clean help

all: configure  ## build everything; the command is build/bin/braid
	@$(NINJA) -C build

setup:  ## install the system packages of tools/packages.txt and the pinned torch
	@tools/setup

configure:
	@tools/setup --test
	@grep -qs '^BRAID_TESTS:BOOL=ON' build/CMakeCache.txt || cmake --preset $(PRESET) -DBRAID_TESTS=ON --log-level=WARNING

command: setup  ## build the command alone
	@test -e build/build.ninja || cmake --preset $(PRESET) -DBRAID_TESTS=OFF -DBRAID_BENCH=OFF --log-level=WARNING
	@$(NINJA) -C build braid_command

demo: command  ## train the small weather ViT on made-up weather, on the CPU, in under two minutes
	@test -e data/demo/stats/global_stds.npy || $(BRAID) data make weather data/demo --shape 4,32,64 --frames 700 --years 2
	@rm -rf $(DEMO)
	@$(BRAID) train configs/vit.yaml:demo --set run.dir=$(DEMO)

test: all  ## all tests of a commit (<= 8 minutes on 2 cores)
	@tools/venv
	@tools/run-tests build cpu

test-full: all format-check tidy asan  ## what make test leaves out: the long matrices, sanitizers, clang-tidy and the format
	@tools/run-tests build full

asan: setup  ## the tests under address and undefined-behaviour sanitizers
	@tools/setup --full
	@cmake --preset asan --log-level=WARNING
	@$(NINJA) -C build/asan
	@tools/run-tests build/asan cpu

tidy: setup  ## clang-tidy over what changed since the commit of .ci/checked; TIDY=all: over everything
	@tools/setup --full
	@tools/tidy

format:  ## rewrite all sources with clang-format
	@tools/setup --full
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-19 -i

format-check:
	@tools/setup --full
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-19 --dry-run -Werror && echo "format: clean"

bench: setup  ## benchmarks beside their peers; results in bench/results
	@cmake --preset $(PRESET) -DBRAID_BENCH=ON --log-level=WARNING
	@$(NINJA) -C build
	@bench/run

cuda: setup  ## also libbraid_cuda, in build/cuda (needs nvcc 13)
	@cmake --preset cuda --log-level=WARNING
	@$(NINJA) -C build/cuda

install: all  ## into PREFIX (default /usr/local)
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

clean:
	@rm -rf build

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
