"""List the contenders and their commands, and write the data that all of them train on."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.shards.corpus import read_standard_library
from benchmarks.training.setting import Setting
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.sample_order import create_uniform_order
from training.data.shard_writer import write_dataset
from training.workloads import load_packing
from training.workloads.language_model.config import LanguageModelConfig

PACKAGE = "benchmarks.training.contenders"


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender: Trainyard's loop with the hyperparameters ``ours``, or the script ``module``."""

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

    def explain_absence(self) -> str | None:
        """Return why it cannot run here, or None."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} cannot be imported: pip install -e '.[bench-training]'"
        return None

    def make_command(self, setting: Setting, root: Path, world: int) -> list[str]:
        """Return the command of each rank. ``root`` is an empty folder, which gets its inputs."""
        if self.ours is None:
            path = root / "setting.json"
            own = {"precision": self.precision, "output": str(root)}
            replace(setting, **own, shape=make_model_shape(setting)).write(path)
            return [sys.executable, "-m", f"{PACKAGE}.{self.module}", str(path), *self.arguments]
        (root / "input").mkdir()
        (root / "input/data").symlink_to(Path(setting.batches).parent / "channels")
        given = {
            "workload": "language_model",
            "workload_config": json.dumps(get_model_sizes(setting)),
            "root": root,
            "precision": self.precision,
            **make_hyperparameters(setting, world),
            **self.ours,
        }
        options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        return [sys.executable, "steps/train/job.py", *options]


def get_model_sizes(setting: Setting) -> dict[str, int]:
    """Return the workload's settings that determine the size of the model."""
    return {name: getattr(setting, name) for name in ("layers", "heads", "dim", "context_length")}


def make_model_shape(setting: Setting) -> dict[str, Any]:
    """Return all values that the model's module reads from its configuration."""
    config = LanguageModelConfig(**get_model_sizes(setting))
    derived = {name: getattr(config, name) for name in ("groups", "head_width", "hidden")}
    return config.model_dump(mode="json") | derived


def make_hyperparameters(setting: Setting, world: int) -> dict[str, int | float]:
    """Return the setting as fields of ``TrainConfig``."""
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


def _make_own(name: str, label: str, strategy: str, **options) -> Entry:
    stage = {"zero_stage": str(options.pop("zero"))} if "zero" in options else {}
    return Entry(name, label, ours={"strategy": strategy, **stage}, **options)


def _make_peer(name: str, label: str, needs: str) -> Entry:
    return Entry(name, label, f"with_{name}", needs=needs, framework=True)


TWO, HALF = {"worlds": (2,)}, {"precision": "bfloat16"}
ENTRIES = (
    Entry("hand", "DDP by hand", "hand"),
    Entry("hand_again", "DDP by hand, again", "hand"),
    _make_own("ours", "Trainyard, float32", "ddp"),
    Entry("hand_bf16", "DDP by hand, bfloat16", "hand", **HALF),
    _make_own("ours_bf16", "Trainyard, bfloat16 (default)", "ddp", **HALF),
    _make_peer("accelerate", "Accelerate", "accelerate"),
    _make_peer("lightning", "Lightning Trainer", "lightning"),
    _make_peer("hugging_face", "Hugging Face Trainer", "transformers"),
    Entry("hand_fsdp", "FSDP2 by hand", "hand_fsdp", **TWO),
    _make_own("ours_fsdp", "Trainyard, FSDP2", "fsdp", **TWO),
    Entry("hand_fsdp_bf16", "FSDP2 by hand, bfloat16", "hand_fsdp", **TWO, **HALF),
    _make_own("ours_fsdp_bf16", "Trainyard, FSDP2, bfloat16", "fsdp", **TWO, **HALF),
    *(
        entry
        for stage in (1, 3)
        for kept in [TWO | {"needs": "deepspeed"}]
        for label in [f"DeepSpeed ZeRO-{stage}"]
        for entry in (
            Entry(f"hand_zero{stage}", f"{label} by hand", "hand_deepspeed",
                  arguments=(str(stage),), **kept),
            _make_own(f"ours_zero{stage}", f"Trainyard, {label}", "deepspeed", zero=stage, **kept),
        )
    ),
)  # fmt: skip
"""All contenders, in the order of the tables."""

ESSENTIAL = {"hand", "hand_again", "ours", "hand_bf16", "ours_bf16"}
"""Measured even without peers; a failure of one of them is a failure of the benchmark."""

TEXT_BYTES = 2_000_000


def prepare_data(setting: Setting, folder: Path) -> Setting:
    """Write ``folder/channels/{train,validation}`` and ``folder/batches.npy``.

    The array holds the global batches in the order in which Trainyard's loader gives them. Return
    the setting with its learning rates and the path of the array.
    """
    packing = load_packing("language_model", {"context_length": setting.context_length})
    texts = [text for text in read_standard_library(TEXT_BYTES) if text]
    table = pa.RecordBatch.from_pydict({"text": texts})
    samples = {"tokens": packing.packer().add(table)["tokens"]}
    """Whole samples only: none has padding, so every rank's mean loss counts the same."""
    for split in ("train", "validation"):
        options = {"shard_bytes": 64_000_000, "split": split, "workload": packing.info}
        write_dataset(folder / "channels" / split, samples, packing.fields, **options)
    train = Dataset(folder / "channels/train")
    order = create_uniform_order(train.fingerprint, setting.seed, len(train))
    indices = order.indices_at(np.arange(setting.steps * setting.global_batch))
    batches = train.read(indices)["tokens"]
    np.save(folder / "batches.npy", batches.reshape(setting.steps, setting.global_batch, -1))
    return replace(setting, rates=_compute_rates(setting), batches=str(folder / "batches.npy"))


def _compute_rates(setting: Setting) -> tuple[float, ...]:
    """Return the learning rate of each step."""
    from training.optimizers import compute_learning_rate

    assert setting.steps > WARMUP, f"more than {WARMUP} steps, please: the first ones warm up"
    config = TrainConfig(**make_hyperparameters(setting, 1))
    assert config.learning_rate == PEAK
    return tuple(compute_learning_rate(config, step) for step in range(setting.steps))
