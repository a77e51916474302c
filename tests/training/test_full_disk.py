"""A full disk ends the training with the file, what it needs, what is free, and what to do."""

import ctypes
import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.training import worlds

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode
        != 0,
        reason="a small file system needs namespaces of the user's own",
    ),
]

TRACE = {"profile_steps": 5, "profile_at": 2}
NEW_USER, NEW_MOUNTS, PRIVATE = 0x10000000, 0x00020000, (1 << 18) | (1 << 14)


def run_in_little_room(small: str, size: str, given, environment, root: Path, rank: int) -> None:
    """Run a rank that alone sees a small file system at ``small``, as after ``unshare -rm``."""
    libc, user, group = ctypes.CDLL(None), os.getuid(), os.getgid()
    assert libc.unshare(NEW_USER | NEW_MOUNTS) == 0
    maps = {"uid_map": f"0 {user} 1", "setgroups": "deny", "gid_map": f"0 {group} 1"}
    for name, content in maps.items():
        Path("/proc/self", name).write_text(content)
    assert libc.mount(b"none", b"/", None, PRIVATE, None) == 0
    options = (b"none", bytes(root / small), b"tmpfs", 0, f"size={size}".encode())
    assert libc.mount(*options) == 0
    worlds.run_rank(given, environment, root, rank)


def train(root: Path, small: str, size: str, **settings) -> str:
    """Train in one process, with a small file system at ``small``; return what it printed."""
    (root / small).mkdir(parents=True, exist_ok=True)
    target = partial(run_in_little_room, small, size)
    codes = worlds.finish(worlds.start(root, 1, target=target, strategy="single", **settings))
    printed = (root / "rank-0.log").read_text()
    assert codes == [1] and "Traceback" not in printed, printed
    return printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "size", "settings", "file", "needed"),
    [
        ("checkpoints", "16k", {}, r"checkpoints/.*/shard-00001-\S+\.safetensors", True),
        ("checkpoints", "8k", {}, r"checkpoints/\w+/history\.jsonl", True),
        ("model", "8k", {}, r"model/code/\S+", False),
        ("output/data", "8k", TRACE, r"output/data/profile/steps-2-6\.json\.gz", False),
    ],
)
def test_the_reason_of_the_failure_says_which_file_and_what_to_do(
    root: Path, small: str, size: str, settings: dict, file: str, needed: bool
):
    train(root, small, size, **settings)
    reason = (root / "output/failure").read_text()
    sizes = (r"[\d,]+ bytes are needed, " if needed else "") + r"[\d,]+ are free"
    assert re.search(
        rf"{root}/{file}: cannot be written: No space left on device: {sizes}; "
        r"delete what is not needed there, or use a larger volume \(a recipe's volume_gb\)",
        reason,
    ), reason


@pytest.mark.slow
def test_what_has_no_room_for_its_reason_either_prints_both(root: Path):
    said = train(root, "output", "8k", **TRACE)
    assert "error: " in said and "steps-2-6.json.gz: cannot be written" in said
    assert f"error: {root}/output/failure: cannot be written: No space left" in said
