# make demo   install into .venv, obtain the default model, measure three workloads with and without speculation
# make test   install what development needs, then run every check and every test
# A second run installs nothing; an interrupted installation is begun again.

PYTHON ?= python3
VENV   ?= .venv
PIP_INSTALL_FLAGS ?=

SHELL := /bin/bash
ENGINE_STAMP := $(VENV)/.installed-engine
DEV_STAMP    := $(VENV)/.installed-dev

.PHONY: demo test check format docs clean

demo: $(ENGINE_STAMP)
	@$(VENV)/bin/draftproof demo

test: check
	@PYTHON=$(VENV)/bin/python scripts/test

check: $(DEV_STAMP)
	@PYTHON=$(VENV)/bin/python scripts/check

format: $(DEV_STAMP)
	@$(VENV)/bin/ruff check --fix src tests benchmarks && $(VENV)/bin/ruff format src tests benchmarks

docs: $(DEV_STAMP)
	@$(VENV)/bin/python -m draftproof.cli.docs

$(DEV_STAMP): pyproject.toml constraints.txt scripts/install
	@PYTHON="$(PYTHON)" scripts/install "$(VENV)" dev $(PIP_INSTALL_FLAGS)
	@touch $(ENGINE_STAMP) $(DEV_STAMP)

$(ENGINE_STAMP): pyproject.toml constraints.txt scripts/install
	@PYTHON="$(PYTHON)" scripts/install "$(VENV)" engine $(PIP_INSTALL_FLAGS)
	@touch $(ENGINE_STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
