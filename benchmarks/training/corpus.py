"""The Python standard library as bytes: Trainyard's shards, and the batches as one array."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.shards.corpus import standard_library
from benchmarks.training.entries import PEAK, WARMUP, hyperparameters
from benchmarks.training.setting import Setting
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.sample_order import uniform
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

TEXT_BYTES = 2_000_000


def prepare(setting: Setting, folder: Path) -> Setting:
    """Write ``folder/channels/{train,validation}`` and ``folder/batches.npy``.

    The array holds the global batches in the order in which Trainyard's loader gives them.
    """
    samples = _pack(setting)
    for split in ("train", "validation"):
        _write(samples, folder / "channels" / split, split, setting)
    train = Dataset(folder / "channels/train")
    order = uniform(train.fingerprint, setting.seed, len(train))
    indices = order.at(np.arange(setting.steps * setting.global_batch))
    batches = train.read(indices)["tokens"]
    np.save(folder / "batches.npy", batches.reshape(setting.steps, setting.global_batch, -1))
    return replace(setting, rates=_rates(setting), batches=str(folder / "batches.npy"))


def _rates(setting: Setting) -> tuple[float, ...]:
    from training.optimizers import learning_rate

    assert setting.steps > WARMUP, f"more than {WARMUP} steps, please: the first ones warm up"
    config = TrainConfig(**hyperparameters(setting, 1))
    assert config.learning_rate == PEAK
    return tuple(learning_rate(config, step) for step in range(setting.steps))


def _packing(setting: Setting):
    return load_packing("language_model", {"context_length": setting.context_length})


def _pack(setting: Setting) -> np.ndarray:
    """Whole samples only: none has padding, so every rank's mean loss counts the same."""
    texts = [text for text in standard_library(TEXT_BYTES) if text]
    table = pa.RecordBatch.from_pydict({"text": texts})
    return _packing(setting).packer().add(table)["tokens"]


def _write(samples: np.ndarray, folder: Path, split: str, setting: Setting) -> None:
    packing = _packing(setting)
    write_dataset(
        folder,
        {"tokens": samples},
        packing.fields,
        shard_bytes=64_000_000,
        split=split,
        workload=packing.info,
    )
