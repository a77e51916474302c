"""What the order of a mixture costs: CPU beside the plain order, alone and in the loader."""

import time

import numpy as np

from benchmarks.shards.bench import Bench
from benchmarks.shards.contenders import WIDTH
from benchmarks.shards.figures import Section, Target
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.loader import INDICES, Loader
from training.data.manifest import Field
from training.data.order import Order
from training.data.writer import write_dataset
from training.mixture import Change, Mixture
from training.sampling import order

BATCH = 32
FIELDS = {"tokens": Field(dtype="uint16", shape=(WIDTH,))}
TINY = 3  # samples of the smallest input
FAR = 10**12  # samples that were taken before
CHANGES = tuple(
    Change(step=10**6 * (n + 1), weights={"web": 7, "code": 2 + n % 2}) for n in range(20)
)
MIXTURES = {
    "plain": None,
    "two inputs": Mixture(weights={"web": 0.7, "code": 0.3}),
    f"one of three has {TINY} samples": Mixture(weights={"web": 0.7, "code": 0.2, "tiny": 0.1}),
    "behind 20 changes": Mixture(weights={"web": 0.7, "code": 0.3}, changes=CHANGES),
}


def measure(bench: Bench) -> Section:
    bench.end_processes()
    data = _dataset(bench)
    orders = {
        (shuffle, name): order(_config(shuffle), data, mixture)
        for shuffle in ("uniform", "windowed")
        for name, mixture in MIXTURES.items()
    }
    alone = {
        f"{shuffle}, {name}": lambda made=made, name=name: _order(bench, made, _begin(name))
        for (shuffle, name), made in orders.items()
    }
    reading = {
        name: lambda made=orders["uniform", name], name=name: _loader(bench, data, made)
        for name in list(MIXTURES)[:3]
    }
    found = bench.rounds("the order of a mixture", alone)
    read = bench.rounds("the loader on a mixture", reading)
    section = Section("mixture", "The order of a mixture: CPU nanoseconds a sample")
    section.columns = ("", "order alone", "÷ plain", "loader, uniform", "÷ plain")
    for shuffle in ("uniform", "windowed"):
        plain = found[f"{shuffle}, plain"]
        for name in MIXTURES:
            mine = found[f"{shuffle}, {name}"]
            cells = [mine.text(1e-9, 0), mine.over(plain).text()]
            if shuffle == "uniform" and name in read:
                cells += [read[name].text(1e-9, 0), read[name].over(read["plain"]).text()]
            section.rows.append((f"{shuffle}, {name}", *cells, *[""] * (4 - len(cells))))
    for name in list(MIXTURES)[1:3]:
        ratio = read[name].over(read["plain"])
        section.targets.append(Target(f"loader on a mixture ({name}) ÷ plain", ratio, "≤", 1.1))
    section.data = {name: figure.data() for name, figure in found.items()}
    section.data["loader"] = {name: figure.data() for name, figure in read.items()}
    section.notes.append(
        f"{len(data):,} samples of {WIDTH:,} tokens, in blocks of {INDICES:,} positions as the "
        f"loader asks for them. Behind the changes it begins at position {FAR:,}."
    )
    return section


def _dataset(bench: Bench) -> Dataset:
    folder, random = bench.empty("mixture"), np.random.default_rng(0)
    samples = bench.sizes.samples // 4
    sizes = {"web": samples * 8 // 10, "code": samples * 2 // 10, "tiny": TINY}
    for name, size in sizes.items():
        tokens = random.integers(0, 2**16, (size, WIDTH), np.uint16)
        write_dataset(
            folder, {"tokens": tokens}, FIELDS, shard_bytes=2**22, host=name, unit=f"{name}/0-of-1"
        )
    return Dataset(folder)


def _config(shuffle: str) -> TrainConfig:
    fields = {"max_steps": 1, "global_batch": BATCH, "micro_batch": BATCH, "learning_rate": 1}
    return TrainConfig.model_validate(fields | {"shuffle": shuffle, "window_samples": 8192})


def _begin(name: str) -> int:
    return FAR if name.startswith("behind") else 0


def _order(bench: Bench, made: Order, begin: int) -> float:
    """CPU seconds a sample."""
    began = time.process_time()
    stop = begin + max(INDICES, bench.sizes.order)
    for start in range(begin, stop, INDICES):
        made.at(np.arange(start, start + INDICES))
    return (time.process_time() - began) / (-(-(stop - begin) // INDICES) * INDICES)


def _loader(bench: Bench, data: Dataset, made: Order) -> float:
    """CPU seconds a sample, of all threads."""
    batches = max(1, len(data) // BATCH)
    began = time.process_time()
    with Loader(data, made, global_batch=BATCH, micro_batch=BATCH) as loader:
        for _ in range(batches):
            next(loader)
    return (time.process_time() - began) / (batches * BATCH)
