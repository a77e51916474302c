"""Folders that a node mounts, in namespaces of their own."""

import os
import subprocess
from pathlib import Path

import pytest

from trainyard.emulator.jobs.file_systems import cannot_be_slow
from trainyard.emulator.runtime.isolation import JOB, NODE, mounting
from trainyard.emulator.runtime.mounted_folders import Slow
from trainyard.emulator.runtime.node import Mount

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(cannot_be_slow() is not None, reason=f"FUSE: {cannot_be_slow()}"),
]
FAST = Slow(first_byte=0.0, stream=1e9, total=1e9)


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
    """A folder with links, sub-folders, an empty file and many names; ``at`` is for the mount."""
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "at").mkdir()
    for number in range(700):  # more than one answer of a listing holds
        (source / f"deep/{number:04}-{'long' * 20}").write_text(str(number))
    (source / "deep/er/big").write_bytes(os.urandom(3_000_000))
    (source / "run.sh").write_text("echo started\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("deep/er")
    (source / "broken").symlink_to("nowhere")
    return source


@pytest.mark.parametrize("slow", [None, FAST])
def test_the_tree_is_the_same_and_cannot_be_changed(tree: Path, tmp_path: Path, slow: Slow | None):
    at = tmp_path / "elsewhere"
    at.mkdir()
    mount = Mount(str(tree), str(at), True, slow)
    compared = inside(f"diff -r --exclude=broken {tree} {at} && echo same; sh {at}/run.sh", mount)
    assert compared.split() == ["same", "started"]
    may = f"test -x {at}/run.sh && echo program; test -x {at}/link/big || echo data"
    assert inside(may, mount).split() == ["program", "data"]
    assert inside(f"echo x > {at}/new; rm {at}/run.sh", mount).count("Read-only file system") == 2
    assert not any(at.iterdir())


def test_a_folder_that_holds_its_own_mount_does_not_wait_for_itself(tree: Path):
    at = tree / "at"
    assert inside(f"ls {at}/at; cat {at}/run.sh", Mount(str(tree), str(at), True, FAST)) == (
        "echo started\n"
    )


def test_it_answers_until_the_job_has_ended_whatever_sigterm_ends(tree: Path):
    mount = Mount(str(tree), str(tree / "at"), True, FAST)
    assert inside(f"kill -TERM -1; cat {tree}/at/run.sh", mount) == "echo started\n"
