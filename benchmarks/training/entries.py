"""Name the contenders and their commands, and write the data that all of them train on."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.shards.corpus import standard_library
from benchmarks.training.setting import Setting
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.sample_order import create_uniform_order
from training.data.shard_writer import write_dataset
from training.workloads import load_packing
from training.workloads.language_model.config import LanguageModelConfig

PACKAGE = "benchmarks.training.contenders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A contender. ``ours`` names the strategy of Trainyard's loop; else ``module`` is a script."""

    name: str
    label: str
    module: str = ""
    arguments: tuple[str, ...] = ()
    ours: Mapping[str, str] | None = None
    """Hyperparameters of Trainyard's job, beside the setting's."""
    precision: str = "float32"
    worlds: tuple[int, ...] = (1, 2)
    needs: str = ""
    """Package to import."""
    framework: bool = False

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} cannot be imported: pip install -e '.[bench-training]'"
        return None

    def command(self, setting: Setting, root: Path, world: int) -> list[str]:
        """What each rank runs. ``root`` is an empty folder; Trainyard's channels are linked in."""
        if self.ours is None:
            path = root / "setting.json"
            told = {"precision": self.precision, "output": str(root), "shape": shape(setting)}
            replace(setting, **told).write(path)
            return [sys.executable, "-m", f"{PACKAGE}.{self.module}", str(path), *self.arguments]
        (root / "input").mkdir()
        (root / "input/data").symlink_to(Path(setting.batches).parent / "channels")
        given = {
            "workload": "language_model",
            "workload_config": json.dumps(sizes(setting)),
            "root": root,
            "precision": self.precision,
            **hyperparameters(setting, world),
            **self.ours,
        }
        options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        return [sys.executable, "steps/train/job.py", *options]


def sizes(setting: Setting) -> dict[str, int]:
    """The workload's settings that say how large the model is."""
    return {name: getattr(setting, name) for name in ("layers", "heads", "dim", "context_length")}


def shape(setting: Setting) -> dict[str, Any]:
    """All that the module asks of its configuration, as plain values."""
    config = LanguageModelConfig(**sizes(setting))
    derived = {name: getattr(config, name) for name in ("groups", "head_width", "hidden")}
    return config.model_dump(mode="json") | derived


def hyperparameters(setting: Setting, world: int) -> dict[str, int | float]:
    """The setting as fields of ``TrainConfig``."""
    return {
        "max_steps": setting.steps,
        "global_batch": setting.global_batch,
        "micro_batch": setting.global_batch // world,
        "learning_rate": PEAK,
        "warmup_steps": WARMUP,
        "beta1": setting.betas[0],
        "beta2": setting.betas[1],
        "weight_decay": setting.weight_decay,
        "grad_clip": setting.grad_clip,
        "seed": setting.seed,
        "log_interval": setting.log_interval,
        "validation_interval": setting.steps,
        "validation_samples": 1,
        "checkpoint_interval": setting.steps,
    }


PEAK = 1e-3
WARMUP = 3


def _add_ours(name: str, label: str, strategy: str, **options) -> Entry:
    stage = {"zero_stage": str(options.pop("zero"))} if "zero" in options else {}
    return Entry(name=name, label=label, ours={"strategy": strategy, **stage}, **options)


def _framework(name: str, label: str, needs: str) -> Entry:
    return Entry(name=name, label=label, module=f"with_{name}", needs=needs, framework=True)


def _by_hand(name: str, label: str, module: str, **options) -> Entry:
    return Entry(name=name, label=label, module=module, **options)


TWO, HALF = {"worlds": (2,)}, {"precision": "bfloat16"}
ENTRIES = (
    _by_hand("hand", "DDP by hand", "hand"),
    _by_hand("hand_again", "DDP by hand, again", "hand"),
    _add_ours("ours", "Trainyard, float32", "ddp"),
    _by_hand("hand_bf16", "DDP by hand, bfloat16", "hand", **HALF),
    _add_ours("ours_bf16", "Trainyard, bfloat16 (default)", "ddp", **HALF),
    _framework("accelerate", "Accelerate", "accelerate"),
    _framework("lightning", "Lightning Trainer", "lightning"),
    _framework("hugging_face", "Hugging Face Trainer", "transformers"),
    _by_hand("hand_fsdp", "FSDP2 by hand", "hand_fsdp", **TWO),
    _add_ours("ours_fsdp", "Trainyard, FSDP2", "fsdp", **TWO),
    _by_hand("hand_fsdp_bf16", "FSDP2 by hand, bfloat16", "hand_fsdp", **TWO, **HALF),
    _add_ours("ours_fsdp_bf16", "Trainyard, FSDP2, bfloat16", "fsdp", **TWO, **HALF),
    *(
        entry
        for stage in (1, 3)
        for kept in [TWO | {"needs": "deepspeed"}]
        for label in [f"DeepSpeed ZeRO-{stage}"]
        for entry in (
            _by_hand(f"hand_zero{stage}", f"{label} by hand", "hand_deepspeed",
                     arguments=(str(stage),), **kept),
            _add_ours(f"ours_zero{stage}", f"Trainyard, {label}", "deepspeed", zero=stage, **kept),
        )
    ),
)  # fmt: skip
"""In the order of the tables."""

ESSENTIAL = {"hand", "hand_again", "ours", "hand_bf16", "ours_bf16"}
"""Measured even without peers; a failure of one of them is a failure of the benchmark."""

TEXT_BYTES = 2_000_000


def prepare(setting: Setting, folder: Path) -> Setting:
    """Write ``folder/channels/{train,validation}`` and ``folder/batches.npy``.

    The array holds the global batches in the order in which Trainyard's loader gives them.
    """
    packing = load_packing("language_model", {"context_length": setting.context_length})
    texts = [text for text in standard_library(TEXT_BYTES) if text]
    table = pa.RecordBatch.from_pydict({"text": texts})
    samples = {"tokens": packing.packer().add(table)["tokens"]}
    """Whole samples only: none has padding, so every rank's mean loss counts the same."""
    for split in ("train", "validation"):
        told = {"shard_bytes": 64_000_000, "split": split, "workload": packing.info}
        write_dataset(folder / "channels" / split, samples, packing.fields, **told)
    train = Dataset(folder / "channels/train")
    order = create_uniform_order(train.fingerprint, setting.seed, len(train))
    indices = order.indices_at(np.arange(setting.steps * setting.global_batch))
    batches = train.read(indices)["tokens"]
    np.save(folder / "batches.npy", batches.reshape(setting.steps, setting.global_batch, -1))
    return replace(setting, rates=_rates(setting), batches=str(folder / "batches.npy"))


def _rates(setting: Setting) -> tuple[float, ...]:
    from training.optimizers import compute_learning_rate

    assert setting.steps > WARMUP, f"more than {WARMUP} steps, please: the first ones warm up"
    config = TrainConfig(**hyperparameters(setting, 1))
    assert config.learning_rate == PEAK
    return tuple(compute_learning_rate(config, step) for step in range(setting.steps))
