"""Tests that make uses a fitting Python on the PATH, or says how to get one."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

SCRIPT = CHECKOUT / "scripts/fit-python.sh"
OLD = "exit 1"  # an older one, or pyenv's name for a version that is not chosen
BARE = 'case "$2" in *ensurepip*) exit 1 ;; esac'  # Debian's without python3-venv


def choose_python(
    folder: Path, pythons: dict[str, str], *named: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with only ``pythons`` (name → what it runs) on the PATH; return its output."""
    for name, script in pythons.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    command = ["/bin/sh", SCRIPT, *named]
    environment = {"PATH": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pythons", "named", "fit", "apt"),
    [
        ({"python3": "", "python3.13": ""}, [], "python3", None),
        ({"python3": OLD, "python3.13": OLD, "python3.12": "", "python3.11": ""}, [],
         "python3.12", None),
        ({"python3": BARE, "python3.11": ""}, [], "python3.11", None),
        ({"python3": "", "mine": ""}, ["mine"], "mine", None),
        ({}, [], None, None),
        ({"python3": OLD, "python3.12": BARE}, [], None, "apt install python3.12-venv"),
        ({"python3": "", "mine": OLD}, ["mine"], None, None),
    ],
    ids=["python3 first", "too old", "without venv", "PYTHON wins", "none", "one without venv",
         "PYTHON is not fit"],
)  # fmt: skip
def test_the_first_that_is_fit_is_taken_or_it_says_how_to_get_one(
    tmp_path: Path, pythons, named, fit, apt
):
    done = choose_python(tmp_path, pythons, *named)
    assert done.stdout.split() == ([fit] if fit else [])
    if not fit:
        assert done.returncode == 1
        assert 'uv python install 3.12 && make run PYTHON="$(uv python find 3.12)"' in done.stderr
        assert apt in done.stderr if apt else "apt" not in done.stderr


def test_this_python_is_fit_and_the_least_version_is_the_project_s():
    command = ["/bin/sh", SCRIPT, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sys.executable
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    [least] = re.findall(r"version_info < \((\d+), (\d+)\)", SCRIPT.read_text())
    assert project["requires-python"] == f">={'.'.join(least)}"
