"""MosaicML streaming: MDS shards of fixed-shape arrays, read by ``StreamingDataset``."""

import ctypes
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH, following


def _without_operators() -> None:
    """Let torchvision be imported where its operators cannot be loaded.

    It is imported by ``streaming`` whatever is read. PyPI's torchvision is built for a torch with
    CUDA; beside a torch without, the import fails at the first operator that it describes.
    """
    folder = Path(find_spec("torchvision").origin).parent
    try:
        ctypes.CDLL(str(folder / "_C.so"))
    except OSError:
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            OPERATORS.define(schema)


OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
_without_operators()

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402

COLUMNS = {"tokens": f"ndarray:uint16:{WIDTH}"}


class Contender:
    """https://docs.mosaicml.com/projects/streaming: a local dataset needs no remote."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        with MDSWriter(out=str(folder), columns=COLUMNS, size_limit="64mb") as writer:
            for row in samples:
                writer.write({"tokens": np.asarray(row)})

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(self._loader(folder, shuffled))

    def save(self, folder: Path, points: Sequence[int]) -> Iterator[tuple[Any, Tensor]]:
        loader = self._loader(folder, shuffled=True)
        for following_batch in following(iter(loader), points):
            yield loader.state_dict(), following_batch()["tokens"]

    def resume(self, folder: Path, state: Any) -> Tensor:
        loader = self._loader(folder, shuffled=True)
        loader.load_state_dict(state)
        return next(iter(loader))["tokens"]

    def _loader(self, folder: Path, shuffled: bool) -> StreamingDataLoader:
        # The names of its shared memory would otherwise be those of the dataset opened before.
        clean_stale_shared_memory()
        dataset = StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=shuffled)
        return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0, drop_last=True)


class Batches:
    """The ``tokens`` of a loader's batches."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Tensor]:
        return (batch["tokens"] for batch in self._loader)
