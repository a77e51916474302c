"""The Python that stands in for container images: whether it runs, and what it lacks."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from trainyard.common.errors import EmulatorError

OWN = Path(sys.executable).absolute()  # relative where PATH is, and jobs start elsewhere
ASK = (
    "import sys; from importlib.util import find_spec\n"
    "print(*(name for name in sys.argv[1:] if not find_spec(name)))"
)


def checked(python: Path) -> Path:
    """``python`` as an absolute path; a link to an interpreter is not followed: a venv's is one.

    Raises:
        EmulatorError: it does not run.
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
    """Those of the top-level ``modules`` that ``python`` could not import, sorted."""
    command = [str(python), "-I", "-c", ASK, *sorted(modules)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
