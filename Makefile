# The project's commands. `make help` lists them.
export PROMPT ?=
MODEL ?=
PRESET ?= release
QUERN := build/release/bin/quern
JOBS ?= $(shell nproc)

.PHONY: help run build test bench bench-peers test-models soak fuzz format check dist gpu-dist clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

run: build  ## chat with the built-in default model; PROMPT="..." answers once
	@tools/fetch_model smollm2 >/dev/null
	@$(QUERN) run $(MODEL) $(if $(PROMPT),"$$PROMPT")

build:  ## build/release/bin/quern
	@tools/bootstrap build
	@tools/build release quern

test:  ## build and pass all tests
	@tools/bootstrap test
	@tools/build release quern tests
	@tools/fetch_model smollm2 >/dev/null
	@tools/run_tests

bench: build  ## the table of speed and memory, measured here
	@tools/build release bench
	@tools/fetch_model smollm2 >/dev/null
	@tools/bench

bench-peers:  ## builds llama.cpp's Python package once, so that make bench can compare
	@tools/bootstrap test
	@tools/build_peers

test-models:  ## the larger real models of docs/models.md: downloads 565 MB
	@tools/bootstrap test
	@tools/build release quern tests
	@tools/fetch_model qwen2.5-coder-0.5b >/dev/null
	@tools/fetch_model minilm >/dev/null
	@tools/run_tests models

soak:  ## the oracle test with a million requests
	@tools/bootstrap test
	@tools/build release engine_tests
	@QUERN_SOAK_REQUESTS=1000000 build/release/bin/engine_tests --gtest_filter='*Soak*'

fuzz:  ## every fuzz target for FUZZ_SECONDS (default 600) each, and 10,000 requests made of /openapi.json
	@tools/bootstrap test
	@tools/build release quern
	@QUERN_BINARY=$(CURDIR)/$(QUERN) QUERN_SCHEMATHESIS_CASES=10000 build/venv/bin/python -m pytest -q -p no:cacheprovider \
	  tests/conformance/test_openapi.py -k d39_no_5xx
	@tools/fuzz $(or $(FUZZ_SECONDS),600)

format:  ## clang-format all sources
	@git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-19 -i

check:  ## formatting, layers, headers, sizes
	@tools/check_format && tools/check_layers && tools/check_headers && tools/size

dist: build  ## one archive with one executable that needs libc and libm only
	@tools/dist

gpu-dist:  ## build/gpu: the program and its GPU tests and benches, ready to be carried to a machine with a GPU
	@tools/bootstrap build
	@tools/gpu_dist

clean:  ## forget all builds
	@rm -rf build
