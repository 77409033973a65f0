# Everything a developer runs. Each target says what it does and repeats only what changed.
#
# The Python used to create the environment is the first of python3.11+ found; override with `make PYTHON=...`. Another
# one beside it has an environment and builds of its own: `make test PYTHON=python3.14t VENV=.venv-free CARGO_TARGET_DIR=target/free`.

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?=
OUTPUT ?= out

RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock pyproject.toml

# Stops with one line when a prerequisite is missing; the script prints nothing when all is well.
require = $(eval PROBLEM := $(shell PYTHON="$(PYTHON)" sh scripts/prerequisites.sh $1))$(if $(PROBLEM),$(error $(PROBLEM)))

.PHONY: help run test lint bench build clean
.DEFAULT_GOAL := help

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

run: $(VENV)/.built  ## compare the execution systems on the chains and one real model, into out/
	@echo "==> Comparing execution systems; the pictures and figures go to $(OUTPUT)/"
	@$(BIN)/threadteam compare --output $(OUTPUT)

test: $(VENV)/.built  ## every check and every test, Rust and Python
	@$(call require,components)$(BIN)/python scripts/check.py all

lint: $(VENV)/.packages  ## formatters, linters, types, layers, dependencies: no tests
	@$(call require,cargo components)$(BIN)/python scripts/check.py lint

bench: $(VENV)/.built  ## dispatch and call benchmarks against other runtimes, into out/
	@mkdir -p $(OUTPUT)
	@echo "==> Benchmarking dispatch (builds the peers on the first run)"
	@cargo run --release --quiet --manifest-path benchmarks/dispatch/Cargo.toml -- --json $(OUTPUT)/dispatch.json \
		$(if $(wildcard $(OUTPUT)/onetbb.so),--onetbb $(OUTPUT)/onetbb.so)
	@echo "==> Benchmarking a section called from Python"
	@$(BIN)/python benchmarks/python_call/python_call.py --json $(OUTPUT)/python_call.json

build: $(VENV)/.built  ## the environment and the extension module, nothing else

clean:  ## remove builds, caches, results and the environment
	@echo "==> Removing target/, $(VENV)/, $(OUTPUT)/ and the caches"
	@rm -rf target benchmarks/*/target $(VENV) $(OUTPUT) python/threadteam/_native*.so
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find python tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(call require,python cargo)echo "==> Creating the virtual environment $(VENV)"
	@$$(PYTHON="$(PYTHON)" sh scripts/prerequisites.sh interpreter) -m venv $(VENV)

$(VENV)/.packages: pyproject.toml scripts/requirements.py | $(BIN)/python
	@echo "==> Installing the packages that pyproject.toml names"
	@$(BIN)/python scripts/requirements.py > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.built: $(RUST_SOURCES) $(VENV)/.packages
	@$(call require,cargo)echo "==> Building the extension module (minutes on the first run, seconds later)"
	@VIRTUAL_ENV="$(abspath $(VENV))" PIP_QUIET=1 $(BIN)/maturin develop --release
	@touch $@
