"""The Python that replaces container images: whether it runs, and which packages it has."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.image_packages import InstalledPackage

OWN_PYTHON = Path(sys.executable).absolute()  # may be relative; jobs start elsewhere
_FIND = """
import os, sys
from importlib.util import find_spec
specs = {name: find_spec(name) for name in sys.argv[1:]}
print(*(name for name, spec in specs.items() if not spec))
files = {name: spec.cached for name, spec in specs.items() if spec}
print(*(name for name, file in files.items() if file and not os.path.exists(file)))
"""

_VERSIONS = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, distribution
found = {}
for name in sys.argv[1:]:
    try:
        package = distribution(name)
    except PackageNotFoundError:
        continue
    top = (package.read_text("top_level.txt") or "").split()
    top = top or sorted({file.parts[0].partition(".")[0] for file in package.files or ()})
    found[name] = [package.version, top]
print(json.dumps([platform.python_version(), found]))
"""


def check_python(python: Path) -> Path:
    """Return ``python`` as an absolute path.

    Raises:
        EmulatorError: the interpreter does not run.
    """
    # Links are not followed: a venv's interpreter is one.
    path = python.expanduser().absolute()
    if path == OWN_PYTHON:
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
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    missing, uncompiled_modules = process.stdout.splitlines()
    return missing.split(), uncompiled_modules.split()


def installed_packages(
    python: Path, packages: Iterable[str]
) -> tuple[str, dict[str, InstalledPackage]]:
    """Return the interpreter's version, and what it has of the packages."""
    command = [str(python), "-I", "-c", _VERSIONS, *sorted(packages)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    version, versions = json.loads(process.stdout)
    return version, {
        name: InstalledPackage(own_version, tuple(top))
        for name, (own_version, top) in versions.items()
    }
