# Two commands for a newcomer: `make demo` and `make test`. Plain pip and venv, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# torch first and alone: whatever depends on it then takes the version that is already there.
TORCH  ?= torch==2.13.0
TEST_EXTRAS := cli,interchange,verify,models,scattering,tables,onnx,torch,sampling,audit,federated,cluster,report,explore,docs,browser,dev

# A file of locked versions: all of them are installed first, by their hashes.
LOCK ?=
ISOLATION := $(if $(LOCK),--no-build-isolation)

# Heavy frameworks of other people, in an environment of their own: `make test` must stay quick.
INTEGRATIONS       ?= .venv-integrations
INTEGRATION_EXTRAS := cli,verify,models,torch,report,jax,lightning,transformers,mlflow,cluster,spark,notebooks,dev

# Libraries that people come from, whose requirements contradict ours: one environment each.
PEERS ?= .venv-peers
PEER_ENVIRONMENTS := diffprivlib jax_privacy tensorflow_privacy
diffprivlib        := "diffprivlib>=0.6.5,<0.7" "scikit-learn<1.8"
jax_privacy        := "jax_privacy>=2,<3"
tensorflow_privacy := "tensorflow-privacy>=0.9,<0.10" "tensorflow>=2.15,<2.16"

.PHONY: demo test test-all test-integrations fuzz bench papers docs lint chromium java lock clean

$(BIN)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(if $(LOCK),$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement $(LOCK))
	$(BIN)/python -m pip install --quiet $(ISOLATION) --editable ".[cli,models,verify,report]"
	@touch $@

$(BIN)/.test: $(BIN)/.core
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet $(ISOLATION) --editable ".[$(TEST_EXTRAS)]"
	@touch $@

# Notebooks are executed in a kernel, which only `make docs` needs.
$(BIN)/.docs: $(BIN)/.test
	$(BIN)/python -m pip install --quiet --editable ".[$(TEST_EXTRAS),notebooks]"
	@touch $@

# Triton's interpreter runs the GPU kernels on a processor; it is a gigabyte, so only here.
$(BIN)/.all: $(BIN)/.test
	$(BIN)/python -m pip install --quiet --editable ".[$(TEST_EXTRAS),kernels]"
	@touch $@

demo: $(BIN)/.core
	@mkdir -p build && rm -rf build/demo
	$(BIN)/lastiterate demo --out build/demo

lint: $(BIN)/.test
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/python scripts/budgets.py
	$(BIN)/mypy

chromium:
	@scripts/install-chromium

java:
	@scripts/install-java

# -rs: what cannot be imported here (tests/integrations, GPUs) is skipped, and named.
test: lint chromium
	$(BIN)/python -m pytest -n 2 -rs -m "not slow and not fuzz"

test-all: lint chromium $(BIN)/.all
	$(BIN)/python -m pytest -n 2

$(INTEGRATIONS)/.made: pyproject.toml
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet --upgrade pip
	$(INTEGRATIONS)/bin/python -m pip install --quiet "$(TORCH)"
	$(INTEGRATIONS)/bin/python -m pip install --quiet --editable ".[$(INTEGRATION_EXTRAS)]"
	@touch $@

# TF Privacy has no release for Python 3.12 and newer: there its environment stays empty.
$(PEERS)/%/.made: Makefile
	$(PYTHON) -m venv $(PEERS)/$*
	@if [ $* = tensorflow_privacy ] && $(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 12))"; then \
	  echo "tensorflow_privacy: not for this Python"; \
	else $(PEERS)/$*/bin/python -m pip install --quiet $($*); fi
	@touch $@

# Here nothing of tests/integrations may be skipped: whatever is missing is an error.
test-integrations: export LASTITERATE_INTEGRATIONS = 1
test-integrations: export LASTITERATE_PEERS = $(abspath $(PEERS))
test-integrations: java $(INTEGRATIONS)/.made $(PEER_ENVIRONMENTS:%=$(PEERS)/%/.made)
	$(INTEGRATIONS)/bin/python -m pytest -rs tests/integrations \
	  "tests/docs/test_code_blocks.py::test_page[docs/how-to/frameworks.md]" \
	  "tests/docs/test_code_blocks.py::test_page[docs/how-to/jax.md]" \
	  "tests/docs/test_code_blocks.py::test_page[docs/how-to/publishing.md]"

fuzz: $(BIN)/.test
	$(BIN)/python -m pytest -n 2 -m fuzz

bench: $(BIN)/.test
	$(BIN)/python -m benchmarks

# Every statement of the five papers evaluated, every figure drawn; no GPU, minutes.
papers: $(BIN)/.test
	$(BIN)/python docs/generate/papers.py build/papers

# Strict: a broken link, a missing anchor or any other warning is an error. Reads nothing from outside.
docs: $(BIN)/.docs
	$(BIN)/python docs/generate build/docs
	$(BIN)/python -m zensical build --strict
	@echo "Open site/index.html: all of it works from the disk, the search too."

# The exact files that the tests ran with: LOCK=requirements-dev.lock make test
lock: $(BIN)/.test
	$(BIN)/python scripts/lock.py requirements-dev.lock

clean:
	rm -rf $(VENV) $(INTEGRATIONS) $(PEERS) build dist site .cache *.egg-info
