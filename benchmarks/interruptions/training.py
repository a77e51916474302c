"""A small language model's training as processes over gloo, and the files that it writes.

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

from benchmarks.measured_process import find_free_ports, make_rank_env
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
    """A strategy, and the number of its ranks."""

    strategy: str
    world: int


@dataclass
class Training:
    """A training in its folder, which can be interrupted and started again."""

    data: Path
    folder: Path
    starts: int = 0
    ranks: list[BaseProcess] = field(default_factory=list)

    def start(self, layout: Layout) -> None:
        """Start all ranks without waiting for them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["training.loop", "training.strategies.mesh"])
        [port] = find_free_ports(1)
        self.ranks = []
        for rank in range(layout.world):
            given = (self.data, self.folder, self.starts, layout, rank, port)
            self.ranks.append(context.Process(target=_run_rank, args=given, daemon=True))
            self.ranks[-1].start()

    def wait_for_end(self) -> list[int]:
        """Wait for every rank; return the exit codes."""
        limit = time.monotonic() + TIMEOUT
        for rank in self.ranks:
            rank.join(max(0.1, limit - time.monotonic()))
        codes = [rank.exitcode for rank in self.ranks]
        for rank in self.ranks:
            rank.kill()
            rank.join()
        return codes

    @property
    def is_running(self) -> bool:
        return all(rank.is_alive() for rank in self.ranks)

    def read_losses(self, start: int) -> dict[int, str]:
        """Return step → loss, as an exact hexadecimal, of the ``start``-th start."""
        return {int(step): loss for step, loss in self._read_lines(start) if step != "resumed"}

    def find_resumed_step(self, start: int) -> int | None:
        """Return the step that a start resumed from; None if it did not come so far."""
        found = [int(value) for step, value in self._read_lines(start) if step == "resumed"]
        return found[0] if found else None

    def last_step(self) -> int:
        """Return the last step that the newest start has reached."""
        steps = self.read_losses(self.starts)
        return max(steps) if steps else self.find_resumed_step(self.starts) or 0

    def read_log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("rank-*.log")))

    def _read_lines(self, start: int) -> list[list[str]]:
        path = self.folder / f"losses-{start}.txt"
        text = path.read_text() if path.exists() else ""
        return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]

    # checkpoints, judged without the engine

    def list_saved_folders(self) -> list[Path]:
        """Return the folders of checkpoints, complete or not, oldest first."""
        return sorted(self.folder.glob("checkpoints/*/step-*"))

    def newest_whole(self) -> int:
        """Return the step of the newest checkpoint that ``is_whole``; 0 without one."""
        return max(map(parse_step, filter(is_whole, self.list_saved_folders())), default=0)


def parse_step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def is_whole(folder: Path) -> bool:
    """Return whether the marker exists and every file that it names has the named hash."""
    try:
        files = json.loads((folder / "complete.json").read_bytes())["files"]
        contents = {name: (folder / name).read_bytes() for name in files}
        hashes = {name: (folder / name).with_suffix(".sha256").read_bytes() for name in files}
    except (FileNotFoundError, ValueError):
        return False
    return all(
        hashlib.sha256(hashes[name]).hexdigest() == entry["sha256"]
        and hashes[name] == _hash_blocks(contents[name])
        for name, entry in files.items()
    )


def _hash_blocks(content: bytes) -> bytes:
    """Return the SHA-256 digests of all blocks of 16 KiB, one after the other."""
    blocks = (content[n : n + BLOCK] for n in range(0, len(content), BLOCK))
    return b"".join(hashlib.sha256(block).digest() for block in blocks)


def write_data(folder: Path, seed: int) -> None:
    """Write random tokens that can be learned: each depends on the one before it."""
    random = np.random.default_rng(seed)
    packing = load_packing("language_model", MODEL)
    for split, count in (("train", 120), ("validation", 12)):
        rows = np.cumsum(random.integers(1, 4, (count, packing.width)), 1) % 64
        tokens = {"tokens": rows.astype(packing.dtype)}
        options = {"shard_bytes": 2000, "split": split, "workload": packing.info}
        write_dataset(folder / split, tokens, packing.fields, **options)


def _run_rank(data: Path, folder: Path, start: int, layout: Layout, rank: int, port: int) -> None:
    """Run one rank of the training in this process, with its output in the rank's log."""
    os.environ |= make_rank_env(rank, layout.world, port)
    with (folder / f"rank-{rank}.log").open("a") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)

    from steps.job_main import run

    run(lambda: _train_rank(data, folder, start, layout), folder / "failure")


def _train_rank(data: Path, folder: Path, start: int, layout: Layout) -> None:
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
