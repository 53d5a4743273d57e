BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PYTHON := $(BIN)/python
VERSION ?= 3.12
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 12))'

export PIP_DEFAULT_TIMEOUT ?= 60
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
export UV_HTTP_TIMEOUT ?= 60

# pytest-xdist runs one process per core, so each keeps to one thread.
ONE_THREAD := env -u PYTENSOR_FLAGS OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.NOTPARALLEL:
.PHONY: help demo test test-slow test-full-size test-newest lint docs bench bench-release dist check-extras check-release clean venv

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s%s\n", $$1, $$2 }' Makefile

demo: install-examples ## Which planes are late? Real flights, exact draws beside rivals.
	$(PYTHON) examples/flights.py --full --output figures

test: install-test ## Run the tests, without the long ones.
	$(ONE_THREAD) $(PYTHON) -m pytest -n 2 -m "not slow and not full_size" tests

test-slow: install-test ## Run the long tests.
	$(ONE_THREAD) $(PYTHON) -m pytest -n 2 -m "slow and not full_size" tests

test-full-size: install-test ## Run the experiments at the size of the papers.
	$(ONE_THREAD) $(PYTHON) -m pytest -n 2 -m "full_size" tests

TESTS ?= tests

test-newest: ## Run the tests with the newest PyMC, PyTensor and numba, in build/newest.
	mkdir -p build
	printf '%s>=0a0\n' pymc pytensor numba > build/newest.txt
	uv venv --clear --python $(VERSION) build/newest
	uv pip install --python build/newest --prerelease allow --overrides build/newest.txt -e ".[test]"
	uv pip list --python build/newest
	$(ONE_THREAD) build/newest/bin/python -m pytest -n 2 $(TESTS)

bench: install-test ## Run the benchmarks.
	env -u PYTENSOR_FLAGS $(PYTHON) -m pytest --benchmark-enable -m "" tests/benchmarks

bench-release: install-test ## Time this tree beside the last release, or BASE=COMMIT, and keep the ratios.
	$(ONE_THREAD) $(PYTHON) -m tests.benchmarks.over_time $(if $(BASE),--base $(BASE))

lint: install-lint ## Check style, types, import floors and spelling.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

# How notebooks are run: cache, or off, which only checks that all pages can be built.
EXECUTE ?= cache

docs: install-docs ## Build the documentation in build/docs.
	$(ONE_THREAD) $(PYTHON) -m sphinx -W --keep-going -q -D nb_execution_mode=$(EXECUTE) \
		docs build/docs

dist: install-test ## Build sdist and wheel in dist.
	rm -rf dist
	$(PYTHON) -m hatchling build -d dist

check-extras: dist ## Install the files of dist, and each extra alone, in empty environments, and use them.
	$(ONE_THREAD) DIST=$(CURDIR)/dist $(PYTHON) -m pytest -m full_size tests/distribution

check-release: ## Check that TAG is the version, that it has a date, and that no placeholder is left.
	grep -x '__version__ = "$(TAG:v%=%)"' pymc_austerity/_version.py
	grep '^## \[$(TAG:v%=%)\] - 20' CHANGELOG.md
	! grep -n 'example[.]org' pyproject.toml SECURITY.md

clean: ## Delete .venv, caches and outputs.
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .benchmarks \
		.hypothesis build dist figures docs/reference/generated docs/_notebooks *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installs the package with an extra, again only if pyproject.toml is newer than the stamp.
install-%: venv
	@if ! [ .venv/.installed-$* -nt pyproject.toml ]; then \
		if uv --version >/dev/null 2>&1; then \
			uv pip install --python $(PYTHON) -e ".[$*]"; \
		else \
			$(PYTHON) -m pip install -e ".[$*]"; \
		fi && touch .venv/.installed-$*; \
	fi

# Keeps a .venv that works, replaces one that does not.
venv:
	@if [ -f .venv/pyvenv.cfg ] && $(PYTHON) $(NEW_ENOUGH) 2>/dev/null && { uv --version \
		|| $(PYTHON) -m pip --version || $(PYTHON) -m ensurepip; } >/dev/null 2>&1; \
		then exit 0; fi; \
	if uv --version >/dev/null 2>&1; then \
		rm -rf .venv; \
		if uv venv --python $(VERSION) .venv; then exit 0; fi; \
	fi; \
	for python in python3.12 python3; do \
		if $$python $(NEW_ENOUGH) 2>/dev/null; then \
			rm -rf .venv; \
			exec $$python -m venv .venv; \
		fi; \
	done; \
	found=$$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null) \
		|| found="no python3"; \
	echo "Python >= 3.12 needed, found $$found" >&2; \
	exit 1
