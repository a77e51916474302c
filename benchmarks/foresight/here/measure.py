"""Runs settings as real trainings: CPU seconds a step and peak memory of all their ranks."""

import json
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.foresight.here.rank import train
from benchmarks.foresight.here.settings import Here
from training.data.writer import write_dataset
from training.workloads import load_packing
from trainyard.common import whole_file

SPEED = 5e10
"""Operations a CPU second, about, to choose how many steps are made: two seconds' worth."""

WARM = 3
"""Steps that are not counted: memory is taken, kernels are chosen."""

IMPORTED = ("benchmarks.foresight.here.rank", "training.loop", "training.strategies.mesh")
SAMPLES = 512
SECONDS = 600


def steps(setting: Here) -> int:
    """How many are made; the fewest leave six that count."""
    return WARM + max(6, min(12, round(2 * SPEED / setting.operations)))


def measure(settings: Sequence[Here], file: Path, at_once: int = 1) -> None:
    """Append to ``file`` what it lacks of ``settings``, measured, ``at_once`` of them at a time.

    Raises:
        RuntimeError: a rank failed; with the end of its log.
    """
    known = recorded(file)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(at_once) as threads:
        for length in {setting.context_length for setting in settings}:
            _data(length, Path(scratch))
        lacking = [one for one in settings if one not in known]
        given = ((one, Path(scratch)) for one in lacking)
        for line in track(threads.map(_line, *zip(*given, strict=True)), total=len(lacking)):
            before = file.read_bytes() if file.exists() else b""
            whole_file.write(file, before + line.encode() + b"\n")


def recorded(file: Path) -> dict[Here, dict[str, float]]:
    """What a file of measurements holds; of a setting that was measured again the mean."""
    lines = file.read_text().splitlines() if file.exists() else []
    found: dict[Here, list[dict[str, Any]]] = {}
    for one in map(json.loads, lines):
        found.setdefault(Here(**one.pop("setting")), []).append(one)
    names = ("cpu_seconds", "peak_bytes")
    return {
        setting: {name: mean(one[name] for one in several) for name in names}
        for setting, several in found.items()
    }


def _line(setting: Here, scratch: Path) -> str:
    """A setting's measurement as JSON.

    ``cpu_seconds`` of a step: of each rank the median of its steps, added up. ``peak_bytes``: of
    the rank that had most resident.
    """
    told = _run(setting, scratch)
    figures = {
        "cpu_seconds": sum(median(one["cpu_seconds"][WARM:]) for one in told),
        "peak_bytes": max(one["peak_bytes"] for one in told),
        "steps": [one["cpu_seconds"] for one in told],
    }
    return json.dumps({"setting": setting.told(), **figures})


def _run(setting: Here, scratch: Path) -> list[dict[str, Any]]:
    """What each rank of a real training has noted (``rank.train``)."""
    root = scratch / f"{abs(hash(setting)):x}"
    (root / "input").mkdir(parents=True)
    (root / "input/data").symlink_to(_data(setting.context_length, scratch))
    given = setting.loop(steps(setting)) | {
        "workload": "language_model",
        "workload_config": json.dumps(setting.model),
        "root": root,
    }
    arguments = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [_start(root, rank, setting.ranks, port, arguments) for rank in range(setting.ranks)]
    for one in ranks:
        one.join(SECONDS)
        one.kill()
    if any(one.exitcode for one in ranks):
        raise RuntimeError(f"{setting.name}: {(root / 'log-0').read_text()[-2000:]}")
    return [json.loads((root / f"took-{rank}.json").read_text()) for rank in range(setting.ranks)]


def _start(root: Path, rank: int, world: int, port: int, arguments: Sequence[str]) -> BaseProcess:
    """A rank, from a server that has imported torch already: that takes seconds a process."""
    environment = {
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
    }
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the server when it imports torch
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    files = root / f"took-{rank}.json", root / f"log-{rank}"
    started = context.Process(target=train, args=(arguments, environment, *files), daemon=True)
    started.start()
    return started


def _data(length: int, scratch: Path) -> Path:
    """Shards of random bytes, without padding: every sample is as long as the context."""
    packing = load_packing("language_model", {"context_length": length})
    folder = scratch / f"data-{length}"
    for split, samples in (("train", SAMPLES), ("validation", 2)):
        if not (folder / split).exists():
            tokens = np.random.default_rng(0).integers(0, 256, (samples, length + 1))
            write_dataset(
                folder / split,
                {"tokens": tokens.astype(np.uint16)},
                packing.fields,
                shard_bytes=10**6,
                split=split,
                workload=packing.info,
            )
    return folder
