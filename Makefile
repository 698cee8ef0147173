# make demo · make test · make lint · make down: nothing has to be typed before or after any of them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install demo test bench gain validate lint format down

# .venv may be a link (scripts/install-debian.sh says when); jobs of other users need where it really is.
PYTHON = $$(readlink -f .venv)/bin/python
# The demo and the tests run a site with users of its own: as root, else through sudo. The installation asks itself.
AS_ROOT = $(if $(filter-out 0,$(shell id -u)),sudo -n )env PYTHONPATH=testbed:demo:bench:research SLURM_TESTBED_STARTED_BY=$(CURDIR)
SHELL_SCRIPTS = $(wildcard .ci/run scripts/*.sh slurm_plugin/task_prolog simulator/rlalloc_simulator/workloads/*.sh)

help:
	@echo 'make demo    a Slurm site on this machine, and rlalloc at work on it'
	@echo 'make test    all tests'
	@echo 'make bench   what rlallocd costs slurmctld, and how long jobs wait for it (BENCH_ARGS=--quick)'
	@echo 'make gain    JCT on real sites as submitted, with price-EF and with the shipped policy (GAIN_ARGS=--quick)'
	@echo 'make validate the simulator against a real slurmctld, job by job'
	@echo 'make lint    ruff, mypy, shellcheck'
	@echo 'make format  ruff format'
	@echo 'make down    end what the demo or the tests left running'
	@echo 'make install what all of them do first: packages, .venv'

install:
	@scripts/install-debian.sh

demo: install
	@exec $(AS_ROOT) $(PYTHON) -m rlalloc_demo

test: install
	@exec $(AS_ROOT) $(PYTHON) -m pytest -q --durations=15 $(PYTEST_ARGS)

bench: install
	@exec $(AS_ROOT) $(PYTHON) -m slurm_load $(BENCH_ARGS)

gain: install
	@exec $(AS_ROOT) $(PYTHON) -m slurm_gain $(or $(GAIN_FOLDER),build/gain) $(GAIN_ARGS)

validate: install
	@exec $(AS_ROOT) $(PYTHON) -m rlalloc_validation $(or $(VALIDATION_FOLDER),build/validation) $(VALIDATION_ARGS)

lint: install
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@shellcheck $(SHELL_SCRIPTS)

format: install
	@$(PYTHON) -m ruff format .

down:
	@if [ -x .venv/bin/python ]; then exec $(AS_ROOT) $(PYTHON) -m slurm_testbed down --started-by $(CURDIR); fi
