"""Trainings that nothing is wrong with, of as many settings as there are trainings."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.training.trainings import write_ragged
from tests.training.workloads.image import pictures
from tests.training.workloads.image.test_workload import run_shard_job
from tests.training.workloads.tabular import tables
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

LANGUAGE = {"context_length": 32, "layers": 2, "heads": 2, "dim": 32}
PICTURES = 300


def write_all(folder: Path) -> None:
    """``<workload>/train`` and ``<workload>/validation``."""
    for split, samples, seed in (("train", 4000, 1), ("validation", 200, 2)):
        write_ragged(folder / "ragged" / split, samples, seed=seed)
        _text(folder / "language_model" / split, split, samples, seed)
        table = {"a.csv": tables.table(samples, seed)}
        tables.dataset(folder / "tabular" / split, tables.SETTINGS, table)
    out = run_shard_job(folder / "pictures", pictures.folder(PICTURES))
    (folder / "image").mkdir()
    for split in ("train", "validation"):
        (out / split).rename(folder / "image" / split)


def workload(name: str) -> dict[str, Any]:
    """The job's arguments that say what is trained."""
    configs = {"language_model": LANGUAGE, "tabular": tables.SETTINGS, "image": pictures.CONFIG}
    if name == "ragged":
        return {"workload": "toys.ragged"}
    return {"workload": name, "workload_config": json.dumps(configs[name])}


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


RATES = {"ragged": 0.01, "language_model": 0.003, "tabular": 0.01, "image": 0.003}
"""Workload → a learning rate that suits it, for AdamW."""


@dataclass(frozen=True)
class Case:
    """A training; ``resumed``: it is taken up again from the middle once it has ended."""

    name: str
    data: str
    world: int
    settings: dict[str, Any]
    resumed: bool = False


def case(number: int) -> Case:
    """The same for the same number."""
    choose = random.Random(f"unseen {number}")
    data = choose.choices(list(RATES), weights=(3, 4, 3, 1))[0]
    micro = choose.choice((4, 8, 16))
    world = 2 if number % 10 == 9 else 1
    steps = choose.choice((60, 100, 160, 240) if data != "image" else (50, 60))
    optimizer = choose.choices(("adamw", "lamb"), weights=(4, 1))[0]
    rate = RATES[data] * 10 ** choose.uniform(-1, 0.5)
    settings = {
        "strategy": choose.choice(("ddp", "fsdp")) if world > 1 else "single",
        "max_steps": steps,
        "micro_batch": micro,
        "global_batch": micro * world * choose.choice((1, 1, 2)),
        "learning_rate": rate,
        "optimizer": optimizer,
        "warmup_steps": choose.choice((0, 5, 20, steps // 4)),
        "schedule": choose.choice(("cosine", "wsd")),
        "min_learning_rate_ratio": choose.choice((0.0, 0.1)),
        "weight_decay": choose.choice((0.0, 0.1)),
        "grad_clip": choose.choice((0.5, 1.0, 10.0)),
        "precision": choose.choices(("float32", "bfloat16", "float64"), weights=(4, 4, 1))[0],
        "ema_decay": choose.choice((0.0, 0.0, 0.99)),
        "seed": choose.randrange(2**32),
        "log_interval": choose.choice((1, 1, 2, 5)),
        "validation_interval": choose.choice((20, 50)),
        "validation_samples": choose.choice((64, 200)),
        "checkpoint_interval": choose.choice((25, 50)),
        "shuffle": choose.choice(("uniform", "windowed")),
    }
    return Case(f"{number:03d}", data, world, settings, resumed=choose.random() < 0.25)
