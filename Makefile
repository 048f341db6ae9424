# Everything works on a fresh clone with Python and pip alone; the environment lives in .venv and is made once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test style types pytest test-oldest test-newest test-wheels fuzz audit lock lint docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    a report on a synthetic hospital, in demo/report.html"
	@echo "make test    every check: lint, types, import contract, all tests"
	@echo "make test-oldest, test-newest   the core with the lowest and the newest versions it allows"
	@echo "make test-wheels   for which Python versions every dependency has a wheel"
	@echo "make fuzz    2,400 hostile inputs: damaged and forged files, kills, requests"
	@echo "make audit   what is installed beside requirements.lock, and known holes in it"
	@echo "make lint    ruff, pyright, import-linter"
	@echo "make docs    the docs site, in site/index.html"
	@echo "make bench   speed and memory beside peers (QUICK=--quick: on less data)"
	@echo "make clean   remove .venv and demo/"

.venv/.run: pyproject.toml constraints.txt
	@echo "Setting up .venv (once; a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.run
	@echo "Adding the test tools to .venv (once) ..."
	@$(PIP) -e ".[dev]"
	@.ci/tools
	@touch $@

demo: .venv/.run
	@$(BIN)/mlci demo -o demo

lint: style types

style: .venv/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

types: .venv/.dev
	@$(BIN)/pyright --pythonpath $(BIN)/python

# Types are checked by one core, so the tests do not wait for them. What is compiled is kept, whatever the machine's
# habit: the tests' own assertions take a quarter of a minute of a processor to compile.
test: style
	@PYTHONDONTWRITEBYTECODE= $(MAKE) --no-print-directory --jobs 2 types pytest

# Stealing work is the one way of xdist by which a test that crashes its worker fails alone, and the others are run.
pytest: .venv/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal

# Two more environments, without constraints.txt, for the core and its extras excel and web. Networks ([deep]), databases
# and browsers are left out: torch alone is larger than all the rest. Warnings are shown, not errors: others' are many.
LANE := $(addprefix tests/,base codes sources/test_tables.py sources/test_file.py fitting/test_table.py index/test_table.py \
  index/test_model.py judging/test_evaluate.py showing/test_plots.py web/test_app.py test_cohort.py test_config.py \
  test_tokens.py test_spreadsheet.py)
TOOLS := pytest pytest-xdist hypothesis httpx openpyxl polars psutil array-api-compat
# Our peers come without what they need: dcor's compiler would hold NumPy back, and the tests do without it
# (tests/oracles.py); what pycomorb needs is there.
PEER := dcor pycomorb pyyaml
IN_LANE = OMP_NUM_THREADS=1 .venv-$(1)/bin/python -m pytest -q -n 2 --dist worksteal -W default -p no:cacheprovider $(LANE)

.venv-oldest/.ready: pyproject.toml
	@$(PYTHON) -m venv .venv-oldest && .venv-oldest/bin/pip install --quiet uv
	@.venv-oldest/bin/uv pip compile --quiet --resolution lowest-direct --extra excel --extra web pyproject.toml \
	  -o .venv-oldest/lowest.txt
	@.venv-oldest/bin/uv pip install --quiet --python .venv-oldest/bin/python -r .venv-oldest/lowest.txt $(TOOLS)
	@.venv-oldest/bin/uv pip install --quiet --python .venv-oldest/bin/python --no-deps -e . $(PEER) && touch $@

.venv-newest/.ready: pyproject.toml
	@$(PYTHON) -m venv .venv-newest
	@.venv-newest/bin/pip install --quiet --upgrade --upgrade-strategy eager -e ".[excel,web]" $(TOOLS)
	@.venv-newest/bin/pip install --quiet --no-deps $(PEER) && touch $@

test-oldest: .venv-oldest/.ready
	@$(call IN_LANE,oldest)

test-newest: .venv-newest/.ready
	@$(call IN_LANE,newest)

# Asks the index, installs nothing. Of pyspark there is no wheel: it is Java in an archive.
test-wheels: .venv-oldest/.ready
	@for version in 3.11 3.12 3.13 3.14; do \
	  .venv-oldest/bin/uv pip compile --quiet --only-binary :all: --no-binary pyspark --python-version $$version \
	    --extra all pyproject.toml >/dev/null && echo "Python $$version: every dependency has a wheel." || exit 1; done

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
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "The docs are in site/index.html; $(BIN)/python -m http.server -d site shows them with search."

# Speed and memory, with ratios to peers or to the plain way: half an hour on two idle cores; QUICK=--quick, a few minutes.
# What needs a GPU, own data or hours of simulation is run by hand; each script of benchmarks/ says how.
BENCH := start cohort scale score indices report web spark table deep fit measures theory
bench: .venv/.dev
	@for script in $(BENCH); do \
	  echo "== benchmarks/$$script.py $(QUICK)"; $(BIN)/python benchmarks/$$script.py $(QUICK) || exit 1; done

clean:
	rm -rf .venv .venv-oldest .venv-newest demo site
