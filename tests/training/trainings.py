"""Datasets of the toy workload, the train job's arguments, and readers of a training's results."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np

from training.config import TrainConfig
from training.data import shard_writer
from training.data.dataset import Share
from training.data.manifest import Field, Manifest
from training.tools.contract_tests.scoring_rules import join_blocks

CHECKOUT = Path(__file__).parents[2]
TOYS = Path(__file__).parent
SETTINGS = {
    "max_steps": 10,
    "global_batch": 8,
    "micro_batch": 8,
    "learning_rate": 0.01,
    "warmup_steps": 2,
    "precision": "float32",
    "log_interval": 1,
    "validation_interval": 5,
    "checkpoint_interval": 5,
    "keep_checkpoints": 10,
}


write_dataset = partial(shard_writer.write_dataset, shard_bytes=400)
"""Writes several shards of a few samples."""


def write_ragged(
    folder: Path, samples: int, *, seed: int = 0, poison_at: int | None = None
) -> None:
    """Write ``samples`` lists of very unequal length, in two manifests as from two instances."""
    random = np.random.default_rng(seed)
    rows = np.zeros((samples, 9), np.uint16)
    rows[:, 0] = np.where(random.random(samples) < 0.5, 1, 8)
    rows[:, 1:] = random.integers(0, 8, (samples, 8))
    if poison_at is not None:
        rows[poison_at, :2] = 1, 31
    fields = {"numbers": Field(dtype="uint16", shape=(9,))}
    for host, part in zip(("algo-1", "algo-2"), np.array_split(rows, 2), strict=True):
        write_dataset(folder, {"numbers": part}, fields, host=host, workload={"kind": "ragged"})


def read_manifests(folder: Path) -> dict[str, Manifest]:
    """Return every manifest in the folder by file name, read as docs/shards.md describes."""
    found = {}
    for path in sorted(folder.glob("manifest-*.json")):
        whole = json.loads(path.read_text())
        shards = whole["shards"]
        for name in ("raw", "sources"):
            columns = whole[name]
            whole[name] = [
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]
        shards["file"] = shards["file"].split()
        for table in (shards, *shards["values"].values()):
            table["sha256"] = re.findall("." * 64, table["sha256"])
        found[path.name] = Manifest(**whole)
    return found


def config(**fields) -> TrainConfig:
    """Return valid settings of the loop, with these."""
    given = {"max_steps": 10, "global_batch": 8, "micro_batch": 8, "learning_rate": 0.01}
    return TrainConfig.model_validate(given | fields)


def arguments(root: Path, settings: dict) -> list[str]:
    given = {"workload": "toys.ragged", "root": root} | SETTINGS | settings
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def history(root: Path) -> list[dict[str, float]]:
    """Return the metric lines of the finished training, at full precision."""
    lines = (root / "model/history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def losses(root: Path, name: str = "loss") -> dict[int, float]:
    return {line["step"]: line[name] for line in history(root) if name in line}


def loss_of(workload, model, batch) -> tuple:
    """Return (sum of the losses, number of units) of samples as they are stored."""
    return workload.loss(model(*workload.inputs(batch)), batch), workload.units(batch)


def check_shares(workload, model, dataset, slices=()) -> None:
    """Check that the shares' rows, in order, are those of the whole, bit for bit."""
    whole = join_blocks(list(workload.scores(model, dataset, slices)))
    for count in (2, 3):
        shares = [list(workload.scores(model, dataset, slices, Share(n, count)))
                  for n in range(count)]  # fmt: skip
        assert sum(map(bool, shares)) == count, "a share without rows shows nothing"
        found = join_blocks([block for share in shares for block in share])
        assert found.keys() == whole.keys()
        for name, column in whole.items():
            assert found[name].dtype == column.dtype
            assert found[name].tolist() == column.tolist(), name


def compute_metrics(workload, model, dataset) -> dict[str, dict[str, float]]:
    """Return metric → value and standard error, as the evaluate step computes them."""
    return workload.metrics(list(workload.scores(model, dataset)))
