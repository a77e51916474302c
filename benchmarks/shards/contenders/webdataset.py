"""WebDataset: tar files, one member a sample."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from torch import Tensor

from benchmarks.shards.contenders import BATCH, following

SAMPLES = 8192
"""Samples in a tar file: 42 MB."""

BUFFER = 1000
"""Samples in the shuffle buffer, as in the documentation's examples."""


class Contender:
    """https://github.com/webdataset/webdataset: ``WebDataset(…).shuffle(1000).map(…).batched(…)``.

    It has no state: resuming is reading and throwing away what was read before.
    """

    def write(self, samples: np.ndarray, folder: Path) -> None:
        with wds.ShardWriter(str(folder / "%05d.tar"), maxcount=SAMPLES, verbose=0) as sink:
            for number, row in enumerate(samples):
                sink.write({"__key__": f"{number:08d}", "tokens": row.tobytes()})

    def batches(self, folder: Path, shuffled: bool, seed: int = 0) -> wds.WebDataset:
        urls = sorted(map(str, folder.glob("*.tar")))
        shards = len(urls) if shuffled else False
        dataset = wds.WebDataset(urls, shardshuffle=shards, seed=seed, empty_check=False)
        if shuffled:
            dataset = dataset.shuffle(BUFFER, seed=seed)
        return dataset.map(_tokens).batched(BATCH, partial=False, collation_fn=_stack)

    def save(self, folder: Path, points: Sequence[int]) -> Iterator[tuple[Any, Tensor]]:
        batches = iter(self.batches(folder, shuffled=True))
        for point, following_batch in zip(points, following(batches, points), strict=True):
            yield point, following_batch()

    def resume(self, folder: Path, state: Any) -> Tensor:
        return next(islice(self.batches(folder, shuffled=True), state, None))


def _tokens(sample: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(sample["tokens"], np.uint16)


def _stack(rows: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(rows))
