# Everything that a newcomer runs. `make` brings its own uv and its own virtual
# environment; the machine needs Linux on x86_64, make and python3 (3.11 to 3.14).

PYTHON ?= python3
ARGS ?=
UV_VERSION := 0.13.9
UV_SHA256 := d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19

BIN := .venv/bin
UV := .uv/bin/uv
READY := .venv/.ready
SOURCES := libs loadtest schemas services tests

.DEFAULT_GOAL := help
.PHONY: help setup demo test chaos check format up down bench bench-peers schemas lock \
  lock-peers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## make .venv, with the command .venv/bin/headrace
	@echo "Ready: .venv/bin/headrace"

demo: $(READY) ## start everything, send real inputs to real models, print figures
	@$(BIN)/headrace demo $(ARGS)

test: $(READY) ## run the tests, with an Apache Kafka of their own
	@$(BIN)/python -m tests.lanes $(ARGS)

chaos: $(READY) ## break everything under load, over and over (ARGS="--seed N")
	@$(BIN)/python -m tests.chaos $(ARGS)

check: $(READY) ## format, lint, types, layers, tidiness
	@$(BIN)/ruff format --check --quiet --diff $(SOURCES)
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/pytest -q tests/architecture

format: $(READY) ## format the code and repair what ruff can
	@$(BIN)/ruff check --quiet --fix-only $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

up: $(READY) ## start Kafka and the services (ARGS="--models DIR ...")
	@$(BIN)/headrace up $(ARGS)

down: $(READY) ## stop what `make up` started
	@$(BIN)/headrace down $(ARGS)

bench: $(READY) ## load tests of the whole path (ARGS="overload --only 2x")
	@$(BIN)/python -m loadtest $(ARGS)

bench-peers: $(READY) ## other model servers beside Headrace (ARGS="--only litserve")
	@$(BIN)/python -m loadtest.peers $(ARGS)

schemas: $(READY) ## write anew what is generated from schemas/ and settings
	@$(BIN)/python schemas/generate.py

lock: $(UV) ## resolve requirements.lock anew (ARGS=--upgrade for newer versions)
	@$(UV) pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" \
	  --extra ingress --extra worker --extra ctl --group build --group demo --group dev $(ARGS) \
	  --output-file requirements.lock pyproject.toml

lock-peers: $(READY) ## resolve the requirements of `make bench-peers` anew (ARGS=NAME)
	@$(BIN)/python -m loadtest.peers lock $(ARGS)

$(READY): $(UV) requirements.lock pyproject.toml
	@[ -x $(BIN)/python ] || $(UV) venv --quiet --clear --no-python-downloads \
	  --python "$$(command -v $(PYTHON))" .venv
	@echo "Installing what requirements.lock names. What this machine does not have" \
	  "yet is fetched: at most 650 MB, over four minutes at 20 Mbit/s."
	@$(UV) pip sync --python $(BIN)/python --require-hashes requirements.lock \
	  >.venv/setup.log 2>&1 || { cat .venv/setup.log >&2; exit 1; }
	@$(UV) pip install --quiet --python $(BIN)/python \
	  --no-deps --no-build-isolation --offline --editable .
	@touch $@

$(UV):
	@[ "$$(uname -sm)" = "Linux x86_64" ] || { \
	  echo "Headrace runs on Linux x86_64; this is $$(uname -sm)." \
	    "Use a Linux machine, a virtual machine or a container." >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) is missing: install Python 3.11 or newer," \
	    "or name one with make PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
	  echo "Headrace needs Python 3.11 to 3.14; $$($(PYTHON) --version) was found." \
	    "Name another one with make PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "This Python cannot make virtual environments: ensurepip is missing." \
	    "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .uv
	@echo "uv==$(UV_VERSION) --hash=sha256:$(UV_SHA256)" >.uv/uv.txt
	@.uv/bin/pip install --quiet --disable-pip-version-check --no-deps \
	  --only-binary :all: --require-hashes --requirement .uv/uv.txt
