# `make solve` needs python3 and make, nothing else; every target builds what it needs first.
PYTHON ?= python3
VENV   ?= .venv
JOB    ?= examples/llama-2-7b-8xa100.yaml
RUNS   ?= docs/measured/runs.csv
INPUTS ?= 100000
# make test CONSTRAINTS=requirements/ci.txt: known versions instead of the newest.
CONSTRAINTS ?=

BIN      := $(VENV)/bin
PIP      := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGED := setup.cfg pyproject.toml
# Each stamp is written after an installation succeeded, so a re-run installs only what setup.cfg changed.
BASE        := $(VENV)/.installed
TEST        := $(VENV)/.installed-test
INTEGRATION := $(VENV)/.installed-integration
QUALITY     := $(VENV)/.installed-quality

# One process for each core, up to eight; one that is done takes tests over from another.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses=8 --dist worksteal

# What takes less than a minute: terms, formulas, constraints, reading of files; no search beyond the smallest.
UNITS := architecture_rules cluster compute effect_amounts effect_terms evaluate exchange exchange_terms hardware_catalog \
  hardware_files job_file layouts ledger memory memory_terms output points quantities reading resolve share step_terms \
  step_time techniques topology units zero_plus_plus
QUICK := tests/constraints tests/emit tests/plot tests/speed $(UNITS:%=tests/test_%.py) \
  $(patsubst %,tests/architecture/test_%.py,activations division flops overlay selective size)

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: solve test test-quick test-integration lint types bench accuracy fuzz coverage mutation golden help clean

solve: $(BASE)  ## plan the example job (JOB=FILE for another)
	$(BIN)/planner solve $(JOB)

test: $(TEST)  ## unit tests, without torch
	$(PYTEST) tests --ignore=tests/integration

test-quick: $(TEST)  ## the part of them that takes less than a minute
	$(PYTEST) $(QUICK)

test-integration: $(INTEGRATION)  ## hold plans and ledgers against a real DeepSpeed on the CPU
	$(BIN)/python -m pytest tests/integration -q

lint: $(TEST)  ## ruff
	$(BIN)/ruff check .

types: $(TEST)  ## mypy --strict
	$(BIN)/mypy --strict planner constraints

bench: $(BASE)  ## write docs/performance.md: the search beside exhaustive evaluation
	$(BIN)/python benchmarks/solve.py > docs/performance.md

accuracy: $(BASE)  ## write docs/accuracy.md: predictions against measured runs (RUNS=FILE scores another log)
	$(BIN)/planner accuracy $(RUNS) $(if $(filter docs/measured/runs.csv,$(RUNS)),--format markdown > docs/accuracy.md)

fuzz: $(TEST)  ## try spoiled inputs and write their record into docs/quality.md (INPUTS=NUMBER of them)
	$(BIN)/python -m tests.fuzz.driver --inputs $(INPUTS) --solved 0.005 --record docs/quality.md

coverage: $(QUALITY)  ## lines and branches that the unit tests reach (takes twice as long as make test)
	$(PYTEST) tests --ignore=tests/integration --cov --cov-report=term:skip-covered

mutation: $(QUALITY)  ## change one thing at a time, see whether a test notices, write the record into docs/quality.md
	$(BIN)/python -m tests.mutation.driver --record docs/quality.md

golden: $(TEST)  ## write the golden files again
	PLANNER_GOLDEN=write $(BIN)/python -m pytest tests/test_golden.py -q

clean:  ## remove the virtual environment and build products
	rm -rf $(VENV) build dist *.egg-info

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BASE): $(PACKAGED) | $(BIN)/python
	$(PIP) $(CONSTRAINTS:%=-c %) --editable .
	@touch $@

$(TEST): $(BASE)
	$(PIP) $(CONSTRAINTS:%=-c %) --editable '.[test]'
	@touch $@

$(QUALITY): $(TEST)
	$(PIP) $(CONSTRAINTS:%=-c %) --editable '.[test,quality]'
	@touch $@

# DS_BUILD_OPS=0: DeepSpeed compiles no kernel when it is installed.
$(INTEGRATION): $(TEST)
	DS_BUILD_OPS=0 $(PIP) --editable '.[test,integration,browser]'
	@touch $@
