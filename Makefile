# The only entry. `make help` lists the targets; CI runs `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# A change of the dependencies is a new stamp, so the next `make` installs again.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt Makefile | sha256sum | cut -c1-12)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Installed for its data files alone; its own requirements hold pandas below 3.
DATA_ONLY := universal-portfolios==0.4.17
# Installed for `make bench` alone; it holds ccxt at an old version that its environment never uses.
COMPETITORS := gym-trading-env==0.3.5
WORKERS ?= 2
SOURCES := src tests benchmarks examples

# One thread per process: two OpenMP threads stall on small operations of a shared machine.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install test lint format docs verify bench demo browser conformance lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## create .venv with the pinned versions

# torch comes first and pinned: an open range would fetch gigabytes of GPU packages.
$(STAMP): pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt pip setuptools
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	$(PIP) install --no-deps $(DATA_ONLY)
	@if $(PIP) list | grep -qiE '^(nvidia-|triton)'; then \
	  echo 'GPU packages were installed; constraints.txt must pin torch==2.13.0.' >&2; exit 1; fi
	@rm -f $(VENV)/.installed-*; touch $@

test: lint  ## lint, types, import contracts, then the tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not verify"

lint: $(STAMP)  ## ruff, mypy and the import contracts
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format and mend what ruff can mend
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: $(STAMP)  ## write the generated pages under docs/
	$(BIN)/python -m tests.catalogue
	$(BIN)/python -m tests.risk.cvar_accuracy

verify: $(STAMP) browser  ## the learning proofs that take minutes
	QUANTAIL_BROWSER=required $(BIN)/python -m pytest -n $(WORKERS) -m verify
	$(BIN)/python -m tests.learning.table

bench: $(STAMP)  ## speed against others, as ratios within one run
	$(PIP) install --no-deps $(COMPETITORS)
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

conformance: $(STAMP)  ## the tests of Stable-Baselines3 and sb3-contrib, with our class in place
	$(BIN)/python -m tests.conformance -n $(WORKERS)

demo: $(STAMP)  ## train the default agent, judge it, write and name its report
	$(BIN)/quantail train

browser:  ## Debian's Chromium, for the browser tests of the report
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }

lock:  ## write constraints.txt anew from the ranges in pyproject.toml
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install torch==2.13.0
	$(PIP) install torch==2.13.0 --editable '.[dev]'
	$(BIN)/python -m pip freeze --all --exclude-editable | grep -v '@' | sed 's/+cpu$$//' > constraints.txt

clean:  ## remove everything that make creates
	git clean -fdX
