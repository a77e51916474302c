"""Records to samples: an image as it is encoded, and the hash of its label."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from training.data.dataset import Dataset
from training.data.example_hashes import sample_hashes
from training.data.manifest import Field, Samples
from training.workloads import Column
from training.workloads.category_codes import Codes
from training.workloads.image.config import ImageConfig
from training.workloads.image.pixels import refuse

if TYPE_CHECKING:
    from training.scores import Block

READ = 64  # images at a time where no model sees them

IMAGE = {"image": Field(dtype="uint8", shape=None)}
"""The field by which images are told apart, whatever their labels are."""


class Packing:
    """See ``training.workloads.Packing``; a sample is an image.

    Images are stored as they are encoded, so a dataset is as large as its files, and a crop is cut
    out of all pixels. Equal images are duplicates whatever their labels. One that cannot be decoded
    to its end is quarantined.
    """

    def __init__(self, config: ImageConfig, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        self.identity = (config.image,)
        self.columns: Mapping[str, Column] = {
            config.image: Column("bytes", refuse=refuse),
            config.label: Column("category"),
        }
        self.fields = {
            "image": Field(dtype="uint8", shape=None),
            "label": Field(dtype="int64"),
        }
        # Not the columns' names: the same images are the same dataset, whatever they came in.
        self.info: dict[str, Any] = {}

    def files(self) -> Mapping[str, bytes]:
        """None: the classes are learned from the training split's statistics."""
        return {}

    @property
    def example_fields(self) -> Mapping[str, Field]:
        """Images have no groups."""
        return {"example": Field(dtype="int64")}

    def examples(self, dataset: Dataset) -> "Iterator[Block]":
        """Images, whatever their labels are."""
        for passage in dataset.stream(READ):
            yield {"example": sample_hashes(passage.samples, IMAGE)}

    def packer(self) -> "ImagePacker":
        return ImagePacker(self.config)


class ImagePacker:
    """Every image is a sample of its own; nothing waits for ``flush``."""

    def __init__(self, config: ImageConfig) -> None:
        self._config, self._codes = config, Codes()
        self._labels: Counter[str] = Counter()

    def add(self, records: pa.RecordBatch) -> Samples:
        """One sample a record."""
        labels = self._codes.of(self._config.label, records.column(self._config.label))
        counts = np.bincount(labels.index, minlength=len(labels.codes))
        for value, count in zip(labels.values.to_pylist(), counts.tolist(), strict=True):
            if count:
                self._labels[value] += count
        images = records.column(self._config.image)
        _, offsets, content = images.buffers()
        ends = np.frombuffer(offsets, np.int32)[images.offset :][: len(images) + 1].astype(np.int64)
        values = np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]]
        return {"image": values, "image_offsets": ends - ends[0], "label": labels.hashes}

    def flush(self) -> Samples:
        """Nothing."""
        return {
            "image": np.empty(0, np.uint8),
            "image_offsets": np.zeros(1, np.int64),
            "label": np.empty(0, np.int64),
        }

    def statistics(self) -> dict[str, Any]:
        """How many images each label has."""
        return {"labels": dict(sorted(self._labels.items()))}
