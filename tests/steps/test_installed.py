"""Tests of finding missing requirements without pip, and of the container that installs them."""

import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from pipelines.compile.compilation import collect_step_code
from steps.gate.config import PACKAGES
from steps.installed import iter_differences
from tests.conftest import CHECKOUT

NUMPY = version("numpy")
HASH = "--hash=sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("# only a comment\n\n", []),
        ("numpy\npydantic>=2.7,<3  # both are here\n", []),
        (f"numpy=={NUMPY} \\\n    {HASH} \\\n    {HASH}\n    # via scipy\n", []),
        ("numpy==999; python_version < '3'", []),
        ("numpy==999", [f"numpy {NUMPY} is installed, required is ==999"]),
        (f"numpy==999 ; python_version > '3' \\\n    {HASH}",
         [f"numpy {NUMPY} is installed, required is ==999"]),
        ("no-such-package-of-ours", ["no-such-package-of-ours is not installed, required is any"]),
        ("numpy\nno-such-package==1", ["no-such-package is not installed, required is ==1"]),
        ("numpy[extra]", ["only pip can resolve numpy[extra]"]),  # pip knows what it brings
        ("numpy @ https://example.com/numpy.whl",
         ["only pip can resolve numpy@ https://example.com/numpy.whl"]),
        ("-r other.txt", ["only pip can parse -r other.txt"]),
        ("--no-deps", ["only pip can parse --no-deps"]),
    ],
)  # fmt: skip
def test_pip_is_spared_only_when_everything_is_there(tmp_path: Path, lines: str, expected: list):
    file = tmp_path / "requirements.txt"
    file.write_text(lines)
    assert [line.replace(" @", "@") for line in iter_differences(file)] == expected


@pytest.mark.parametrize("changed", [False, True])
def test_a_container_runs_with_what_the_lock_says_or_names_what_is_not(
    tmp_path: Path, changed: bool
):
    """Pip is given no index: it could install nothing."""
    for name, content in collect_step_code(CHECKOUT, "gate", None, PACKAGES).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    locked = tmp_path / "requirements.txt"
    if changed:
        locked.write_text(locked.read_text().replace(f"numpy=={NUMPY}", "numpy==2.3.99"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    done = subprocess.run(
        ["bash", "steps/container.sh", "gate", "--help"],
        cwd=tmp_path,
        env={**environment, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (1 if changed else 0), done.stderr
    assert ("usage:" in done.stdout) is not changed
    said = [f"packages: numpy {NUMPY} is installed, required is ==2.3.99", "make .venv/installed"]
    assert [words in done.stderr for words in said] == [changed, changed]
