# make run       sets itself up, then runs the main job on the emulator, and writes report.html
# make check     sets itself up, then checks style, types and Dockerfiles and runs the quick tests
# make test      sets itself up, then checks style and types and runs every test but the sweeps: one
#                main job a workload, each step type, each family of strategies; T=tests/x runs only
#                those, whatever pytest takes
# make test-all  make test with more examples of each property, the sweeps, the training's tests under two more
#                releases of torch, and interruptions; ends with a table of what ran and what failed: hours
# make test-torch TORCH=2.8.0   the training's tests under another torch, in an environment of its own
# make site      serves the guides at http://127.0.0.1:8000 while you write
# make clean     removes what runs leave: the emulator's state and report.html; make distclean also .venv
#                and the environments of test-torch
# make image BASE=NAME   builds containers/training/Dockerfile on that base, by docker or podman
# PYTHON=/path/to/python names the Python to set up with; else it is the first on the PATH that is fit
# make lock      writes locks/ anew after a change of pyproject.toml (scripts/lock.py)
BIN    := .venv/bin
RECIPE ?= recipes/laptop.yaml
# Three on two cores: tests wait for jobs that start. (Four take a tenth more processor time, and longer.)
PYTEST := python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
# What AWS's training images have that a recipe can name: its default, and the one before.
TORCHES := 2.8.0 2.10.0

.PHONY: run image site check style test test-torch test-all lock clean distclean
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Most bytecode is not written at the installation but when a module is first imported: it must be kept.
unexport PYTHONDONTWRITEBYTECODE
# Tests make some 100,000 files, of which each costs 0.3 ms on ext4 and 0.01 ms in memory (processor's time).
ROOMY := $(shell df --output=avail -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 8000000 {print "/dev/shm"}')
ifneq ($(ROOMY),)
export PYTEST_DEBUG_TEMPROOT ?= $(ROOMY)
endif

run: .venv/run
	python -m trainyard run -- scripts/main-job.sh $(RECIPE)

image: .venv/run
	python -m scripts.build_image $(BASE)

style: .venv/installed
	ruff check .
	ruff format --check .
	pyrefly check
	hadolint containers/*/Dockerfile
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build --quiet

site: .venv/installed
	python -m mkdocs serve

check: style
	$(PYTEST) -m "not slow and not long and not sweep"

ifdef T
test: .venv/installed
	python -m pytest $(T)
else
test: style
	$(PYTEST) -m "not sweep"
endif

# Not those that the emulator runs, whose jobs are run in .venv's Python.
test-torch: .venv/installed
	$$(python scripts/torch_environment.py $(TORCH)) -m pytest -n 2 --dist loadfile tests/training -m "not emulated"

# Each part runs, whatever failed before it; a table at the end. NIGHT=--resume goes on where it was stopped.
test-all: .venv/installed
	python -m scripts.night --pytest "$(PYTEST)" --torches "$(TORCHES)" $(NIGHT)

# Workers of pytest start together, and each would compile what all of them import.
LARGE := botocore matplotlib numpy pandas pydantic sagemaker scipy sklearn sympy torch

# Exactly what the locks say (scripts/install.py): run has what make run needs, installed the rest,
# too. Trainyard itself is not installed: a job must find the code that travels with it, and fail
# here as it would on AWS when a file is missing there; python -m finds the checkout.
# The markers come last: an interrupted installation is not taken for a whole one.
.venv/run: locks/torch.txt locks/cuda.txt locks/uv.txt locks/run.txt
	python=$$(scripts/fit-python.sh "$(PYTHON)") && "$$python" -m venv .venv
	@echo "installing into .venv: a minute and 1.6 GB, once"
	python scripts/install.py locks/run.txt
	touch $@

.venv/installed: .venv/run locks/packages.txt
	@echo "installing what only the tests need into .venv: 0.5 GB, once"
	python scripts/install.py locks/packages.txt
	cd $$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  python -m compileall -q -j 0 -x '/tests/|torch/(testing/_internal|_inductor)' $(LARGE)
	touch $@

lock: .venv/run
	python -m scripts.lock $(LOCK)

clean:
	rm -rf .trainyard report.html

distclean: clean
	rm -rf .venv .venv-torch-*
