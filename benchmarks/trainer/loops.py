"""Run the scripts of examples/llama as processes: start as torchrun does, kill, read losses."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import CHECKOUT
from benchmarks.measured_process import find_free_ports

EXAMPLES = CHECKOUT / "examples/llama"
STEP = re.compile(r"^\{'loss': |^step=")
SECONDS = 300
MICRO = 4
"""Samples of a rank in a micro-batch."""


@dataclass(frozen=True)
class Loop:
    """One of the example scripts."""

    name: str
    script: str
    dropout: bool = True
    """Whether its checkpoints hold the state of torch's random numbers."""

    def make_arguments(self, steps: int, save: int, checkpoints: Path) -> list[str]:
        given = [f"--max_steps={steps}", f"--save_steps={save}"]
        if self.script != "with_trainer.py":
            return [*given, f"--micro_batch={MICRO}", f"--checkpoints={checkpoints}"]
        given += [f"--per_device_train_batch_size={MICRO}", f"--output_dir={checkpoints}"]
        return [*given, "--logging_steps=1", "--use_cpu=True"]


LOOPS = (
    Loop("Trainer", "with_trainer.py"),
    Loop("Accelerate", "with_accelerate.py"),
    Loop("Lightning", "with_lightning.py", dropout=False),
)


class LoopFailed(Exception):
    """A script ended with an error; the message has the end of its log."""


def run_script(
    script: str, arguments: Sequence[str], data: Path, out: Path, world: int, stop: int = 0
) -> int:
    """Run a script to its end, or kill all its processes at most 50 ms after ``stop`` steps.

    Return how many steps were made.

    Raises:
        LoopFailed: it failed by itself, or took longer than five minutes.
    """
    out.mkdir(parents=True, exist_ok=True)
    log, began, steps = out / "log.txt", time.monotonic(), 0
    with log.open("a") as file, _start_script(script, arguments, data, out, world, file) as process:
        assert process.stdout
        for line in process.stdout:
            file.write(line)
            steps += bool(STEP.match(line))
            if (stop and steps >= stop) or time.monotonic() - began > SECONDS:
                time.sleep(random.random() / 20)
                os.killpg(process.pid, signal.SIGKILL)
                break
        process.wait(SECONDS)
    if process.returncode and not (stop and steps >= stop):
        raise LoopFailed(f"{script}: {log.read_text()[-2000:]}")
    return steps


def _start_script(
    script: str, arguments: Sequence[str], data: Path, out: Path, world: int, errors: object
) -> subprocess.Popen:
    [port] = find_free_ports(1)
    ranks = [f"--nproc_per_node={world}", "--master_addr=127.0.0.1", f"--master_port={port}"]
    environment = os.environ | {
        "PYTHONPATH": str(CHECKOUT),
        "SM_CHANNEL_TRAIN": str(data / "train"),
        "SM_MODEL_DIR": str(out / "model"),
        "SM_OUTPUT_DATA_DIR": str(out / "output"),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }
    launched = ["-m", "torch.distributed.run", *ranks] if world > 1 else []
    command = [sys.executable, *launched, str(EXAMPLES / script), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors,
                            text=True, start_new_session=True)  # fmt: skip


def train_with_kills(
    loop: Loop, data: Path, out: Path, world: int, steps: int, save: int, kills: int, *extra: str
) -> list[int]:
    """Train with ``kills`` kills at random steps; return how many steps each killed start made.

    Raises:
        LoopFailed: a start began anew instead of going on from a checkpoint.
    """
    arguments = [*loop.make_arguments(steps, save, out / "checkpoints"), *extra]
    most = steps // (kills + 1)
    chosen = [random.randint(save + 1, most) for _ in range(kills)]
    for stop in chosen:
        run_script(loop.script, arguments, data, out, world, stop)
    left = run_script(loop.script, arguments, data, out, world)
    if not 0 < left <= steps - kills:  # each start made and saved a step at least
        raise LoopFailed(f"{loop.name}: the last start made {left} of {steps} steps")
    return chosen


def is_same_model(one: Path, other: Path) -> bool:
    """Return whether the final weights in two folders are the same, bit for bit."""
    files = [out / "model/model.safetensors" for out in (one, other)]
    return files[0].read_bytes() == files[1].read_bytes()


def read_trainer_losses(out: Path) -> dict[int, float]:
    """Return step → exact loss, from the Trainer's last checkpoint."""
    states = (out / "checkpoints").glob("checkpoint-*/trainer_state.json")
    last = max(states, key=lambda path: int(path.parent.name.rpartition("-")[2]))
    history = json.loads(last.read_text())["log_history"]
    return {line["step"]: line["loss"] for line in history if "loss" in line}
