"""Write a summary of the train split for the evaluation, so that it need not read the split.

``summary/examples``  name of each example, and its group if the data has groups: to find leaks
``summary/sample``    samples to fit baselines on: all, or SAMPLE_BYTES of them, spread evenly
``summary``           copies of the train split's manifests, byte for byte

Each unit adds its part after its shards have been written. So the summary depends only on the
records and the plan, not on which process packs a unit.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from steps.shard.raw_objects import PackingUnit
from steps.shard.shard_plan import EXAMPLES, SAMPLE, Plan
from steps.shard.shard_progress import SplitOutput
from training.data.dataset import Dataset
from training.data.manifest import Manifest, Samples, Source, format_manifest
from training.data.shard_storage import Folder
from training.data.shard_writer import ShardWriter
from trainyard.common import atomic_file

SAMPLE_BYTES = 2 * 2**30
"""Maximum bytes of samples to fit baselines on, in all units together: 10^9 tokens of two bytes."""
AT_ONCE = 1024
"""Samples per read."""


def write_summary(
    unit: PackingUnit, plan: Plan, train: SplitOutput, share: float
) -> dict[str, SplitOutput]:
    """Write the summary of a unit's part of the train split; return {table: its output}.

    The unit's shards must be on the disk. ``share`` is the unit's part of the content bytes of all
    units.
    """
    if not train.samples:
        return {table: _write_table(unit, plan, table, ()) for table in (EXAMPLES, SAMPLE)}
    split = Dataset(_Unit(plan.output / "train", unit, plan, train))
    size = int(split.manifests.bytes.sum())
    # In proportion to the unit's content, so that all units together stay within SAMPLE_BYTES.
    sample_count = min(len(split), max(1, int(len(split) * SAMPLE_BYTES * share / size)))
    return {
        EXAMPLES: _write_table(unit, plan, EXAMPLES, map(dict, plan.packing.examples(split))),
        SAMPLE: _copy_samples(plan, train)
        if sample_count == len(split)
        else _write_table(unit, plan, SAMPLE, _iter_even_samples(split, sample_count)),
    }


class _Unit(Folder):
    """A dataset's folder that contains only the shards of one unit."""

    def __init__(self, path: Path, unit: PackingUnit, plan: Plan, part: SplitOutput) -> None:
        super().__init__(path)
        source = Source(name=unit.name, records=part.records, samples=part.samples)
        self._manifest = Manifest(
            split="train",
            fields=dict(plan.packing.fields),
            workload=plan.packing.info,
            sources=[source],
            shards=part.shards,
        )

    def read_manifests(self) -> dict[str, bytes]:
        """Return the manifest of this unit alone, instead of the folder's."""
        return {"manifest-unit.json": format_manifest(self._manifest)}


def _iter_even_samples(split: Dataset, count: int) -> Iterable[Samples]:
    """Yield ``count`` evenly spaced samples, in pieces of at most AT_ONCE."""
    for start in range(0, count, AT_ONCE):
        indices = np.arange(start, min(start + AT_ONCE, count))
        yield split.read(indices * len(split) // count)


def _write_table(
    unit: PackingUnit, plan: Plan, table: str, pieces: Iterable[Samples]
) -> SplitOutput:
    """Write samples as shards of one table of the summary; return the shards and counts."""
    fields = plan.packing.example_fields if table == EXAMPLES else plan.packing.fields
    writer = ShardWriter(plan.output / table, unit.stem, fields, plan.shard_bytes)
    for piece in pieces:
        writer.add(piece)
    shards = writer.close()
    return SplitOutput(records=writer.samples, samples=writer.samples, statistics={}, shards=shards)


def _copy_samples(plan: Plan, train: SplitOutput) -> SplitOutput:
    """Copy all shard files, so that samples keep their order in a dataset; return the output."""
    for file in train.shards.file:
        values = [f"{file.removesuffix('.npy')}.{field}.npy" for field in train.shards.values]
        for name in (file, *values):
            content = (plan.output / "train" / name).read_bytes()
            atomic_file.write_file(plan.output / SAMPLE / name, content)
    return train.model_copy(update={"statistics": {}})
