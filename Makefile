# Every target sets up its own virtual environment from hashed, locked versions first.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
VENV ?= .venv
BIN := $(VENV)/bin
ENGINE ?= docker
IMAGE ?= captf-manager:v0.1.0
STAMP := $(VENV)/.installed
# Processes that share the tests: one for each processor, four at most.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n > 4 ? 4 : n)))
# Many images of Python set it, for images. Here hundreds of processes would each compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run runner test lint bench manifests lock image clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP) ## Create the virtual environment

$(STAMP): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "captf needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3" >&2; exit 2; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(STAMP) ## The tour: a cluster and two machines from apply to destroy, by real Terraform (ARGS=...)
	@$(BIN)/python -m hack.tour $(ARGS)

runner: ## The runner as one executable that needs nothing of the image it runs in (dist/captf-runner)
	@"$(PYTHON)" -m hack.runner $(ARGS)

test: $(STAMP) ## All tests that this machine can run (ARGS=... goes to pytest)
	@$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal $(ARGS)

lint: $(STAMP) ## Style, types, layers, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m hack.crds --check
	@$(BIN)/python -m hack.manifests --check
	@$(BIN)/python -m hack.reference --check
	@$(BIN)/python -m hack.acceptance --check
	@$(BIN)/python -m hack.conformance --check

bench: $(STAMP) ## Measure the figures of the design
	@$(BIN)/python -m hack.bench $(ARGS)

manifests: $(STAMP) ## Regenerate config/ and docs/reference from the code, and render it (dist/infrastructure-components.yaml, needs kubectl)
	@$(BIN)/python -m hack.crds
	@$(BIN)/python -m hack.manifests
	@$(BIN)/python -m hack.reference
	@mkdir -p dist
	@kubectl kustomize config/default >dist/infrastructure-components.yaml

image: ## The manager's image (ENGINE=docker or podman, IMAGE=repository:tag)
	$(ENGINE) build --build-arg COMMIT="$$(git rev-parse HEAD)" --tag $(IMAGE) .

lock: ## Renew requirements.txt from pyproject.toml (needs uv)
	uv pip compile pyproject.toml hack/build-requirements.in --extra test --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements.txt
	uv pip compile pyproject.toml --constraint requirements.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o hack/manager-requirements.txt
	uv pip compile hack/runner-requirements.in --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o hack/runner-requirements.txt

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
