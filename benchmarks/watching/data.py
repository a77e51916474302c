"""What is trained on: four workloads, with as much data that it is not learned by heart."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.training.trainings import write_ragged
from tests.training.workloads.image import pictures
from tests.training.workloads.image.test_workload import sharded
from tests.training.workloads.tabular import tables
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

LANGUAGE = {"context_length": 32, "layers": 2, "heads": 2, "dim": 32}
PICTURES = 300


def write_all(folder: Path) -> None:
    """``<workload>/train`` and ``<workload>/validation``, and ``few`` with 16 samples of text."""
    for split, samples, seed in (("train", 4000, 1), ("validation", 200, 2)):
        write_ragged(folder / "ragged" / split, samples, seed=seed)
        _text(folder / "language_model" / split, split, samples, seed)
        _text(folder / "few" / split, split, 16 if split == "train" else 200, seed)
        table = {"a.csv": tables.table(samples, seed)}
        tables.dataset(folder / "tabular" / split, tables.SETTINGS, table)
    out = sharded(folder / "pictures", pictures.folder(PICTURES))
    (folder / "image").mkdir()
    for split in ("train", "validation"):
        (out / split).rename(folder / "image" / split)


def workload(name: str) -> dict[str, Any]:
    """The job's arguments that say what is trained."""
    configs = {"language_model": LANGUAGE, "tabular": tables.SETTINGS, "image": pictures.CONFIG}
    kind = "language_model" if name == "few" else name
    if kind == "ragged":
        return {"workload": "toys.ragged"}
    return {"workload": kind, "workload_config": json.dumps(configs[kind])}


def _text(folder: Path, split: str, samples: int, seed: int) -> None:
    """Sentences of 60 words, of unequal length, which become ever rarer."""
    packing = load_packing("language_model", LANGUAGE)
    words = [np.random.default_rng(0).integers(97, 123, size) for size in range(2, 8)] * 10
    words = [np.roll(word, place) + place % 3 for place, word in enumerate(words)]
    random = np.random.default_rng(seed)
    length = LANGUAGE["context_length"] + 1
    rows = np.full((samples, length), packing.tokenizer.end, np.uint16)
    for row, count in zip(rows, random.integers(8, length + 1, samples), strict=True):
        text = np.concatenate([words[n] for n in random.zipf(1.5, 40) % len(words)])
        row[:count] = text[:count]
    fields = packing.fields
    told = {"split": split, "workload": packing.info, "shard_bytes": 20_000}
    write_dataset(folder, {"tokens": rows}, fields, **told)
