"""litdata: chunks of tokens (``TokensLoader``), read by ``StreamingDataLoader``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
from litdata.streaming.writer import BinaryWriter
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH, iter_readers


class Contender:
    """Contender as litdata's README has it under "LLM Pre-training".

    ``optimize`` is a pool of processes around ``BinaryWriter``; the writer alone is measured, so
    that the start of the pool does not count against litdata.
    """

    def write(self, samples: np.ndarray, folder: Path) -> None:
        writer = BinaryWriter(str(folder), chunk_size=WIDTH * 8012, item_loader=TokensLoader())
        for number, row in enumerate(samples):
            writer[number] = torch.from_numpy(np.array(row))
        writer.done()
        writer.merge()

    def batches(self, folder: Path, shuffled: bool) -> StreamingDataLoader:
        given = {"item_loader": TokensLoader(block_size=WIDTH), "shuffle": shuffled}
        dataset = StreamingDataset(str(folder), drop_last=True, **given)
        return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0, drop_last=True)

    def save(self, folder: Path, points: Sequence[int]) -> Iterator[tuple[Any, Tensor]]:
        loader = self.batches(folder, shuffled=True)
        for following_batch in iter_readers(iter(loader), points):
            yield loader.state_dict(), following_batch()

    def resume(self, folder: Path, state: Any) -> Tensor:
        loader = self.batches(folder, shuffled=True)
        loader.load_state_dict(state)
        return next(iter(loader))
