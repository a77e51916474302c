"""Install and run each system that docs/frameworks.md refuses: does it still fail as said?

python -m benchmarks.frameworks [NAME …] [--scratch FOLDER]

A probe is a file in ``probes/``: its packages (``# packages:``, pip's words), and a program that
prints ``works`` or fails. The packages go into a folder of their own, beside this Python's torch
and NumPy; ``# with: dependencies`` gets an environment of its own. Horovod compiles for many
minutes; TensorFlow takes 1.5 GB. Exits with 1 when a probe ends otherwise than its file says
(``# ends:``).
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import show_table
from trainyard.terminal import run

PROBES = Path(__file__).with_name("probes")
SECONDS = 3600
_FIELD = re.compile(r"^# (packages|ends|with|environment): ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Probe:
    """One system: how it is installed, and how its program is known to end."""

    path: Path
    packages: Sequence[str]
    ends: str
    """A part of the last lines that it prints."""

    alone: bool
    """Whether it gets an environment with all its dependencies."""

    environment: dict[str, str]


def read(path: Path) -> Probe:
    """The probe of a file; its head is comments ``# name: value``."""
    said = dict(_FIELD.findall(path.read_text(encoding="utf-8")))
    settings = dict(pair.split("=", 1) for pair in said.get("environment", "").split())
    alone = said.get("with") == "dependencies"
    return Probe(path, said["packages"].split(), said["ends"], alone, settings)


def ended(probe: Probe, folder: Path) -> str:
    """All that the installation printed where it failed, else all that the program printed."""
    python, environment = sys.executable, os.environ | probe.environment
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if probe.alone:
        subprocess.run([python, "-m", "venv", folder], check=True)
        python = str(folder / "bin/python")
    else:
        pip += ["--no-deps", "--no-build-isolation", "--target", str(folder)]
        environment["PYTHONPATH"] = str(folder)
    installed = _said([python, *pip, *probe.packages], environment)
    if installed.returncode:
        return installed.stdout
    return _said([python, "-P", str(probe.path)], environment).stdout  # its name is its subject


def _said(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    joined = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, env=environment, timeout=SECONDS, check=False, **joined)


def last_line(text: str) -> str:
    """What an error says: the last line that is not empty, without the name of a rank."""
    lines = [line for line in text.splitlines() if line.strip()] or ["(nothing)"]
    return re.sub(r"^\[rank\d+\]: ", "", lines[-1].strip())


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of probes; all without.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Install there, and leave it.")] = None,
) -> None:
    """Install and run the probes, and compare how they end with what their files say."""
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        for path in sorted(PROBES.glob("*.py")):
            if names and path.stem not in names:
                continue
            probe = read(path)
            folder = (scratch or Path(temporary)).resolve() / path.stem
            said = ended(probe, folder)
            right = probe.ends in said
            wrong += not right
            shown = probe.ends if right else last_line(said)
            rows.append((path.stem, " ".join(probe.packages), shown, "yes" if right else "NO"))
    show_table(("system", "packages", "ends with", "as its file says"), rows)
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    run(main)
