# Everything works on a fresh clone with Python and pip alone; the environment lives in .venv and is made once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test fuzz audit lock lint docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    a report on a synthetic hospital, in demo/report.html"
	@echo "make test    every check: lint, types, import contract, all tests"
	@echo "make fuzz    2,400 hostile inputs: damaged and forged files, kills, requests"
	@echo "make audit   what is installed beside requirements.lock, and known holes in it"
	@echo "make lint    ruff, pyright, import-linter"
	@echo "make docs    the docs site, in site/index.html"
	@echo "make bench   speed and memory beside peers"
	@echo "make clean   remove .venv and demo/"

.venv/.run: pyproject.toml constraints.txt
	@echo "Setting up .venv (once; a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.run
	@echo "Adding the test tools to .venv (once) ..."
	@$(PIP) -e ".[dev]"
	@touch $@

demo: .venv/.run
	@$(BIN)/mlci demo -o demo

lint: .venv/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-cache

# Stealing work is the one way of xdist by which a test that crashes its worker fails alone, and the others are run.
test: lint
	@$(BIN)/python -m pytest -n 2 --dist worksteal

# The same campaign as in the tests, fifty times as long; it prints how many cases were clean, accepted and bad.
fuzz: .venv/.dev
	@PYTHONPATH=tests $(BIN)/python tests/campaign.py 2400

# Versions agree with the lock, and the index still offers archives of those checksums; nothing is installed.
audit: .venv/.dev
	@$(BIN)/python tests/audit.py
	@$(BIN)/pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --no-deps \
	  --require-hashes -r requirements.lock && echo "The index offers every archive with its checksum."

# After a change of constraints.txt; needs uv.
lock:
	@echo "# constraints.txt with the checksums of its archives; \`make lock\` writes it anew." > requirements.lock
	@uv pip compile constraints.txt --no-deps --generate-hashes --python-version 3.11.7 --no-header --no-annotate --quiet \
	  >> requirements.lock

docs: .venv/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "The docs are in site/index.html."

# What needs a GPU is run by hand: benchmarks/gpu_*.py and benchmarks/recipe.py say how.
bench: .venv/.dev
	@for script in $(filter-out benchmarks/gpu_% benchmarks/recipe.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf .venv demo site
