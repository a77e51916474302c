# make run    sets itself up, then runs the main job on the emulator, and writes report.html
# make test   sets itself up, then checks the style and runs every test
# make clean  removes what runs leave: the emulator's state and report.html; make distclean also .venv
# make lock   writes locks/ anew after a change of pyproject.toml (scripts/lock.py)
PYTHON ?= python3
BIN    := .venv/bin
RECIPE ?= recipes/laptop.yaml

.PHONY: run test lock clean distclean
export PATH := $(CURDIR)/$(BIN):$(PATH)

run: .venv/run
	python -m trainyard run -- scripts/main-job.sh $(RECIPE)

test: .venv/installed
	ruff check .
	ruff format --check .
	python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Exactly what the locks say (scripts/install.py): run has what make run needs, installed the rest,
# too. Trainyard itself is not installed: a job must find the code that travels with it, and fail
# here as it would on AWS when a file is missing there; python -m finds the checkout.
# The markers come last: an interrupted installation is not taken for a whole one.
.venv/run: locks/torch.txt locks/cuda.txt locks/uv.txt locks/run.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11, 4) or sys.exit(f"Trainyard needs Python 3.11.4 or newer, {sys.executable} is {v[0]}.{v[1]}.{v[2]}; name another with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	@echo "installing into .venv: a minute and 1.6 GB, once"
	python scripts/install.py locks/run.txt
	touch $@

.venv/installed: .venv/run locks/packages.txt
	@echo "installing what only the tests need into .venv: 0.5 GB, once"
	python scripts/install.py locks/packages.txt
	touch $@

lock: .venv/run
	python -m scripts.lock $(LOCK)

clean:
	rm -rf .trainyard report.html

distclean: clean
	rm -rf .venv
