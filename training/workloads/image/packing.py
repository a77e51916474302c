"""Packing of images: a sample is an image in its encoded form, and the hash of its label."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from training.data.dataset import Dataset
from training.data.manifest import Field, Samples, create_empty_samples
from training.data.shard_writer import hash_samples
from training.workloads import Column
from training.workloads.column_packing import ColumnHasher
from training.workloads.image.config import ImageConfig
from training.workloads.image.pixels import explain_undecodable

if TYPE_CHECKING:
    from training.scores import Block

READ = 64  # images per read if no model processes them

IMAGE = {"image": Field(dtype="uint8", shape=None)}
"""The field that identifies an image, whatever its label is."""
FIELDS = IMAGE | {"label": Field(dtype="int64")}


class Packing:
    """See ``training.workloads.Packing``; a sample is an image.

    Images are stored encoded, so that a dataset is no larger than its files, and a crop is cut from
    the full resolution. Equal images are duplicates even if their labels differ. An image that
    cannot be decoded completely is quarantined.
    """

    def __init__(self, config: ImageConfig, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        self.identity: tuple[str, ...] = (config.image,)
        self.columns: Mapping[str, Column] = {
            config.image: Column("bytes", refuse=explain_undecodable),
            config.label: Column("category"),
        }
        self.fields: Mapping[str, Field] = FIELDS
        # Without the columns' names: the same images are the same dataset, whatever the columns'
        # names.
        self.info: dict[str, Any] = {}

    def files(self) -> Mapping[str, bytes]:
        """Return no files: the classes are learned from the training split's statistics."""
        return {}

    @property
    def example_fields(self) -> Mapping[str, Field]:
        """Return the fields of ``examples``; images have no groups."""
        return {"example": Field(dtype="int64")}

    def examples(self, dataset: Dataset) -> "Iterator[Block]":
        """Yield a hash of each image, without its label."""
        for passage in dataset.stream(READ):
            yield {"example": hash_samples(passage.samples, IMAGE)}

    def packer(self) -> "ImagePacker":
        return ImagePacker(self.config)


class ImagePacker:
    """Makes one sample of each image. There is never anything left for ``flush``."""

    def __init__(self, config: ImageConfig) -> None:
        self._config, self._codes = config, ColumnHasher()
        self._labels: Counter[str] = Counter()

    def add(self, records: pa.RecordBatch) -> Samples:
        """Return one sample per record, and count the labels for ``statistics``."""
        labels = self._codes.encode_column(self._config.label, records.column(self._config.label))
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
        """Return no samples."""
        return create_empty_samples(FIELDS)

    def statistics(self) -> dict[str, Any]:
        """Return the number of images of each label."""
        return {"labels": dict(sorted(self._labels.items()))}
