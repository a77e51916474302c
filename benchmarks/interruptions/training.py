"""A small language model's training as real processes over gloo, and what it wrote down.

<folder>/checkpoints/<identity>/step-…   the engine's checkpoints
<folder>/losses-<n>.txt                  of the n-th start: "resumed 8", then "9 0x1.5p+2" …
<folder>/rank-<r>.log                    what rank r printed
"""

import hashlib
import json
import multiprocessing
import os
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from benchmarks.measured_process import free_ports, rank_environment
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

MODEL = {"context_length": 16, "layers": 2, "heads": 2, "dim": 64}
STEPS, INTERVAL, KEEP = 24, 4, 3
SETTINGS = {
    **{"max_steps": STEPS, "global_batch": 12, "micro_batch": 1, "precision": "float32"},
    **{"learning_rate": 0.003, "warmup_steps": 3, "log_interval": 1, "validation_interval": 8},
    **{"validation_samples": 12, "checkpoint_interval": INTERVAL, "keep_checkpoints": KEEP},
    "collective_timeout_seconds": 30,
}
PAUSE = 0.01  # seconds a step, so that there is a time to be interrupted at
BLOCK = 16384  # bytes that a checkpoint hashes at once
TIMEOUT = 120  # seconds that no training takes


@dataclass(frozen=True)
class Layout:
    """How many ranks, and what they share."""

    strategy: str
    world: int


@dataclass
class Training:
    """One training in its folder; ``start`` it, disturb it, start it again."""

    data: Path
    folder: Path
    starts: int = 0
    ranks: list[BaseProcess] = field(default_factory=list)

    def start(self, layout: Layout) -> None:
        """Start all ranks; returns at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["training.loop", "training.strategies.mesh"])
        [port] = free_ports(1)
        self.ranks = []
        for rank in range(layout.world):
            given = (self.data, self.folder, self.starts, layout, rank, port)
            self.ranks.append(context.Process(target=_rank, args=given, daemon=True))
            self.ranks[-1].start()

    def end(self) -> list[int]:
        """Wait for every rank; their exit codes."""
        limit = time.monotonic() + TIMEOUT
        for rank in self.ranks:
            rank.join(max(0.1, limit - time.monotonic()))
        codes = [rank.exitcode for rank in self.ranks]
        for rank in self.ranks:
            rank.kill()
            rank.join()
        return codes

    @property
    def running(self) -> bool:
        return all(rank.is_alive() for rank in self.ranks)

    def losses(self, start: int) -> dict[int, str]:
        """Step → loss, exactly, of the ``start``-th start."""
        return {int(step): loss for step, loss in self._lines(start) if step != "resumed"}

    def find_resumed_step(self, start: int) -> int | None:
        """The step that a start went on from; None when it did not come so far."""
        found = [int(value) for step, value in self._lines(start) if step == "resumed"]
        return found[0] if found else None

    def last_step(self) -> int:
        """How far the training has come since it was started last."""
        steps = self.losses(self.starts)
        return max(steps) if steps else self.find_resumed_step(self.starts) or 0

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("rank-*.log")))

    def _lines(self, start: int) -> list[list[str]]:
        path = self.folder / f"losses-{start}.txt"
        text = path.read_text() if path.exists() else ""
        return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]

    # checkpoints, judged without the engine

    def list_saved_folders(self) -> list[Path]:
        """Folders of checkpoints that are whole or not, oldest first."""
        return sorted(self.folder.glob("checkpoints/*/step-*"))

    def newest_whole(self) -> int:
        """Step of the newest checkpoint whose marker and files are all there and fit; or 0."""
        return max(
            (step_of(folder) for folder in self.list_saved_folders() if is_whole(folder)), default=0
        )


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def is_whole(folder: Path) -> bool:
    """Whether the marker is there and every file that it names has the named hash."""
    try:
        files = json.loads((folder / "complete.json").read_bytes())["files"]
        contents = {name: (folder / name).read_bytes() for name in files}
        hashes = {name: (folder / name).with_suffix(".sha256").read_bytes() for name in files}
    except (FileNotFoundError, ValueError):
        return False
    return all(
        hashlib.sha256(hashes[name]).hexdigest() == said["sha256"]
        and hashes[name] == _of_blocks(contents[name])
        for name, said in files.items()
    )


def _of_blocks(content: bytes) -> bytes:
    """The SHA-256 of each 16 KiB."""
    blocks = (content[n : n + BLOCK] for n in range(0, len(content), BLOCK))
    return b"".join(hashlib.sha256(block).digest() for block in blocks)


def write_data(folder: Path, seed: int) -> None:
    """Random tokens, from which something can be learned: each depends on the one before it."""
    random = np.random.default_rng(seed)
    packing = load_packing("language_model", MODEL)
    for split, count in (("train", 120), ("validation", 12)):
        rows = np.cumsum(random.integers(1, 4, (count, packing.width)), 1) % 64
        tokens = {"tokens": rows.astype(packing.dtype)}
        told = {"shard_bytes": 2000, "split": split, "workload": packing.info}
        write_dataset(folder / split, tokens, packing.fields, **told)


def _rank(data: Path, folder: Path, start: int, layout: Layout, rank: int, port: int) -> None:
    """Work of one process."""
    os.environ |= rank_environment(rank, layout.world, port)
    with (folder / f"rank-{rank}.log").open("a") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)

    from steps.job_main import run

    run(lambda: _train(data, folder, start, layout), folder / "failure")


def _train(data: Path, folder: Path, start: int, layout: Layout) -> None:
    import torch

    from training.checkpoint.checkpoints import Checkpoints
    from training.config import TrainConfig
    from training.data.dataset import Dataset
    from training.identity import build_parts, read_code_files
    from training.loop import Loop
    from training.strategies import start_strategy
    from training.workloads import load_workload

    torch.set_num_threads(1)
    config = TrainConfig.model_validate(SETTINGS | {"strategy": layout.strategy})
    train, validation = Dataset(data / "train"), Dataset(data / "validation")
    workload = load_workload("language_model", MODEL)
    code = read_code_files("language_model", Path(__file__))
    known = build_parts(config, "language_model", MODEL, code)
    name = known.model_copy(update={"data": train.fingerprint}).name
    with (
        start_strategy(config, workload) as strategy,
        (folder / f"losses-{start}.txt").open("a", buffering=1) as losses,
    ):
        checkpoints = Checkpoints(folder / "checkpoints", name, KEEP, strategy.ranks)

        def report(metrics: dict[str, float]) -> None:
            if strategy.ranks.rank == 0 and "loss" in metrics:
                losses.write(f"{metrics['step']} {metrics['loss'].hex()}\n")
            time.sleep(PAUSE)

        loop = Loop(config, workload, strategy, checkpoints, report)
        if strategy.ranks.rank == 0:
            losses.write(f"resumed {loop.step}\n")
        loop.train(train, validation)
