"""One rank on the slow mount: our loader or torch's, and a step that takes a fixed time."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.sample_order import create_uniform_order, create_windowed_order

MICRO = 8
"""Samples of a micro-batch, as recipes/prod.yaml has it."""

WINDOW = 4
"""Shards of a window, as recipes/prod.yaml has it."""

WORKERS = 2
"""Processes of the peer, for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Settings of one rank."""

    folder: Path
    loader: str
    """``windowed`` and ``uniform``: ours; ``DataLoader``: torch's."""

    rank: int
    world: int
    share: int
    """Samples that it takes in a step."""

    rate: float
    """Samples a second that it computes on; between two micro-batches it sleeps."""

    seconds: float
    """How long, after the first micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Time that a rank waited for data."""

    cold: float
    """Seconds from opening the data until the first micro-batch."""

    stall: float
    """Share of the time after that, as the training loop's ``data_stall``."""

    worst: float
    """Seconds, the longest wait for one micro-batch after the first."""

    samples: int


def train(one: Rank) -> Waited:
    """Take micro-batches, and compute nothing for as long as a GPU would compute."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    waits = _peer(one) if one.loader == "DataLoader" else _ours(one)
    next(waits)
    start = time.perf_counter()
    stalled = worst = 0.0
    samples = 0
    pause = MICRO / one.rate
    while time.perf_counter() - start < one.seconds:
        time.sleep(pause)
        waited = next(waits)
        stalled, worst, samples = stalled + waited, max(worst, waited), samples + MICRO
    found = Waited(
        cold=start - began,
        stall=stalled / (time.perf_counter() - start),
        worst=worst,
        samples=samples,
    )
    waits.close()
    return found


def _ours(one: Rank) -> Generator[float, None, None]:
    """What ``Loader.stalled`` grows by with each micro-batch."""
    data = Dataset(one.folder, in_memory=one.loader == "windowed")
    sizes = np.asarray(data.manifests.samples)
    order = (
        create_windowed_order(data.fingerprint, 0, sizes, int(sizes[:WINDOW].sum()))
        if one.loader == "windowed"
        else create_uniform_order(data.fingerprint, 0, len(data))
    )
    batch = one.share * one.world
    with Loader(
        data, order, global_batch=batch, micro_batch=MICRO, rank=one.rank, world=one.world
    ) as loader:
        while True:
            before = loader.stall_seconds
            next(loader)
            yield loader.stall_seconds - before


class _Rows:
    """A map-style dataset over the same files, each mapped when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.npy"))
        self._maps: dict[int, np.ndarray] = {}
        lengths = [len(np.load(file, mmap_mode="r")) for file in self._files]
        self._starts = np.concatenate(([0], np.cumsum(lengths)))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> torch.Tensor:
        file = int(np.searchsorted(self._starts, index, side="right")) - 1
        if file not in self._maps:
            self._maps[file] = np.load(self._files[file], mmap_mode="r")
        return torch.from_numpy(self._maps[file][index - self._starts[file]]["tokens"].copy())


def _peer(one: Rank) -> Generator[float, None, None]:
    """Seconds that ``next`` of torch's DataLoader takes for each micro-batch."""
    rows = _Rows(one.folder)
    sampler: DistributedSampler = DistributedSampler(rows, one.world, one.rank)  # type: ignore[arg-type]
    loader = DataLoader(rows, MICRO, sampler=sampler, num_workers=WORKERS)  # type: ignore[arg-type]
    batches = iter(loader)
    while True:
        before = time.perf_counter()
        next(batches)
        yield time.perf_counter() - before
