"""Write samples into shards, and at the end the manifest that makes them a dataset."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from training.data.manifest import Manifest, Shard, write_atomically, write_manifest


class ShardWriter:
    """Collects samples of one split and writes a shard whenever enough are there.

    Args:
        folder: where shards and manifest go; made if it is missing.
        host: the instance's name, so that several instances can write into one S3 prefix.
        width: elements in a sample.
        dtype: ``uint16`` or ``uint32``.
        samples_per_shard: samples in every shard but the last.
    """

    def __init__(
        self, folder: Path, host: str, *, width: int, dtype: str, samples_per_shard: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.host, self.width, self.dtype = folder, host, width, dtype
        self.records = 0
        self._limit = samples_per_shard * width
        self._waiting: list[np.ndarray] = []
        self._elements = 0
        self._shards: list[Shard] = []

    def add(self, samples: np.ndarray) -> None:
        """Add samples of shape (n, width)."""
        flat = np.ascontiguousarray(samples, dtype=np.dtype(self.dtype).newbyteorder("<")).ravel()
        while self._elements + len(flat) >= self._limit:
            head, flat = np.split(flat, [self._limit - self._elements])
            self._waiting.append(head)
            self._write()
        self._waiting.append(flat)
        self._elements += len(flat)

    def close(self, *, quarantined: int, workload: dict[str, Any]) -> Manifest:
        """Write what is left, then the manifest."""
        if self._elements:
            self._write()
        manifest = Manifest(
            dtype=self.dtype,
            width=self.width,
            shards=tuple(self._shards),
            records=self.records,
            quarantined=quarantined,
            workload=workload,
        )
        write_manifest(manifest, self.folder / f"manifest-{self.host}.json")
        return manifest

    def _write(self) -> None:
        content = np.concatenate(self._waiting).tobytes()
        name = f"{self.host}-{len(self._shards):05d}.bin"
        write_atomically(self.folder / name, content)
        self._shards.append(
            Shard(
                file=name,
                samples=len(content) // (self.width * np.dtype(self.dtype).itemsize),
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
        self._waiting, self._elements = [], 0
