# make demo · make test · make test-fast · make lint · make down: nothing has to be typed before or after any of them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install vllm demo test coverage test-fast test-research test-alerts test-packages bench gain validate floor soak nightly nightly-floor nightly-soak research week docs lint format down deb rpm wheels lock

# .venv may be a link (scripts/install-debian.sh says when); jobs of other users need where it really is.
PYTHON = $$(readlink -f .venv)/bin/python
# The demo and the tests run a site with users of its own: as root, else through sudo. The installation asks itself.
AS_ROOT = $(if $(filter-out 0,$(shell id -u)),sudo -n )env PYTHONPATH=testbed:demo:bench:research SLURM_TESTBED_STARTED_BY=$(CURDIR)
SHELL_SCRIPTS = $(wildcard .ci/run scripts/*.sh packages/package_steps $(wildcard debian/*.p*inst debian/*.p*rm debian/p*-of-*) slurm_plugin/task_prolog slurm_plugin/task_epilog slurm_plugin/mark_node simulator/rlalloc_simulator/workloads/*.sh)

help:
	@echo 'make demo          a Slurm site on this machine, and rlalloc at work on it'
	@echo 'make test          all tests'
	@echo 'make coverage      all tests, and how much of each package they run'
	@echo 'make test-fast     those without Slurm and systemd that take no long training'
	@echo 'make test-packages the tests of the packages with all their libraries, PyTorch too'
	@echo 'make test-research those of the tables and ablations in research/, which make test leaves out'
	@echo 'make test-alerts   each failure on a real site, with a real Prometheus: which alerts fire'
	@echo 'make bench         what rlallocd costs slurmctld, and how long jobs wait for it (BENCH_ARGS=--quick)'
	@echo 'make gain          JCT on real sites as submitted, with price-EF and with the shipped policy (GAIN_ARGS=--quick)'
	@echo 'make validate      the simulator against a real slurmctld, job by job'
	@echo 'make floor         what completes without rlalloc completes with it: 500 random submissions on twin sites'
	@echo 'make soak          no job waits for its size alone: 1,000 jobs on twin sites, with maintenance and drained nodes'
	@echo 'make nightly       floor and soak with the date as the seed, into build/nightly: for cron'
	@echo 'make research      a table or an ablation of a paper; without RESEARCH_ARGS it lists them (research/README.md)'
	@echo 'make week          a site in a container for a week: installed, used, broken, upgraded, removed (build/week/week.md)'
	@echo 'make docs          the documentation as a site in build/site'
	@echo 'make deb           Debian packages in build/packages (WHEELS=folder: without a network)'
	@echo 'make rpm           RPMs of the same files'
	@echo 'make wheels        the folder of wheels for make deb, build/wheels (WHEELS=folder)'
	@echo 'make lock          renews packages/lock: the versions of all Python libraries in the packages'
	@echo 'make lint          ruff, mypy, shellcheck'
	@echo 'make format        ruff format'
	@echo 'make down          end what the demo or the tests left running'
	@echo 'make install       what all of them do first: packages, .venv'

install:
	@scripts/install-debian.sh

demo: install
	@exec $(AS_ROOT) $(PYTHON) -m rlalloc_demo

# Six workers on any machine: tests on sites wait for Slurm most of the time. tests/worker_groups.py orders the tests.
# One thread each: the networks of the tests are small, and the threads of six workers would wait for one another.
ALL_TESTS = OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q -n 6 --dist loadgroup --no-loadscope-reorder --durations=30

# Three tests of etc/examples need vLLM.
vllm: install
	@scripts/install-vllm.sh || echo 'make: vLLM cannot be installed, so the tests that serve with it are skipped' >&2

test: vllm
	@exec $(AS_ROOT) $(ALL_TESTS) $(PYTEST_ARGS)

coverage: vllm
	@exec $(AS_ROOT) $(ALL_TESTS) --cov --cov-report= $(PYTEST_ARGS)

test-fast: install
	@exec $(AS_ROOT) $(PYTHON) -m pytest -q -n 2 -m 'not slurm and not systemd and not slow and not research and not alerts' $(PYTEST_ARGS)

test-alerts: install
	@exec $(AS_ROOT) $(PYTHON) -m pytest -q -s -m "alerts or slurm" tests/alerts $(PYTEST_ARGS)

test-research: install
	@exec $(AS_ROOT) $(PYTHON) -m pytest -q -m research $(PYTEST_ARGS)

bench: install
	@exec $(AS_ROOT) $(PYTHON) -m slurm_load $(BENCH_ARGS)

gain: install
	@exec $(AS_ROOT) $(PYTHON) -m slurm_gain $(or $(GAIN_FOLDER),build/gain) $(GAIN_ARGS)

validate: install
	@exec $(AS_ROOT) $(PYTHON) -m rlalloc_validation $(or $(VALIDATION_FOLDER),build/validation) $(VALIDATION_ARGS)

floor soak: install
	@exec $(AS_ROOT) $(PYTHON) -m rlalloc_twins.twin_command $@ $(or $(TWINS_FOLDER),build/$@) $(TWINS_ARGS)

# Another draw each night; the second runs whatever the first finds. The folder of a night stays, for --recorded.
NIGHT := $(shell date +%Y%m%d)
nightly: install
	@$(MAKE) --keep-going nightly-floor nightly-soak

nightly-floor nightly-soak: nightly-%:
	@$(MAKE) $* TWINS_FOLDER=build/nightly/$(NIGHT)/$* TWINS_ARGS='--seed $(NIGHT) $(TWINS_ARGS)'

research: install
	@PYTHONPATH=research exec $(PYTHON) -m rlalloc_research $(or $(RESEARCH_ARGS),--help)

week: install
	@scripts/build-packages.sh deb $(if $(WHEELS),--wheels '$(WHEELS)') --compression gzip
	@exec $(AS_ROOT) RLALLOC_WEEK=whole RLALLOC_TEST_LIBRARIES=build/packages $(PYTHON) -m pytest -q -s tests/systemd/test_week.py tests/systemd/test_retraining_under_systemd.py

# The reference pages, man pages and completions follow from the code; tests/docs fails where the committed ones are old.
docs: install
	@$(PYTHON) scripts/render_reference.py
	@$(PYTHON) scripts/render_manual.py
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

lint: install
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@shellcheck $(SHELL_SCRIPTS)

# They need no .venv: a machine that builds packages has what scripts/build-packages.sh names.
deb rpm:
	@scripts/build-packages.sh $@ $(if $(WHEELS),--wheels '$(WHEELS)') $(PACKAGE_ARGS)

wheels:
	@scripts/build-packages.sh wheels $(if $(WHEELS),--wheels '$(WHEELS)')

test-packages: install
	@scripts/build-packages.sh deb $(if $(WHEELS),--wheels '$(WHEELS)') --compression gzip
	@lintian --fail-on error build/packages/*.deb
	@exec $(AS_ROOT) RLALLOC_TEST_PACKAGES=yes RLALLOC_TEST_LIBRARIES=build/packages $(PYTHON) -m pytest -q tests/systemd/test_packages_under_systemd.py tests/systemd/test_rpms_under_systemd.py $(PYTEST_ARGS)

lock: install
	@$(PYTHON) scripts/lock_requirements.py

format: install
	@$(PYTHON) -m ruff format .

down:
	@if [ -x .venv/bin/python ]; then exec $(AS_ROOT) $(PYTHON) -m slurm_testbed down --started-by $(CURDIR); fi
