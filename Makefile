# Tradewind: two commands do everything on a fresh machine (Linux, Python 3.11+, git, make):
#   make demo    the main job: a three-site grid, real Envoy, traffic, faults, a live page, a summary
#   make test    the whole suite

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Needs no Envoy and hardly waits, so `make test` runs it beside the live tests, which mostly wait.
BESIDE := tests/unit tests/property tests/golden tests/sim tests/contract tests/epp

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench soak fuzz verify clean docs proto gate lock peers test-real-engine acceptance

help: ## this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F':.*?## ' '{printf "  make %-18s %s\n", $$1, $$2}'

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tradewind needs Python 3.11 or newer; try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV) (about a minute, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

setup: $(READY) ## create the virtual environment

demo: $(READY) ## the main job, about three minutes (round robin beside it); ARGS="--keep" leaves it running
	$(BIN)/tradewind demo $(ARGS)

test: $(READY) ## style, types, layers and the whole suite
	@mkdir -p build
	@nice -n 5 $(MAKE) --no-print-directory check > build/check.log 2>&1 & check=$$!; \
	  $(BIN)/pytest tests $(BESIDE:%=--ignore=%); live=$$?; \
	  wait $$check; pure=$$?; cat build/check.log; exit $$((live || pure))

check: $(READY) ## the part without Envoy: style, types, layers, and all tests that need none
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest $(BESIDE) $(ARGS)

bench: $(READY) ## speed and memory, also to build/bench.json
	$(BIN)/python -m benchmarks $(ARGS)

soak: $(READY) ## five minutes of engines killed every two seconds, with the first-token gate and without; ARGS="--for 60 --seed 2"
	$(BIN)/python -m tradewind.lab.soak $(ARGS)

fuzz: $(READY) ## the request parser and the gate under generated and, with atheris installed, guided input; ARGS=SECONDS
	$(BIN)/python -m tests.fuzz $(ARGS)

verify: $(READY) ## every promise in full, a table and build/verify.json
	$(BIN)/python -m tradewind.lab.verify $(ARGS)

peers: $(READY) ## other routers into build/peers, for `tradewind lab run peers --live`; ARGS="smg vllm-router"
	$(BIN)/python -m tradewind.lab.peers.install $(ARGS)

test-real-engine: $(READY) ## the engine contract against two real vLLM (CPU build; skipped where it cannot be installed)
	@$(BIN)/python -m tests.real_engine.install; case $$? in 77) exit 0;; 0) ;; *) exit 1;; esac; \
	  $(BIN)/pytest -m real_engine tests/contract tests/real_engine $(ARGS)

acceptance: $(READY) ## aiperf and guidellm beside our load client on the live grid (several GB, once; skipped where they cannot be installed); ARGS="--only aiperf"
	$(BIN)/python -m tradewind.lab.acceptance.run $(ARGS)

docs: $(READY) ## write docs/reference again from the code
	TRADEWIND_REWRITE=1 $(BIN)/pytest tests/unit/cli/test_reference.py tests/integration/test_reference.py

proto: $(READY) ## regenerate src/tradewind/wire/pb from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=src/tradewind/wire/pb --pyi_out=src/tradewind/wire/pb proto/tradewind.proto proto/accesslog.proto

gate: $(READY) ## build the first-token gate again (needs clang-14 and lld-14)
	$(BIN)/python -m tradewind.xds.gate.build

lock: $(READY) ## pin requirements.in and requirements-dev.in again, with hashes
	$(BIN)/pip-compile -q --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header -o requirements.txt requirements.in
	$(BIN)/pip-compile -q --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header -o requirements-dev.txt requirements-dev.in

clean: ## remove what make made
	rm -rf $(VENV) build dist run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
