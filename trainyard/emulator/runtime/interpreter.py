"""The Python that replaces container images: whether it runs, and which modules it lacks."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from trainyard.common.errors import EmulatorError

OWN = Path(sys.executable).absolute()  # may be relative; jobs start elsewhere
_FIND = """
import os, sys
from importlib.util import find_spec
specs = {name: find_spec(name) for name in sys.argv[1:]}
print(*(name for name, spec in specs.items() if not spec))
files = {name: spec.cached for name, spec in specs.items() if spec}
print(*(name for name, file in files.items() if file and not os.path.exists(file)))
"""


def checked(python: Path) -> Path:
    """Return ``python`` as an absolute path. Links are not followed: a venv's interpreter is one.

    Raises:
        EmulatorError: the interpreter does not run.
    """
    path = python.expanduser().absolute()
    if path == OWN:
        return path
    try:
        subprocess.run([path, "-I", "-c", ""], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as failure:
        raise EmulatorError(
            f"--python {python}: expected a Python interpreter, but it does not run: {failure}"
        ) from None
    return path


def lacking(python: Path, modules: Iterable[str]) -> list[str]:
    """Return those of the top-level ``modules`` that ``python`` cannot import, sorted."""
    return find_modules(python, modules)[0]


def find_modules(python: Path, modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which of the top-level ``modules`` are missing, and which have no bytecode; sorted."""
    command = [str(python), "-I", "-c", _FIND, *sorted(modules)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    missing, uncompiled = done.stdout.splitlines()
    return missing.split(), uncompiled.split()
