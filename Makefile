# Two commands set everything up: `make demo` and `make test`. Each makes .venv and installs under constraints.txt
# with whatever index your pip is set up for; the stamps make the second call instant.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
# Half as many workers again as cores: tests of servers and browsers wait a third of their time.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(8, len(os.sched_getaffinity(0)) * 3 // 2))')
PARALLEL := --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder
BENCHMARKS = $(filter-out benchmarks/report.py benchmarks/charts.py,$(sort $(wildcard benchmarks/*.py)))

# Without cached bytecode every import costs two to four times as much.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo tour test slow long soak check bench docs help
.DEFAULT_GOAL := help

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/installed-hub ## A hub in the browser: a hospital, a clinic, two researchers; Ctrl-C ends it
	$(BIN)/cloister hub demo --folder build/demo

tour: $(VENV)/installed ## A tour in the terminal: three answers, two refusals, the ledger, a receipt
	$(BIN)/cloister demo

test: $(VENV)/installed-dev ## Every quick test, doctest and code block of the docs
	$(BIN)/pytest $(PARALLEL)

slow: $(VENV)/installed-dev ## Tests that serve hubs, kill processes, walk through a browser or draw large samples
	$(BIN)/pytest $(PARALLEL) -m slow tests

long: $(VENV)/installed-dev ## The further settings of long tests: replays, conformance, what each visitor sees
	$(BIN)/pytest $(PARALLEL) -m long tests

soak: $(VENV)/installed-dev ## For the night: new neighbours for SECONDS a property (60), random kills, fuzzing, all large audits
	CLOISTER_SOAK_SECONDS=$(or $(SECONDS),60) $(BIN)/pytest -m soak $(PARALLEL) tests

check: $(VENV)/installed-dev ## Format, lint, types, and which room may import which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/installed-dev ## Every benchmark, then its table in docs/benchmarks.md
	set -e; for file in $(BENCHMARKS); do echo "== $$file"; $(BIN)/python $$file; done
	$(BIN)/python docs/generate.py

docs: $(VENV)/installed-dev ## The generated pages, then the site in build/site
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet

# A half-made environment is removed, so that the next call starts afresh.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Cloister needs Python 3.11 or newer. Name it: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "python3 -m venv failed. On Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) .
	@touch $@

$(VENV)/installed-hub: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) '.[hub]'
	@touch $(VENV)/installed $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) '.[dev]'
	@touch $(VENV)/installed $(VENV)/installed-hub $@
