# Everything a contributor runs. On a fresh machine `make demo` and `make test` need only Python and
# make; what else they need they install into .venv, or name.
# PYTHON=/path/to/python chooses the interpreter that .venv is made with.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Says every few seconds that an installation is still at it, and what went wrong.
TALK := tests/setup/talk.py
CANDIDATES := $(or $(PYTHON),python3 python python3.13 python3.12 python3.11 python3.14)
SOURCES := kafka_keyshared examples tests

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo demo-audit kafka check test lint types suites parts mutants planted faults coverage docs format simulate soak verify wheel clean

# An environment names its own directory in its scripts: a copied or moved checkout needs a new one.
ifneq ($(wildcard $(VENV)/.made-in),)
ifneq ($(shell cat $(VENV)/.made-in),$(CURDIR))
$(shell rm -rf $(VENV))
endif
endif

help: ## List the tasks
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
	  while IFS='|' read -r task text; do printf '%-14s %s\n' "$$task" "$$text"; done

demo: $(VENV)/.installed ## Run a year of flights through an embedded cluster and judge the result
	@$(BIN)/keyshared demo

demo-audit: $(VENV)/.installed-test ## Run the demo, and prove with Spark that it kept its promises
	@$(BIN)/python -m kafka_keyshared.spark.jars >/dev/null
	@rm -rf build/demo-audit
	@$(BIN)/keyshared demo --audit-log build/demo-audit/log
	@$(BIN)/keyshared spark audit build/demo-audit/log --out build/demo-audit

kafka: $(VENV)/.installed ## Start a real Apache Kafka on this machine (needs Java and, once, Maven)
	@$(BIN)/python tests/setup/parts.py kafka
	@$(BIN)/python -m kafka_keyshared.testing.clusters.broker

test: parts lint types suites ## Lint, check the types and run every suite

check: lint types ## What is quick: lint, types, and the suites that need Python alone
	@KEYSHARED_SEEDS=$(or $(KEYSHARED_SEEDS),0.05) $(BIN)/python tests/setup/suites.py unit property tidy

lint: $(VENV)/.installed-test ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test ## Check the types, strictly
	@# The seed: what mypy infers for a lambda among bound methods hangs on the order of its own sets, so
	@# that the same code passed on most runs and failed on one.
	PYTHONHASHSEED=0 $(BIN)/mypy

suites: $(VENV)/.installed-test parts ## Run every test suite, side by side (K=… picks tests by name)
	@$(BIN)/python tests/setup/suites.py $(if $(K),-k '$(K)')

parts: $(VENV)/.installed-test # What the suites need besides Python
	@$(BIN)/python tests/setup/parts.py suites

planted: $(VENV)/.installed-test ## Plant the faults that such systems have had, and see each caught
	@$(BIN)/python -m tests.setup.planted $(if $(WRITE),--write)

faults: $(VENV)/.installed-test ## Measure what each kind of fault costs by itself, in made-up time
	@$(BIN)/python -m tests.setup.faults

coverage: $(VENV)/.installed-test parts ## Measure what the tests reach of each module
	@$(BIN)/python tests/setup/covered.py

mutants: $(VENV)/.installed-test ## Plant faults, one at a time, and see the tests catch each (K=… picks, MATRIX=1 names all that do)
	$(BIN)/python -m tests.setup.mutants $(if $(K),-k '$(K)') $(if $(MATRIX),--matrix)

docs: $(VENV)/.installed-test ## Write the generated pages and build the documents into build/site
	@$(BIN)/python tests/setup/cli_page.py
	@$(BIN)/python tests/setup/config_page.py
	@$(BIN)/python tests/setup/states_page.py
	@$(BIN)/python tests/setup/modes_page.py
	@$(BIN)/python tests/setup/python_page.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

format: $(VENV)/.installed-test ## Rewrite the sources in the agreed format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

simulate: $(VENV)/.installed ## Two thousand seeds of the whole system in made-up time (SEEDS=… STEPS=… FIRST=…)
	@$(BIN)/keyshared simulate --seeds $(or $(SEEDS),2000) --steps $(or $(STEPS),800) \
	  --first $(or $(FIRST),1)

soak: $(VENV)/.installed-test ## Ten minutes of every fault, judged (MINUTES=20 SEED=7 and more)
	@$(BIN)/python tests/setup/parts.py kafka
	@$(BIN)/python -m tests.chaos.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(PROTOCOL),--protocol $(PROTOCOL)) $(if $(BROKERS),--brokers $(BROKERS))

verify: $(VENV)/.installed-test parts ## Take the full measurements (long)
	$(BIN)/python tests/benchmarks/verify.py

wheel: $(VENV)/.installed ## Build the wheel into dist/
	@rm -rf build # a module that is gone from the sources would live on in it
	$(PIP) --quiet wheel --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build

clean: ## Remove everything that these tasks made, .venv included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# A Python that can make an environment by itself goes before one that needs uv or virtualenv.
$(VENV)/.made-in:
	@for question in --makes-venv --usable; do \
	  for python in $(CANDIDATES); do \
	    if "$$python" tests/setup/make_venv.py $$question >/dev/null 2>&1; then \
	      "$$python" $(TALK) 'Making an environment in $(VENV)' \
	        "$$python" tests/setup/make_venv.py $(VENV) && printf '%s' '$(CURDIR)' > $@; exit; \
	    fi; \
	  done; \
	done; \
	echo "no Python 3.11 to 3.14 among: $(CANDIDATES); install the package python3" >&2; exit 2

# Without build isolation pip needs no network once everything is there, and the build tool is the
# one in constraints.txt.
$(VENV)/.installed: $(VENV)/.made-in pyproject.toml constraints.txt
	@$(BIN)/python $(TALK) 'Installing the build tool' $(PIP) install --constraint constraints.txt setuptools
	@$(BIN)/python $(TALK) 'Installing the package and its command line' \
	  $(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[cli]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@$(BIN)/python $(TALK) 'Installing what the tests need' \
	  $(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[cli,spark,peers,test]'
	@touch $@
