# Needs Python 3.11 or newer with venv, git and make. Everything is installed into .venv of this checkout.

PYTHON ?= python3
# Test processes, and more arguments for pytest: make test WORKERS=4 ARGS='-k cancel'
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test lint docs bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## Serve an agent and talk to it with the official A2A client; no API key needed
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev ## Run all tests and measure branch coverage
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) $(ARGS)
	@$(BIN)/coverage combine --quiet

lint: $(VENV)/.installed-dev ## Check style, format, types and imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed-docs ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-dev ## Measure throughput and streaming beside a hand-written route
	$(BIN)/python benchmarks/run.py

clean: ## Remove .venv and everything else that these targets made
	rm -rf $(VENV) site dist htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of pyproject.toml; a changed pyproject.toml installs again.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo 'Installing the "$*" dependencies into $(VENV) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo '"$(PYTHON)" is not Python 3.11 or newer; name one that is: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo '"$(PYTHON)" lacks the venv module; install it (Debian, Ubuntu: python3-venv) or set PYTHON=' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
