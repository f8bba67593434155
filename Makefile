# Thin: every target is a line or two of snakemake or pytest, and can be typed by hand in an activated environment.

PYTHON ?= python3
VENV ?= .venv
PROFILE ?= profiles/local
BIN := $(VENV)/bin
# `python` in the rules must be the environment's own.
SNAKEMAKE := PATH="$(abspath $(BIN)):$$PATH" $(abspath $(BIN))/snakemake --profile $(PROFILE)
# Parts run side by side, and no two may write one cache.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
STUDY = $(shell sed -n 's/^study: *\([^ \#]*\).*/\1/p' config/config.yaml)

.PHONY: help study bundle verify figures test test-training test-parts test-workflow test-slurm lint benchmarks cluster cluster-down config-reference lock clean

help:                    ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

study: $(VENV)/workflow $(VENV)/train ## run the default study and print its table and the report's path
	@$(SNAKEMAKE)
	@cat results/$(STUDY)/tables/summary.txt
	@echo "report: results/$(STUDY)/report.html"

bundle: $(VENV)/workflow $(VENV)/train ## pack the default study, run first if need be, into results/bundles
	@$(SNAKEMAKE) bundle

verify: $(VENV)/workflow ## make every number of a bundle anew: make verify BUNDLE=results/bundles/quickstart.zip
	@$(BIN)/python workflow/scripts/bundle.py verify $(or $(BUNDLE),results/bundles/$(STUDY).zip)

figures: $(VENV)/workflow ## draw the three figures of the published v1.1 study into results/seed
	@$(SNAKEMAKE) seed_figures

# Those on the cluster wait as much as they compute and have little time to spare: beside them runs one part at a time,
# and after them two. Each part prints at its end.
test: $(VENV)/dev        ## run every test and check; those on a Slurm cluster skip without root or its packages
	@echo "five parts; each prints at its end"
	@OMP_NUM_THREADS=1 $(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target \
	  test-slurm test-workflow test-training test-parts lint

test-training: $(VENV)/dev ## run only the tests of one part each that really train
	$(PYTEST) tests/unit -m training

test-parts: $(VENV)/dev  ## run only the tests of one part each that train nothing
	$(PYTEST) tests/unit tests/contract -m "not training" --deselect tests/contract/test_style.py

test-workflow: $(VENV)/dev ## run only the tests that run whole studies on this host
	$(PYTEST) tests/workflow

test-slurm: $(VENV)/dev  ## run only the tests that bring up a Slurm cluster (root on Debian 12)
	$(PYTEST) tests/slurm

lint: $(VENV)/dev        ## only the checks of style and types
	$(PYTEST) tests/contract/test_style.py

benchmarks: $(VENV)/workflow $(VENV)/train ## print the speed ratios; needs two idle cores
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

cluster:                 ## bring up a Slurm cluster on this machine, to try profiles/slurm with (root, Debian 12)
	@$(PYTHON) tests/slurm/cluster.py up

cluster-down:            ## take it down
	@$(PYTHON) tests/slurm/cluster.py down

config-reference: $(VENV)/dev ## write config/README.md anew from the schemas
	PYTHONPATH=workflow/scripts $(BIN)/python -c "from mlscaling.reference import config_reference as text; print(text(), end='')" \
	  > config/README.md.new && mv config/README.md.new config/README.md

lock: $(VENV)/dev        ## write envs/constraints.txt anew from what is installed
	$(BIN)/python -m pip freeze --exclude-editable | sort -f > envs/constraints.txt

clean:                   ## remove generated results; datasets and environment stay
	rm -rf results .snakemake

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of packages; a changed pin installs anew.
$(VENV)/%: envs/%.txt envs/constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $< -c envs/constraints.txt
	@touch $@
