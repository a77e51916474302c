"""A full disk ends the training with the file, what it needs, what is free, and what to do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.trainings import CHECKOUT, TOYS, arguments

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode
        != 0,
        reason="a small file system needs namespaces of the user's own",
    ),
]

MOUNT = 'mount -t tmpfs -o "size=$1" none "$2" && shift 2 && exec "$@"'
TRACE = {"profile_steps": 5, "profile_at": 2}


def train(root: Path, small: str, size: str, **settings) -> str:
    """Train in one process, with a small file system at ``small``; return what it printed."""
    (root / small).mkdir(parents=True, exist_ok=True)
    given = arguments(root, {"strategy": "single"} | settings)
    job = [sys.executable, "-m", "steps.train.job", *given]
    within = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", size, str(root / small)]
    environment = os.environ | {"PYTHONPATH": f"{CHECKOUT}:{TOYS}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*within, *job], env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


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
        r"delete what is not needed there, or take a larger volume \(a recipe's volume_gb\)",
        reason,
    ), reason


@pytest.mark.slow
def test_what_has_no_room_for_its_reason_either_prints_both(root: Path):
    said = train(root, "output", "8k", **TRACE)
    assert "error: " in said and "steps-2-6.json.gz: cannot be written" in said
    assert f"error: {root}/output/failure: cannot be written: No space left" in said
