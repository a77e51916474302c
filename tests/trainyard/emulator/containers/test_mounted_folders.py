"""Folders that a node mounts, in namespaces of their own."""

import os
import subprocess
from pathlib import Path

import pytest

from trainyard.emulator.containers.isolation import (
    JOB,
    NODE,
    mounting,
    namespaces_unavailable_reason,
)
from trainyard.emulator.containers.node import Mount

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        namespaces_unavailable_reason() is not None,
        reason=f"namespaces: {namespaces_unavailable_reason()}",
    ),
]


def inside(script: str, *mounts: Mount) -> str:
    """Return what bash prints where the folders are mounted."""
    command = [*JOB, "--fork", "--kill-child=SIGKILL", "--", *NODE, *mounting(mounts)]
    done = subprocess.run(
        [*command, "/bin/bash", "-c", script],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with links, sub-folders and a program."""
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "deep/er/big").write_bytes(os.urandom(3000))
    (source / "run.sh").write_text("echo started\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("deep/er")
    (source / "broken").symlink_to("nowhere")
    return source


def test_the_tree_is_the_same_and_cannot_be_changed(tree: Path, tmp_path: Path):
    at = tmp_path / "elsewhere"
    at.mkdir()
    mount = Mount(str(tree), str(at), True)
    compared = inside(f"diff -r --exclude=broken {tree} {at} && echo same; sh {at}/run.sh", mount)
    assert compared.split() == ["same", "started"]
    may = f"test -x {at}/run.sh && echo program; test -x {at}/link/big || echo data"
    assert inside(may, mount).split() == ["program", "data"]
    assert inside(f"echo x > {at}/new; rm {at}/run.sh", mount).count("Read-only file system") == 2
    assert not any(at.iterdir())
