"""The release's files: the same bytes from the same commit, whenever it is checked out."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

FILES = ("pyproject.toml", "README.md", "LICENSE", "trainyard")


def build(source: Path, date: int) -> dict[str, bytes]:
    """Return the name and bytes of sdist and wheel, of a checkout of that date."""
    for name in FILES:
        listing = ["git", "-C", str(CHECKOUT), "ls-files", "-z", name]
        listed = subprocess.run(listing, capture_output=True, check=True, text=True).stdout
        for path in filter(None, listed.split("\0")):
            target = source / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / path, target)
            os.utime(target, (date, date))
    command = ["uv", "build", "--quiet", "--out-dir", str(source / "out")]
    subprocess.run(command, cwd=source, check=True)
    return {path.name: path.read_bytes() for path in (source / "out").glob("sagemaker*")}


@pytest.mark.sweep
def test_two_builds_have_equal_bytes(tmp_path: Path):
    first = build(tmp_path / "first", 1_700_000_000)
    assert len(first) == 2 and first == build(tmp_path / "second", 1_750_000_000)
