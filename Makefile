# Everything a newcomer needs: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := requirements

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-slow test-engines test-torch check format bench bench-flower bench-nvflare reference docs screenshot results dist lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("fedgt needs Python 3.11 or newer, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# Whatever pip downloads is checked by hash. build.txt comes first, because what pip builds without isolation is built with it:
# pip would download the tools of an isolated build without a hash.
define install
$(PIP) install --quiet --require-hashes -r $(LOCK)/build.txt
$(PIP) install --quiet --require-hashes --no-build-isolation -r $(LOCK)/$(1).txt
$(PIP) install --quiet --no-deps --no-build-isolation --editable .
endef

$(VENV)/.core: pyproject.toml $(LOCK)/build.txt $(LOCK)/core.txt | $(BIN)/python
	$(call install,core)
	@touch $@

$(VENV)/.dev: pyproject.toml $(LOCK)/build.txt $(LOCK)/dev.txt | $(BIN)/python
	$(call install,dev)
	@touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml $(LOCK)/build.txt $(LOCK)/docs.txt | $(BIN)/python
	$(call install,docs)
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core ## 15 clients train on real images, 5 flip labels: watch them being found (no downloads but packages)
	$(BIN)/fedgt demo

test: $(VENV)/.dev ## the tests without whole experiments and further cases (five minutes on two idle cores); those on MNIST need FEDGT_DATA=<folder with MNIST/raw/*-ubyte>
	FEDGT_EXAMPLES=$${FEDGT_EXAMPLES:-10} $(BIN)/python -m pytest -n auto -m 'not slow'

test-slow: $(VENV)/.dev ## whole experiments and further cases alone
	$(BIN)/python -m pytest -n auto -m slow

test-all: $(VENV)/.dev ## all tests, with whole experiments, further cases and more examples of each law
	$(BIN)/python -m pytest -n auto

# The simulation engine needs Ray, which no user of fedgt needs.
$(VENV)/.engines: $(VENV)/.dev $(LOCK)/engines.txt
	$(PIP) install --quiet --require-hashes --no-build-isolation -r $(LOCK)/engines.txt
	@touch $@

# ENGINES="simulation or tls" chooses among them; "flare" is NVIDIA FLARE (ten minutes).
test-engines: $(VENV)/.engines ## Flower and NVIDIA FLARE: simulations and deployments on loopback, with faults and TLS, and the guides (an hour)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n 0 -rs $(if $(ENGINES),-k "$(ENGINES)") tests/contract/test_engine_contract.py tests/integration/test_deployment_guide.py tests/integration/test_nvflare_guide.py tests/integration/test_new_app.py tests/integration/test_flower_engines.py tests/integration/test_flare_deployment.py

$(VENV)/.torch: $(VENV)/.dev
	$(PIP) install --quiet 'torch>=2.6'
	@touch $@

test-torch: $(VENV)/.torch ## the example and the new app with torch, which no user of fedgt needs (torch is a large download)
	$(BIN)/python -m pytest -n 0 -rs -k torch tests/integration/test_torch_example.py tests/integration/test_new_app.py

check: $(VENV)/.dev ## formatting, lint, types, layers, and no mark of a conflict that a merge left
	@! git grep -nE '^(<{7}|>{7})( |$$)'
	@! git grep -nE '^={7}$$' -- ':!*.md'
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff format src tests benchmarks docs
	$(BIN)/ruff check --fix src tests benchmarks docs

bench: $(VENV)/.dev ## speed: goals and floors (ten minutes at most), then the decoder and secure sums beside what is named
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/decoder.py
	$(BIN)/python benchmarks/secure_sums.py

bench-flower: $(VENV)/.dev ## 15 SuperNodes with TLS and identities: seconds per stage, bytes, memory; then Flower's SecAgg+; then Flower alone (twenty minutes)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/flower_deployment.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/flower_secaggplus.py
	$(BIN)/python benchmarks/flower_floor.py

bench-nvflare: $(VENV)/.dev ## 15 sites of NVIDIA FLARE with TLS and identities: seconds per stage, CPU seconds, memory (two minutes)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/flare_deployment.py

reference: $(VENV)/.dev ## regenerate what docs has from the code: reference, specification, JSON schemas, dependencies
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/generate_dependencies.py

docs: $(VENV)/.docs ## build the documentation site into site/; a broken link or a page that loads from elsewhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict --clean
	$(BIN)/python docs/check_site.py site

screenshot: $(VENV)/.dev ## take docs/images/report.png again, from a real run (needs chromium)
	$(BIN)/python docs/take_screenshot.py

results: $(VENV)/.dev ## the demo over 20 seeds, and the paper's MNIST tables (these need FEDGT_DATA), into docs/results
	$(BIN)/python benchmarks/demo_rates.py
	$(BIN)/fedgt reproduce rounds --out docs/results/reproduction
	{ sed -n 1,4p docs/results/reproduction/tables.md; $(BIN)/fedgt report tables --results docs/results/reproduction; } > $(VENV)/tables.md
	mv $(VENV)/tables.md docs/results/reproduction/tables.md

dist: $(VENV)/.dev ## the wheel and the sdist into dist/; the wheel is tried on Python 3.11, 3.12 and 3.13, where they are
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	FEDGT_EVERY_PYTHON=1 $(BIN)/python -m pytest -n 0 -rs tests/integration/test_release.py

# dev.txt is made first; where it has a package, the other files take its version. `fewest` keeps one version for every Python.
UPGRADE ?=
UV := PATH="$(CURDIR)/$(BIN):$$PATH" uv
COMPILE := $(UV) pip compile --quiet --universal --fork-strategy fewest --generate-hashes --no-annotate --custom-compile-command 'make lock' $(UPGRADE)
COMPILE_AS_DEV := $(COMPILE) --constraints $(LOCK)/dev.txt --python-version

lock: ## write requirements/ again from pyproject.toml (needs uv); newer versions with UPGRADE=--upgrade or UPGRADE='--upgrade-package NAME'
	@$(UV) --version >/dev/null 2>&1 || { echo "make lock needs uv: put it on the PATH, or run \`make check\`, which installs it into $(VENV)" >&2; exit 1; }
	$(COMPILE) --python-version 3.11 pyproject.toml --extra dev -o $(LOCK)/dev.txt
	$(COMPILE_AS_DEV) 3.11 --group build -o $(LOCK)/build.txt
	$(COMPILE_AS_DEV) 3.11 pyproject.toml -o $(LOCK)/core.txt
	$(COMPILE_AS_DEV) 3.11 pyproject.toml --extra flower -o $(LOCK)/flower.txt
	$(COMPILE_AS_DEV) 3.11 pyproject.toml --extra nvflare -o $(LOCK)/nvflare.txt
	$(COMPILE_AS_DEV) 3.11 --group engines -o $(LOCK)/engines.txt
	$(COMPILE_AS_DEV) 3.11.5 pyproject.toml --extra docs -o $(LOCK)/docs.txt # mkdocs-material runs on no older 3.11

clean: ## remove the environment and caches
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
