"""Who takes part: how its ranks are started, and what it is held against."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.training.setting import Setting
from training.strategy_table import STRATEGIES
from training.workloads.language_model.config import LanguageModelConfig

CHECKOUT = Path(__file__).parents[2]
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
    checkout: Path = CHECKOUT
    """Whose code it runs: this one's, or of ours that of another commit."""

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if self.ours and not _has_strategy(self.ours["strategy"]):
            return f"this Trainyard has no strategy {self.ours['strategy']}"
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


def _has_strategy(name: str) -> bool:
    return name in STRATEGIES


def _ours(name: str, label: str, strategy: str, **options) -> Entry:
    stage = {"zero_stage": str(options.pop("zero"))} if "zero" in options else {}
    return Entry(name=name, label=label, ours={"strategy": strategy, **stage}, **options)


ENTRIES = (
    Entry(name="hand", label="DDP by hand", module="hand"),
    Entry(name="hand_again", label="DDP by hand, again", module="hand"),
    _ours("ours", "Trainyard, float32", "ddp"),
    Entry(name="hand_bf16", label="DDP by hand, bfloat16", module="hand", precision="bfloat16"),
    _ours("ours_bf16", "Trainyard, bfloat16 (default)", "ddp", precision="bfloat16"),
    Entry(
        name="accelerate",
        label="Accelerate",
        module="with_accelerate",
        needs="accelerate",
        framework=True,
    ),
    Entry(
        name="lightning",
        label="Lightning Trainer",
        module="with_lightning",
        needs="lightning",
        framework=True,
    ),
    Entry(
        name="hugging_face",
        label="Hugging Face Trainer",
        module="with_hugging_face",
        needs="transformers",
        framework=True,
    ),
    Entry(name="hand_fsdp", label="FSDP2 by hand", module="hand_fsdp", worlds=(2,)),
    _ours("ours_fsdp", "Trainyard, FSDP2", "fsdp", worlds=(2,)),
    Entry(
        name="hand_fsdp_bf16",
        label="FSDP2 by hand, bfloat16",
        module="hand_fsdp",
        precision="bfloat16",
        worlds=(2,),
    ),
    _ours(
        "ours_fsdp_bf16", "Trainyard, FSDP2, bfloat16", "fsdp", worlds=(2,), precision="bfloat16"
    ),
    *(
        entry
        for stage in (1, 3)
        for entry in (
            Entry(
                name=f"hand_zero{stage}",
                label=f"DeepSpeed ZeRO-{stage} by hand",
                module="hand_deepspeed",
                arguments=(str(stage),),
                worlds=(2,),
                needs="deepspeed",
            ),
            _ours(
                f"ours_zero{stage}",
                f"Trainyard, DeepSpeed ZeRO-{stage}",
                "deepspeed",
                zero=stage,
                worlds=(2,),
                needs="deepspeed",
            ),
        )
    ),
)
"""In the order of the tables."""


def before(checkout: Path) -> tuple[Entry, ...]:
    """Trainyard's own entries once more, by the code of another commit, which lies in ``checkout``.

    Raises:
        ValueError: there is no training job in that folder.
    """
    if not (checkout / "steps/train/job.py").is_file():
        raise ValueError(f"{checkout} is no checkout of Trainyard: steps/train/job.py is missing")
    return tuple(
        replace(
            entry,
            name=entry.name.replace("ours", "before"),
            label=entry.label.replace("Trainyard", "before"),
            checkout=checkout.resolve(),
        )
        for entry in ENTRIES
        if entry.ours
    )


ESSENTIAL = {"hand", "hand_again", "ours", "hand_bf16", "ours_bf16"}
"""Measured even without peers; a failure of one of them is a failure of the benchmark."""
