"""A rank that is gone or silent is named by the others, which end by themselves."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.training import worlds
from tests.training.test_loop import copy_inputs
from tests.training.trainings import losses

pytestmark = pytest.mark.slow

LONG = {"strategy": "ddp", "micro_batch": 2, "max_steps": 10**6, "checkpoint_interval": 10**6,
        "validation_interval": 10**6, "log_interval": 20}  # fmt: skip
SECONDS = 3  # the collectives' limit in these tests


def run_until_step_20(root: Path, **settings) -> list:
    processes = worlds.start(root, 2, **LONG | settings)
    end = time.monotonic() + 60
    while "step=20 " not in log(root, 0):
        assert time.monotonic() < end and processes[0].is_alive(), log(root, 0)
        time.sleep(0.02)
    return processes


def log(root: Path, rank: int) -> str:
    path = root / f"rank-{rank}.log"
    return path.read_text() if path.exists() else ""


def test_a_rank_that_stops_is_named_with_its_last_step(root: Path):
    ranks = run_until_step_20(root, collective_timeout_seconds=SECONDS)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    began = time.monotonic()
    ranks[0].join(30)
    assert SECONDS <= time.monotonic() - began < SECONDS + 12
    assert worlds.finish(ranks, 0.1) == [1, None]
    message = (root / "output/failure").read_text()
    name = rf"rank 1 \(pid {ranks[1].pid} on \S+, local rank 1\)"
    found = re.match(rf"{name} fell silent for {SECONDS} s; last seen in step (\d+)", message)
    assert found and int(found[1]) > 1, message
    dump = root / "checkpoints/flight-recorder/attempt-0-rank-0.json"
    assert str(dump) in message
    collectives = [entry["profiling_name"] for entry in json.loads(dump.read_bytes())["entries"]]
    assert "gloo:all_reduce" in collectives


def test_a_rank_that_is_killed_is_told_from_a_silent_one(root: Path):
    ranks = run_until_step_20(root)
    ranks[1].kill()
    assert worlds.finish(ranks, 30) == [1, -signal.SIGKILL]
    message = (root / "output/failure").read_text()
    assert f"rank 1 (pid {ranks[1].pid} on " in message
    assert "is gone, killed or crashed; last seen in step" in message and "silent" not in message


def test_machines_with_their_own_ranks_files_only_go_on_together(root: Path, tmp_path: Path):
    """After a restart in place nothing has come back from S3: each has what its ranks wrote."""
    settings = {"strategy": "fsdp", "micro_batch": 2}
    undisturbed = losses(worlds.train(copy_inputs(root, "undisturbed"), 2, **settings))
    machines = [copy_inputs(root, f"machine-{n}") for n in range(2)]
    assert worlds.finish(worlds.start(machines, 2, **settings)) == [0, 0]
    for machine in machines:
        [newest] = machine.glob("checkpoints/*/step-00000010")
        assert len([*newest.glob("*.safetensors")]) == 1
        (newest / "complete.json").unlink()
    assert worlds.finish(worlds.start(machines, 2, **settings)) == [0, 0]
    resumed = losses(machines[0])
    assert resumed == {step: undisturbed[step] for step in range(6, 11)}
    assert "comes from rank" in log(machines[0], 0)
