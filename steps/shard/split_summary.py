"""What an evaluation takes of the train split, written beside it, so that it need not be read.

``summary/examples``  what names each example, and its group where the data have groups: for leaks
``summary/sample``    samples to fit baselines on: all, or SAMPLE_BYTES of them, spread evenly
``summary``           the manifests of the train split itself, byte by byte

Each unit gives its part, once its shards are written, so all of it follows from the records and the
plan, whoever packs them.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import EXAMPLES, SAMPLE, Plan
from steps.shard.shard_progress import Part
from training.data.dataset import Dataset
from training.data.manifest import Manifest, Samples, Source, manifest_json
from training.data.shard_storage import Folder
from training.data.shard_writer import ShardWriter
from trainyard.common import atomic_file

SAMPLE_BYTES = 2 * 2**30
"""Of samples that baselines are fitted on, of all units together: 10^9 tokens of two bytes."""
AT_ONCE = 1024
"""Samples that are read at once."""


def parts(unit: ShardObject, plan: Plan, train: Part, share: float) -> dict[str, Part]:
    """Write the summary of what a unit gave to the train split, which is on the disk.

    ``share``: of the unit in the bytes of the content of all units.
    """
    if not train.samples:
        return {table: _written(unit, plan, table, ()) for table in (EXAMPLES, SAMPLE)}
    split = Dataset(_Unit(plan.output / "train", unit, plan, train))
    size = int(split.merged.bytes.sum())
    kept = min(len(split), max(1, int(len(split) * SAMPLE_BYTES * share / size)))
    return {
        EXAMPLES: _written(unit, plan, EXAMPLES, plan.packing.examples(split)),
        SAMPLE: _copied(plan, train)
        if kept == len(split)
        else _written(unit, plan, SAMPLE, _spread(split, kept)),
    }


class _Unit(Folder):
    """A folder of shards, of which one unit's are a dataset."""

    def __init__(self, path: Path, unit: ShardObject, plan: Plan, part: Part) -> None:
        super().__init__(path)
        source = Source(name=unit.name, records=part.records, samples=part.samples)
        self._manifest = Manifest(
            split="train",
            fields=dict(plan.packing.fields),
            workload=plan.packing.info,
            sources=[source],
            shards=part.shards,
        )

    def manifests(self) -> dict[str, bytes]:
        return {"manifest-unit.json": manifest_json(self._manifest)}


def _spread(split: Dataset, count: int) -> Iterable[Samples]:
    """``count`` samples at even distances."""
    for start in range(0, count, AT_ONCE):
        chosen = np.arange(start, min(start + AT_ONCE, count))
        yield split.read(chosen * len(split) // count)


def _written(unit: ShardObject, plan: Plan, table: str, pieces: Iterable[Samples]) -> Part:
    fields = plan.packing.example_fields if table == EXAMPLES else plan.packing.fields
    writer = ShardWriter(plan.output / table, unit.stem, fields, plan.shard_bytes)
    for piece in pieces:
        writer.add(piece)
    shards = writer.close()
    return Part(records=writer.samples, samples=writer.samples, statistics={}, shards=shards)


def _copied(plan: Plan, train: Part) -> Part:
    """All samples: the shards as they are, so that their order in a dataset is the same, too."""
    for file in train.shards.file:
        values = [f"{file.removesuffix('.npy')}.{field}.npy" for field in train.shards.values]
        for name in (file, *values):
            content = (plan.output / "train" / name).read_bytes()
            atomic_file.write(plan.output / SAMPLE / name, content)
    return train.model_copy(update={"statistics": {}})
