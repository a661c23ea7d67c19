# Every target does the set-up it needs by itself. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_LOCKED := $(VENV)/.locked-packages
RUN_STAMP := $(VENV)/.tidestaff-run
LOCKED := $(VENV)/.locked-packages-of-tests
STAMP := $(VENV)/.tidestaff-setup
IMAGE ?= tidestaff/tidestaff:dev
SOURCES := consistency connectors streaming conf tests

.PHONY: help setup run jars test audit check lint types unit bench bench-web bench-verify soak mutants explore search field sampling docs pictures image sbom chart api-server format lock fuzz clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(RUN_LOCKED): requirements.runtime.lock requirements.install.lock
	@command -v $(PYTHON) >/dev/null || { echo "tidestaff needs Python 3.11 or later: install it, or name it with 'make PYTHON=/path/to/python3'." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tidestaff needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) --version 2>&1): name another with 'make PYTHON=/path/to/python3'." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "tidestaff needs Python's venv module: install it (Debian and Ubuntu: python3-venv)." >&2; exit 1; }
	@echo "setting up $(VENV) from requirements.runtime.lock (the first time takes a minute or two)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements.runtime.lock -r requirements.install.lock
	@touch $@

# The package itself is installed apart, so that a change of pyproject.toml costs seconds.
$(RUN_STAMP): $(RUN_LOCKED) pyproject.toml
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# What only contributors need comes on top: who just runs the monitor does not wait for it.
$(LOCKED): requirements.lock $(RUN_LOCKED)
	@echo "adding what the tests need, from requirements.lock"
	@$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements.lock
	@touch $@

$(STAMP): $(LOCKED) $(RUN_STAMP)
	@touch $@

setup: $(STAMP) ## virtual environment from the lock files, package installed editable

run: $(RUN_STAMP) ## the monitor on a simulated cluster that lives through a story; Ctrl-C ends it
	@$(BIN)/tidestaff run

jars: $(RUN_STAMP) ## fetch the jars a Kafka source needs into the user's cache, ahead of time
	@$(BIN)/python -m tidestaff.streaming.jars

# Three workers for two cores: many tests wait for clusters that are real. A worker is given whole
# files, in the order of tests/conftest.py.
test: $(STAMP) lint types ## everything: lint, types, all tests
	SCREENSHOTS_DIR=dist/screenshots $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
	  --durations 25 --durations-min 10

audit: $(STAMP) ## known vulnerabilities of what is locked, or at least its hashes
	$(BIN)/python -m tests.deploy.audit

check: $(STAMP) lint types audit unit ## lint, types and the fast tests (under two minutes)

lint: $(STAMP) ## ruff: lint and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

unit: $(STAMP) ## the fast tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not spark"

bench: $(STAMP) ## measure rules engine, simulator and streaming job; writes the tables in README.md, docs/benchmarks.md and docs/scale.md
	$(BIN)/python -m tests.bench.rules_engine --write
	$(BIN)/python -m tests.bench.simulator --write
	$(BIN)/python -m tests.bench.streaming --write
	$(BIN)/python -m tests.bench.soak --partitions 10000 --minutes 8 --name latency --write

bench-web: $(STAMP) ## the page's server with 200,000 partitions, and what the page costs the job; writes its table in docs/benchmarks.md
	$(BIN)/python -m tests.bench.web --write

bench-verify: $(STAMP) ## contents compared, side by side with Kafka's tool, on a real cluster; writes its table in docs/benchmarks.md
	$(BIN)/python -m tests.bench.verify --write

soak: $(STAMP) ## twenty minutes of 20,000 partitions under faults; writes its table in docs/benchmarks.md
	$(BIN)/python -m tests.bench.soak --write

mutants: $(STAMP) ## seeded faults in the rules: each must make the suite fail
	$(BIN)/python -m tests.mutants

explore: $(STAMP) ## every reachable state of the simulator's kernel: counts as the model checker has them
	$(BIN)/python -m tests.explore

search: $(STAMP) ## random fault histories: the monitor against the simulator's own ledger
	$(BIN)/python -m tests.proof.search --safe 1000 --histories 1000 --seed 1

field: $(STAMP) ## every experiment of the field test on real clusters (hours); writes docs/field-test.md
	$(BIN)/python -m tests.field.run

sampling: $(STAMP) ## misses and false alarms by fault kind, skew and rate; writes docs/sampling.md
	$(BIN)/python -m tests.proof.sampling --quick --write

docs: $(STAMP) ## write docs/alerts.md from the catalogue, docs/metrics.md from the metrics
	$(BIN)/tidestaff rules --markdown > docs/alerts.md.tmp && mv docs/alerts.md.tmp docs/alerts.md
	$(BIN)/python -m tidestaff.streaming.metrics_table > docs/metrics.md.tmp && mv docs/metrics.md.tmp docs/metrics.md

pictures: $(STAMP) ## take the pictures in docs/images anew (needs Chromium); look at them
	$(BIN)/python -m tests.browser.pictures

image: $(STAMP) ## the container image; BASE_IMAGE=..., CLOSED=1 for a build without a network
	$(BIN)/python -m tests.deploy.image_inputs $(if $(CLOSED),--closed)
	docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) $(IMAGE_OPTIONS) --tag $(IMAGE) .

sbom: $(STAMP) ## bill of materials (CycloneDX) and licences of what is installed here, in dist
	@mkdir -p dist
	$(BIN)/python conf/image/inventory.py --sbom dist/sbom.cdx.json --licences dist/LICENCES.txt

chart: $(STAMP) ## helm/tidestaff: its README from the comments of values.yaml, its copies of rules and dashboards
	$(BIN)/python -m tests.helm.readme

# Pinned by go.mod and go.sum there; go fetches the modules as it is set up to.
API_SERVER := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidestaff/api-server/kube-apiserver
KUBERNETES = $(shell sed -nE 's,^\s+k8s.io/kubernetes (v[0-9.]+)$$,\1,p' tests/helm/apiserver/go.mod)

api-server: ## kube-apiserver by go, into the user's cache, for tests/helm/test_api_server.py (20 minutes on two cores)
	@command -v go >/dev/null || { echo "api-server: there is no go: install Go 1.24 or later; without it the test of the chart on an API server is skipped." >&2; exit 1; }
	cd tests/helm/apiserver && go build -mod=readonly \
	  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)" -o "$(API_SERVER)" .

format: $(STAMP) ## ruff: put the code into shape
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

COMPILE = $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --universal \
	  --python-version 3.11 --no-header

# The smaller locks are held to the versions of the whole one.
lock: $(STAMP) ## make the three lock files anew from pyproject.toml
	$(COMPILE) --extra dev --group install pyproject.toml -o requirements.lock
	$(COMPILE) --no-annotate -c requirements.lock pyproject.toml -o requirements.runtime.lock
	$(COMPILE) --no-annotate -c requirements.lock --group install -o requirements.install.lock

fuzz: $(STAMP) ## coverage-guided search over the decoders (a quarter of an hour); keeps its corpus in tests/fuzz/corpus
	@test -d .fuzz/atheris || $(BIN)/python -m pip install --quiet --no-deps --target .fuzz atheris==3.0.0
	PYTHONPATH=.fuzz $(BIN)/python -W ignore -m tests.fuzz

clean: ## remove what the other targets made
	rm -rf $(VENV) .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
