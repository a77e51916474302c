"""Parquet: row groups of fixed-size binary, uncompressed, since tokens do not compress."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH

ROWS = 1024
"""Samples in a row group: 4 MB."""

SCHEMA = pa.schema([("tokens", pa.binary(WIDTH * 2))])


class Contender:
    """https://arrow.apache.org/docs/python/parquet.html: whole row groups through a memory map."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        with pq.ParquetWriter(folder / "samples.parquet", SCHEMA, **options) as writer:
            for start in range(0, len(samples), ROWS):
                rows = np.ascontiguousarray(samples[start : start + ROWS])
                buffers = [None, pa.py_buffer(rows)]
                tokens = pa.FixedSizeBinaryArray.from_buffers(SCHEMA.types[0], len(rows), buffers)
                writer.write_table(pa.table([tokens], schema=SCHEMA), row_group_size=ROWS)

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder / "samples.parquet", shuffled)


class Batches:
    """Row groups in (shuffled) order, and the rows of each in (shuffled) order."""

    def __init__(self, path: Path, shuffled: bool) -> None:
        self._file = pq.ParquetFile(path, memory_map=True)
        self._shuffled, self._epoch = shuffled, 0

    def __iter__(self) -> Iterator[Tensor]:
        self._epoch += 1
        random = np.random.default_rng(self._epoch)
        groups = np.arange(self._file.num_row_groups)
        for group in random.permutation(groups) if self._shuffled else groups:
            column = self._file.read_row_group(group).column("tokens").combine_chunks()
            samples = np.frombuffer(column.buffers()[1], np.uint16).reshape(-1, WIDTH)
            order = random.permutation(len(samples)) if self._shuffled else None
            for start in range(0, len(samples) - BATCH + 1, BATCH):
                chosen = slice(start, start + BATCH)
                if order is not None:
                    chosen = order[chosen]
                yield torch.from_numpy(np.array(samples[chosen]))
