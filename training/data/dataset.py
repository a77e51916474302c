"""Read a dataset: the shards of all manifests in a folder as one array of samples."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from errors import DataError
from training.data.manifest import Samples, read_manifests, row_dtype
from training.data.union import unite
from training.data.writer import variable


class Dataset:
    """Samples by global index 0 … len-1, read from memory maps.

    The order of the samples is that of the shards' hashes, so it does not depend on which
    instance wrote which shard. Opening reads the manifests and not one shard.
    """

    def __init__(self, folder: Path) -> None:
        """Read the manifests.

        Raises:
            DataError: no manifest, a damaged one, two that disagree, or no sample.
        """
        self.folder, self.union = folder, unite(folder, read_manifests(folder))
        self.fields, self.fingerprint = self.union.fields, self.union.fingerprint
        self.starts = np.concatenate(([0], np.cumsum(self.union.samples)))
        self._variable = variable(self.fields)
        self._maps: dict[int, list[np.ndarray]] = {}
        if not len(self):
            raise DataError(
                f"{folder}: 0 samples; the raw data gave too little for this split "
                "(data.input, shard.validation_share and shard.test_share decide)"
            )

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def records(self) -> int:
        """Raw records that went into this split."""
        return sum(source.records for source in self.union.sources)

    @property
    def statistics(self) -> list[dict[str, Any]]:
        """What the workload counted in each raw object, in the order of the objects' names."""
        return [source.statistics for source in self.union.sources]

    def read(self, indices: Sequence[int] | np.ndarray) -> Samples:
        """Samples by global index, in the order asked for, in memory."""
        indices = np.asarray(indices)
        rows = np.empty(len(indices), row_dtype(self.fields))
        values: dict[str, list] = {name: [None] * len(indices) for name in self._variable}
        owners = np.searchsorted(self.starts, indices, side="right") - 1
        for owner in np.unique(owners):
            where = np.flatnonzero(owners == owner)
            table, *flat = self._map(int(owner))
            rows[where] = table[indices[where] - self.starts[owner]]
            for name, array in zip(self._variable, flat, strict=True):
                for row in where:
                    start, stop = rows[name][row]
                    values[name][row] = array[start:stop]
        return self._samples(rows, values)

    def batches(self, size: int) -> Iterator[Samples]:
        """Everything in order, ``size`` samples at a time, at the end fewer."""
        for start in range(0, len(self), size):
            yield self.read(np.arange(start, min(start + size, len(self))))

    def check(self) -> None:
        """Look whether every shard is there with its size; cheap, reads no shard.

        Raises:
            DataError: one is missing, or has another size.
        """
        for shard in range(len(self.union.files)):
            self._paths(shard)

    def _paths(self, shard: int) -> list[Path]:
        stem = self.union.files[shard].removesuffix(".npy")
        names = [f"{stem}.npy", *(f"{stem}.{name}.npy" for name in self._variable)]
        paths = [self.folder / name for name in names]
        for path, expected in zip(paths, self.union.bytes[shard], strict=True):
            if not path.is_file():
                raise DataError(f"{path}: the manifest names it, but it is missing; copy it again")
            if path.stat().st_size != expected:
                raise DataError(
                    f"{path}: has {path.stat().st_size} bytes, its manifest says {expected}; "
                    "it was cut off or changed: copy it again"
                )
        return paths

    def _map(self, shard: int) -> list[np.ndarray]:
        if shard not in self._maps:
            self._maps[shard] = [np.load(path, mmap_mode="r") for path in self._paths(shard)]
        return self._maps[shard]

    def _samples(self, rows: np.ndarray, values: dict[str, list]) -> Samples:
        out: Samples = {}
        for name, field in self.fields.items():
            if field.shape is None:
                widths = rows[name][:, 1] - rows[name][:, 0]
                out[name] = np.concatenate([np.empty(0, field.dtype), *values[name]])
                out[f"{name}_offsets"] = np.concatenate(([0], np.cumsum(widths)))
            else:
                out[name] = np.ascontiguousarray(rows[name])
        return out
