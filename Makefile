# Needs Python 3.11 or newer with venv, git and make. Everything is installed into .venv of this checkout.

PYTHON ?= python3
# Test processes, and more arguments for pytest: make test WORKERS=2 ARGS='-k cancel'
# Arguments of chaos: make chaos ARGS='--tasks 1000 --seed 7'
WORKERS ?= 4
ARGS ?=
PYTEST ?= python -m pytest

VENV := .venv
BIN := $(VENV)/bin

# Python stores what it has compiled, also where the environment forbids it: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
# Schedules that `make stress` tries, and the seed of a run that is to be repeated: make stress SCHEDULES=100 SEED=7
SCHEDULES ?= 2000
SEED ?=
# Rounds of load of all kinds: make stress ROUNDS=12000 ARGS='-k mixed_load' takes about an hour
ROUNDS ?=

.PHONY: help demo test slow cover core newest stress fuzz chaos interop lint docs pictures package bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## Serve an agent and talk to it with the official A2A client; no API key needed
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev ## Run the tests, without the slow ones
	$(BIN)/$(PYTEST) -n $(WORKERS) --dist worksteal -m 'not slow' $(ARGS)

slow: $(VENV)/.installed-dev ## Run the slow tests: engines, killed processes, browsers, official clients, all examples of the documentation
	$(BIN)/$(PYTEST) -n $(WORKERS) --dist worksteal -m slow $(ARGS)

cover: $(VENV)/.installed-dev ## Run all tests and their long forms, measure branch coverage, and fail below 100 %
	@$(BIN)/coverage erase
	@$(MAKE) test slow PYTEST='coverage run -m pytest'
	@$(MAKE) stress PYTEST='coverage run -m pytest' SCHEDULES=30 SEED=14
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

core: $(VENV)/.installed-dev ## Run the core of the tests on a newer Python, if one is here, and on the lowest versions of dependencies
	@WORKERS=$(WORKERS) bash .ci/core

newest: $(VENV)/.installed-dev ## Run all tests on the newest Pydantic AI and FastA2A, also on versions that are not allowed yet
	@bash .ci/newest -n $(WORKERS) --dist worksteal $(ARGS)

stress: $(VENV)/.installed-dev ## Run the long forms of tests, and many schedules of crashes, frozen processes and set clocks
	STRESS=1 HOSTILE_EXAMPLES=$(SCHEDULES) MIXED_ROUNDS=$(ROUNDS) $(BIN)/$(PYTEST) -n $(WORKERS) --dist worksteal -m 'hypothesis or long' \
		$(if $(SEED),--hypothesis-seed=$(SEED)) $(ARGS)

fuzz: $(VENV)/.installed-dev ## Send ten thousand hostile requests each way, and have two callers do all they can for long
	FUZZ=1 $(BIN)/python -m pytest -n $(WORKERS) \
		tests/behaviour/wire/test_fuzz.py tests/behaviour/auth/test_owner_isolation.py tests/server/grpc/test_fuzz.py $(ARGS)

chaos: $(VENV)/.installed-dev ## Kill and stop processes and databases under load, and see that nothing is lost
	@$(BIN)/python -m tests.chaos $(ARGS)

interop: $(VENV)/.installed-dev ## Run A2A clients and servers of other frameworks, and write what users see into the docs
	@$(BIN)/python -m interop $(ARGS)

lint: $(VENV)/.installed-dev ## Check style, format, types, imports and security
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive pydantic_ai_a2a
	$(BIN)/python -m tests.docs.types
	@$(BIN)/python -m tests.words
	@$(BIN)/python -m tests.audit
	@$(BIN)/python -m tests.measure

docs: $(VENV)/.installed-docs ## Build the documentation into site/
	DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(VENV)/.installed-dev ## Make the pictures of the documentation from the scenarios of tests
	$(BIN)/python -m tests.playground.pictures
	$(BIN)/python -m tests.playground.moving
	$(BIN)/python -m tests.playground.moving_inbox
	$(BIN)/python -m tests.commands.pictures

package: $(VENV)/.installed-dev ## Build the wheel and the source archive into dist/, and check what they contain
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist
	@$(BIN)/python -m tests.package

bench: $(VENV)/.installed-dev ## Measure all costs beside a hand-written route; some minutes with ARGS=--quick
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove .venv and everything else that these targets made
	rm -rf $(VENV) .interop site dist htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .import_linter_cache .grimp_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of pyproject.toml; a changed pyproject.toml installs again.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo 'Installing the "$*" dependencies into $(VENV) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@# It demands the Pydantic AI of its own release, and works with others.
	@if [ '$*' = dev ]; then $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'pydantic-evals>=2.62'; fi
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo '"$(PYTHON)" is not Python 3.11 or newer; name one that is: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo '"$(PYTHON)" lacks the venv module; install it (Debian, Ubuntu: python3-venv) or set PYTHON=' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
