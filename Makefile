# One entry point for people and CI. `make demo` and `make test` need Python >= 3.11, make and a package registry; nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

SEED ?=
WORLDS ?= 300
MINUTES ?= 10

.PHONY: sim hunt chaos install demo test check fix test-system test-torch bench bench-peers lock schema docs clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Trainmaster needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8'
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --no-deps -e .
	$(BIN)/python -m compileall -q trainmaster  # a command must feel instant the first time, too
	@touch $@

demo: install
	@$(BIN)/python examples/demo/demo.py

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -p no:randomly tests/test_tidy.py

test: check
	$(BIN)/python -m pytest -q tests/core tests/spec --cov --cov-report=term-missing:skip-covered
	$(BIN)/python -m pytest -q -n 2 -m "not system and not torch" tests --ignore=tests/core --ignore=tests/spec --ignore=tests/test_tidy.py

test-system: install
	tests/system/install.sh
	$(BIN)/python -m pytest -q -m system tests

# Examples with PyTorch, in an environment of their own: it is large, and nobody else needs it.
test-torch: install
	test -x .torch-venv/bin/python || $(PYTHON) -m venv .torch-venv
	.torch-venv/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
	TORCH_VENV=$(CURDIR)/.torch-venv $(BIN)/python -m pytest -q -m torch tests/examples

fix: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# One world told in full: make sim SEED=4711. Many: make sim WORLDS=1000.
sim: install
	@$(BIN)/python -m trainmaster.testing.sim $(if $(SEED),--seed $(SEED),--worlds $(WORLDS))

# On and on, from where the last hunt ended; Ctrl-C shows the table.
hunt: install
	@$(BIN)/python -m trainmaster.testing.sim --hunt

# Real processes, a real S3 server, and attacks on all of them; as root a small disk is filled, too. make chaos MINUTES=1 SEED=7
chaos: install
	@$(BIN)/python -m trainmaster.testing.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: install
	$(BIN)/python -m compileall -q trainmaster
	$(BIN)/python -m bench

bench-peers:
	$(PYTHON) bench/peers.py install

schema: install
	$(BIN)/python -m trainmaster.testing.generate

lock:
	$(BIN)/uv pip compile pyproject.toml --group dev --extra gpu --generate-hashes --universal --no-header --no-emit-index-url -o requirements.lock

clean:
	rm -rf $(VENV)
