# make run    sets itself up, then runs the main job on the emulator, and writes report.html
# make test   sets itself up, then checks the style and runs every test
# make clean  removes what runs leave: the emulator's state and report.html; make distclean also .venv
PYTHON ?= python3
BIN    := .venv/bin
RECIPE ?= recipes/laptop.yaml

.PHONY: run test clean distclean
export PATH := $(CURDIR)/$(BIN):$(PATH)

run: .venv/installed
	python -m emulator -- scripts/main-job.sh $(RECIPE)

test: .venv/installed
	ruff check .
	ruff format --check .
	python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The marker comes last: an interrupted installation is not taken for a whole one.
.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Trainyard needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}; name another with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	@echo "installing into .venv: some minutes and 2 GB, once"
	python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@# Only what it depends on stays installed. A job must find the code that travels with it, and
	@# fail here as it would on AWS when a file is missing there; python -m finds the checkout.
	python -m pip uninstall --quiet --yes trainyard
	touch $@

clean:
	rm -rf .trainyard report.html

distclean: clean
	rm -rf .venv
