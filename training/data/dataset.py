"""Read a dataset: the shards of all manifests in a folder as one array of samples."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from errors import DataError
from training.data.manifest import Manifest, fingerprint, read_manifests


class Dataset:
    """Samples by global index 0 … len-1, read from memory maps.

    The order of the samples is that of the shards' hashes, so it does not depend on which
    instance wrote which shard.
    """

    def __init__(self, folder: Path) -> None:
        """Open the maps; no sample is read yet.

        Raises:
            DataError: no manifest, a shard that is missing or has another size, or no sample.
        """
        found = read_manifests(folder)
        self.manifests: list[Manifest] = [manifest for _, manifest in found]
        self.folder = folder
        self.fingerprint = fingerprint(self.manifests)
        self.workload: dict[str, Any] = self.manifests[0].workload
        self.width = self.manifests[0].width
        shards = [shard for manifest in self.manifests for shard in manifest.shards]
        shards.sort(key=lambda shard: (shard.sha256, shard.file))
        dtype = np.dtype(self.manifests[0].dtype).newbyteorder("<")
        self._maps = [self._map(shard.file, shard.bytes, dtype) for shard in shards]
        self._starts = np.cumsum([0, *(len(samples) for samples in self._maps)])
        if not len(self):
            raise DataError(
                f"{folder}: 0 samples; the raw data gave too little text for this split "
                "(data.input, shard.validation_share and shard.test_share decide)"
            )

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Samples by global index: an array of shape (len(indices), width), in memory."""
        indices = np.asarray(indices)
        out = np.empty((len(indices), self.width), dtype=self._maps[0].dtype)
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        for row, (index, owner) in enumerate(zip(indices, owners, strict=True)):
            out[row] = self._maps[owner][index - self._starts[owner]]
        return out

    def batches(self, size: int) -> Iterator[np.ndarray]:
        """Everything in order, in arrays of shape (at most ``size``, width)."""
        for samples in self._maps:
            for start in range(0, len(samples), size):
                yield np.array(samples[start : start + size])

    def _map(self, file: str, size: int, dtype: np.dtype) -> np.ndarray:
        path = self.folder / file
        if not path.is_file():
            raise DataError(f"{path}: the manifest names it, but it is missing; copy it again")
        if path.stat().st_size != size:
            raise DataError(
                f"{path}: has {path.stat().st_size} bytes, its manifest says {size}; "
                "it was cut off or changed: copy it again"
            )
        return np.memmap(path, dtype=dtype, mode="r").reshape(-1, self.width)
