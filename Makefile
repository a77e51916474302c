# make run    sets itself up, then runs the main job on the emulator, and writes report.html
# make test   sets itself up, then checks the style and runs every test
# make clean  removes what runs leave: the emulator's state and report.html; make distclean also .venv
# make lock   writes locks/ anew after a change of pyproject.toml (scripts/lock.py)
PYTHON ?= python3
BIN    := .venv/bin
RECIPE ?= recipes/laptop.yaml
PIP    := python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes

.PHONY: run test lock clean distclean
export PATH := $(CURDIR)/$(BIN):$(PATH)

run: .venv/installed
	python -m trainyard run -- scripts/main-job.sh $(RECIPE)

test: .venv/installed
	ruff check .
	ruff format --check .
	python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Exactly what the lock says, so nothing is resolved; pip check has the last word. Of torch's builds
# pip takes the one that it likes best, if the lock has it (told the hashes first, it would like the
# index's better than one in a folder, --find-links); that one says whether it needs CUDA.
# Trainyard itself is not installed: a job must find the code that travels with it, and fail here as
# it would on AWS when a file is missing there; python -m finds the checkout.
# The marker comes last: an interrupted installation is not taken for a whole one.
.venv/installed: locks/torch.txt locks/packages.txt locks/cuda.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Trainyard needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}; name another with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	@echo "installing into .venv: some minutes and 2.5 GB, once"
	@python -m pip download --quiet --disable-pip-version-check --no-deps --dest .venv/torch \
		"$$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' locks/torch.txt)"
	$(PIP) --no-index --find-links .venv/torch -r locks/torch.txt && rm -r .venv/torch
	$(PIP) -r locks/packages.txt
	@if python -c 'from importlib.metadata import requires; import sys; sys.exit(not any(r.startswith("nvidia-") for r in requires("torch")))'; then \
		echo "this torch is for CUDA: 4 GB more (docs/running.md: how to get the one for the CPU)"; \
		$(PIP) -r locks/cuda.txt; fi
	python -m pip check
	touch $@

# uv resolves for every platform at once, which pip does not.
lock: .venv/installed
	python -m venv .trainyard/uv
	.trainyard/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	PATH="$(CURDIR)/.trainyard/uv/bin:$$PATH" .venv/bin/python -m scripts.lock $(LOCK)

clean:
	rm -rf .trainyard report.html

distclean: clean
	rm -rf .venv
