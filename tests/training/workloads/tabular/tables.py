"""Tables whose learnable pattern is known, and datasets made of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from training.data.dataset import Dataset
from training.data.manifest import Manifest, Samples, Source, write_manifest
from training.data.shard_writer import ShardWriter
from training.workloads import Packing, Workload, load_packing
from training.workloads.column_packing import choose_record_type

SETTINGS = {
    "categories": ["colour", "size"],
    "numbers": ["weight", "age"],
    "label": "delay",
    "label_above": 15,
    "min_count": 2,
    "embedding": 4,
    "hidden": [32],
    "dropout": 0.0,
    "embedding_dropout": 0.0,
}


def measure_baselines(
    workload: Workload, train: Dataset, test: Dataset, limit: int
) -> dict[str, dict[str, float]]:
    """Return baseline → metric → value."""
    scores = workload.baseline_scores(train, test, limit)
    return {
        name: {metric: found["value"] for metric, found in workload.metrics(list(blocks)).items()}
        for name, blocks in scores.items()
    }


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a table in which heavy red rows and light others are late: not linearly separable."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "colour": random.choice(["red", "green", "blau"], rows),
            "size": random.choice(["S", "L", None], rows, p=[0.6, 0.3, 0.1]),
            "weight": random.normal(100, 15, rows),
            "age": np.where(random.random(rows) < 0.3, np.nan, random.exponential(5, rows)),
        }
    )
    late = (frame["colour"] == "red") ^ (frame["weight"] < 100)
    frame["delay"] = np.where(late ^ (random.random(rows) < 0.05), 30.0, 15.0)
    return frame


def batch(frame: pd.DataFrame, packing: Packing) -> pa.RecordBatch:
    """Return a batch like a reader's: categories in a dictionary, numbers as float64, else null."""
    return pa.record_batch(
        {
            name: pa.array(list(frame[name]), choose_record_type(column), from_pandas=True)
            for name, column in packing.columns.items()
        }
    )


def pack(settings: dict, frames: list[pd.DataFrame]) -> tuple[Samples, dict]:
    """Return (samples, statistics) of one raw object that is read in these batches."""
    packing = load_packing("tabular", settings)
    packer = packing.packer()
    parts = [packer.add(batch(frame, packing)) for frame in frames] + [packer.flush()]
    return {n: np.concatenate([p[n] for p in parts]) for n in packing.fields}, packer.statistics()


def dataset(folder: Path, settings: dict, objects: dict[str, pd.DataFrame]) -> Dataset:
    """Write raw objects, given as name → table, as the shard step would."""
    packing = load_packing("tabular", settings)
    known = {"split": "train", "fields": packing.fields, "workload": packing.info}
    for name, frame in objects.items():
        samples, statistics = pack(settings, [frame])
        writer = ShardWriter(folder, name, packing.fields, 4000)
        writer.add(samples)
        source = Source(name=name, records=len(frame), samples=len(frame), statistics=statistics)
        manifest = Manifest(sources=[source], shards=writer.close(), **known)
        write_manifest(manifest, folder / f"manifest-{name}.json")
    return Dataset(folder)
