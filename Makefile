# Two commands matter: `make study` (the main job) and `make test` (lint, types, tests).
# Both set up what they need in .venv from nothing but Python 3.11+, pip and make.

PYTHON ?= python3
RUN ?= runs/study
MINUTES ?= 8

.PHONY: study test bench docs lint setup setup-dev clean

study: .venv/installed
	.venv/bin/wherefrom study --out $(RUN) --minutes $(MINUTES) --resume

test: lint
	.venv/bin/python -m pytest -n 2

# the quick side-by-side set; the long rows are commands of their own, see benchmarks/
bench: .venv/installed-dev
	.venv/bin/python benchmarks/bench.py

# the docs as a site in site/, which opens from disk
docs: .venv/installed-docs
	.venv/bin/mkdocs build --strict

lint: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

setup: .venv/installed

setup-dev: .venv/installed-dev

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Wherefrom needs Python 3.11 or newer; name one with make PYTHON=...")'
	$(PYTHON) -m venv .venv

# torch first and alone: its pinned release decides which build of it is taken
.venv/installed: pyproject.toml .venv/bin/python
	.venv/bin/python -m pip install --quiet --upgrade pip
	.venv/bin/python -m pip install --quiet torch==2.13.0
	.venv/bin/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: .venv/installed
	.venv/bin/python -m pip install --quiet --editable '.[dev]'
	touch $@

.venv/installed-docs: .venv/installed
	.venv/bin/python -m pip install --quiet --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info
