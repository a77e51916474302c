"""Arrow IPC: a memory-mapped file of record batches, a sample a fixed-size list."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH

ROWS = 4096
"""Samples in a record batch: 16 MB."""

SCHEMA = pa.schema([("tokens", pa.list_(pa.uint16(), WIDTH))])


class Contender:
    """https://arrow.apache.org/docs/python/ipc.html: ``memory_map`` and ``open_file``, no copy."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        with pa.OSFile(str(folder / "samples.arrow"), "wb") as sink:
            with pa.ipc.new_file(sink, SCHEMA) as writer:
                for start in range(0, len(samples), ROWS):
                    values = pa.array(np.asarray(samples[start : start + ROWS]).ravel())
                    tokens = pa.FixedSizeListArray.from_arrays(values, WIDTH)
                    writer.write_batch(pa.record_batch([tokens], schema=SCHEMA))

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder / "samples.arrow", shuffled)


class Batches:
    """In order: slices of the record batches' buffers. Shuffled: the record batches, and ``take``
    of 32 rows within one; ``take`` from all of them would copy all of them for every batch."""

    def __init__(self, path: Path, shuffled: bool) -> None:
        self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
        self._shuffled, self._epoch = shuffled, 0

    def __iter__(self) -> Iterator[Tensor]:
        self._epoch += 1
        random = np.random.default_rng(self._epoch)
        groups = np.arange(self._reader.num_record_batches)
        for group in random.permutation(groups) if self._shuffled else groups:
            tokens = self._reader.get_batch(int(group)).column("tokens")
            order = random.permutation(len(tokens)) if self._shuffled else None
            for start in range(0, len(tokens) - BATCH + 1, BATCH):
                if order is None:
                    yield torch.from_numpy(np.array(_rows(tokens[start : start + BATCH])))
                else:
                    yield torch.from_numpy(_rows(tokens.take(order[start : start + BATCH])))


def _rows(tokens: pa.FixedSizeListArray) -> np.ndarray:
    return tokens.flatten().to_numpy(zero_copy_only=True).reshape(-1, WIDTH)
