# tinyrl. Every target first sets .venv up, once: `make` alone lists the targets.
#   make lab ARGS=--no-browser      extra arguments for the command behind a target
#   make test PYTHON=python3.12     another interpreter for .venv
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make lab
#                                   Linux: the CPU build of torch, 2 GB less to fetch

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PY := $(BIN)/python
# The stamp's name holds the folder: a venv does not survive a move, so it is made again.
STAMP := $(VENV)/installed-$(firstword $(shell pwd | cksum))
SUITABLE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && echo $$p && break; done)

PEERS := trl verl  # each in an environment of its own: they want different transformers

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Nearly every test starts processes that import torch: three times as long without bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help lab test science bench peers kill-matrix notebooks checkpoints lint lock chromium \
	clean
help:
	@sed -n 's/^\([a-z-]*\):.*## */\1\t/p' Makefile | expand -t 14

lab: export JUPYTER_CONFIG_PATH := $(CURDIR)/.jupyter
lab: $(STAMP) ## JupyterLab on the course
	$(PY) -m jupyterlab $(ARGS)

test: $(STAMP) chromium ## all tests but the slow claims: one seed
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

science: $(STAMP) ## every claim of every notebook, on five seeds
	$(PY) -m pytest -m science $(ARGS)

bench: $(STAMP) ## speed against transformers, verl and TRL, of the panel, of notebooks
	$(PY) -m benchmarks $(ARGS)

peers: $(PEERS:%=.peers/%/installed) ## TRL and verl, each in .peers/, for the tests that compare

kill-matrix: $(STAMP) ## the checks against known wrong and right answers
	$(PY) -m tinyrl.course.checking.kill_matrix $(ARGS)

notebooks: $(STAMP) ## build notebooks/ and labs/ from their sources
	$(PY) -m tinyrl.course.authoring.build $(ARGS)

checkpoints: $(STAMP) ## train the shipped checkpoint again
	$(PY) -m tinyrl.checkpoints $(ARGS)

lint: $(STAMP) ## ruff and mypy
	$(PY) -m ruff check src tests
	$(PY) -m ruff format --check src tests
	$(PY) -m mypy

lock: $(STAMP) ## resolve requirements.lock again; ARGS=--upgrade for newer pins
	$(PY) -m pip install --quiet uv
	$(PY) -m uv pip compile pyproject.toml --universal --all-extras --no-annotate \
		--custom-compile-command "make lock" -o requirements.lock $(ARGS)

chromium: # what the browser test drives; where it cannot be set up, that test is skipped
	@command -v chromium chromium-browser google-chrome >/dev/null && exit 0; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null || exit 0; \
	echo "installing Debian's chromium for the browser test"; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update && apt-get install -y --no-install-recommends chromium; } \
		>/dev/null 2>&1 </dev/null || echo "chromium could not be installed"

clean: ## remove .venv and everything built
	rm -rf $(VENV) .peers build dist artifacts classroom src/*.egg-info \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis .jupyter/workspaces

$(STAMP): pyproject.toml requirements.lock $(if $(wildcard $(PY)),,no-python)
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(SUITABLE)' || { echo "tinyrl needs Python" \
		"3.11 to 3.14; $(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>&1)." \
		"Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting $(VENV) up, only this once: about 1.8 GB, minutes on a slow line."
	@test -e $@ && test -x $(PY) || $(PYTHON) -m venv --clear $(VENV) || { echo "No" \
		"$(VENV): is this folder writable? On Debian: apt install python3-venv" >&2; exit 1; }
	$(PY) -m pip install --disable-pip-version-check --no-compile \
		-c requirements.lock -e '.[lab,dev]'
	@touch $@

.peers/%/installed: peers/%.txt
	@echo "Setting .peers/$* up, only this once: about 2 GB, minutes on a slow line."
	$(PYTHON) -m venv --clear .peers/$*
	.peers/$*/bin/python -m pip install --disable-pip-version-check -q --no-compile -c peers/$*.txt $*
	@touch $@

.PHONY: no-python
no-python:
