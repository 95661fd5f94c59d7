# Two commands for a newcomer: `make demo` and `make test`. Plain pip and venv, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# torch first and alone: whatever depends on it then takes the version that is already there.
TORCH  ?= torch==2.13.0
TEST_EXTRAS := cli,verify,models,torch,sampling,audit,federated,cluster,report,explore,docs,browser,dev

.PHONY: demo test test-all fuzz bench lint clean

$(BIN)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[cli,models,verify]"
	@touch $@

$(BIN)/.test: $(BIN)/.core
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[$(TEST_EXTRAS)]"
	@touch $@

demo: $(BIN)/.core
	$(BIN)/lastiterate demo

lint: $(BIN)/.test
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow and not fuzz"

test-all: lint
	$(BIN)/python -m pytest -n 2

fuzz: $(BIN)/.test
	$(BIN)/python -m pytest -n 2 -m fuzz

bench: $(BIN)/.test
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info
