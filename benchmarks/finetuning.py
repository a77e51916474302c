"""Train, save and resume fine-tuned models under every strategy, on real ranks (gloo).

python -m benchmarks.finetuning [--only BatchNorm] [--strategy pipeline]

Each model is trained in float64, is resumed from the checkpoint in the middle, and has to come to
the same losses and the same model.safetensors, bit by bit. ``off`` is the largest relative
difference between its losses and those of one process. Exits with 1 when a case fails.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.progress import track

from benchmarks.harness import show_table
from benchmarks.strategies.runs import distance
from tests.training import worlds
from tests.training.trainings import losses, write_ragged

STEPS = 4
SETTINGS: dict[str, Any] = {
    "workload": "toys.tuned",
    "max_steps": STEPS,
    "micro_batch": 2,
    "global_batch": 16,
    "precision": "float64",
    "checkpoint_interval": STEPS // 2,
    "validation_interval": STEPS // 2,
    "ema_decay": 0.9,
}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "frozen embedding": {"frozen": "embedding"},
    "frozen body": {"frozen": "body"},
    "unused weights": {"unused": True},
    "tied": {"tied": True},
    "tied, frozen body": {"tied": True, "frozen": "body"},
    "BatchNorm": {"norm": "batch"},
    "frozen BatchNorm": {"norm": "frozen batch", "frozen": "body"},
    "dropout": {"dropout": 0.3},
    "torch's dropout": {"dropout": 0.3, "kind": "torch"},
    "all of it": {"tied": True, "norm": "batch", "dropout": 0.3, "unused": True},
}
STRATEGIES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "single, recomputed": (1, {"strategy": "single", "activation_checkpointing": "full"}),
    "DDP × 2": (2, {"strategy": "ddp"}),
    "DDP × 4": (4, {"strategy": "ddp"}),
    "FSDP2 × 2": (2, {"strategy": "fsdp"}),
    "hybrid 2 × 2": (4, {"strategy": "fsdp", "shard_degree": 2}),
    "tensor × 2": (2, {"tensor_parallel": 2}),
    "pipeline × 2": (2, {"pipeline_parallel": 2}),
    "pipeline × 2, recomputed": (2, {"pipeline_parallel": 2, "activation_checkpointing": "full"}),
    "FSDP2 × 2, pipeline × 2": (4, {"strategy": "fsdp", "pipeline_parallel": 2}),
    "FSDP2 × 2, tensor × 2": (4, {"strategy": "fsdp", "tensor_parallel": 2}),
}
"""Name → (world size, what differs from SETTINGS)."""


def main(only: str = "", strategy: str = "") -> None:
    models = {name: model for name, model in MODELS.items() if only in name}
    chosen = {n: s for n, s in STRATEGIES.items() if strategy in n or n == "single"}
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        cases = [(model, name) for model in models for name in chosen]
        cells: dict[tuple[str, str], str] = {}
        for model, name in track(cases, "training", transient=True):
            root = Path(scratch) / f"{len(cells)}"
            try:
                reference = Path(scratch) / str(cases.index((model, "single")))
                off = case(root, models[model], *chosen[name], reference)
                cells[model, name] = f"{off:.0e}"
            except (AssertionError, FileNotFoundError) as error:
                failed = True
                cells[model, name] = "[red]fails"
                why = "\n".join(str(error).splitlines()[:1] + tail(root))
                print(f"{model}, {name}: {why}", flush=True)
    rows = ([model, *(cells[model, name] for name in chosen)] for model in models)
    show_table(("model", *chosen), rows, "", 200)
    raise typer.Exit(failed)


def tail(root: Path) -> list[str]:
    """The reason that a training has left, or the last lines of rank 0."""
    places = [root / "output/failure", root / "rank-0.log"]
    return [p.read_text().splitlines()[-1] for p in places if p.is_file() and p.stat().st_size]


def case(
    root: Path, model: Mapping[str, Any], world: int, differs: Mapping[str, Any], reference: Path
) -> float:
    """Train, and resume; the distance of the losses from those of ``reference``.

    Raises:
        AssertionError: the training failed, or the resumed one is another one.
    """
    settings = SETTINGS | differs | {"workload_config": json.dumps(model)}
    write_ragged(root / "input/data/train", 100, seed=1)
    write_ragged(root / "input/data/validation", 10, seed=2)
    worlds.train(root, world, **settings)
    before = losses(root), losses(root, "validation_loss")
    weights = (root / "model/model.safetensors").read_bytes()
    [newest] = root.glob(f"checkpoints/*/step-{STEPS:08d}")
    shutil.rmtree(newest)
    worlds.train(root, world, **settings)
    assert f"from the checkpoint of step {STEPS // 2}" in (root / "rank-0.log").read_text()
    assert (losses(root), losses(root, "validation_loss")) == before, "resumed: other losses"
    same = (root / "model/model.safetensors").read_bytes() == weights
    assert same, "resumed: other weights"
    return max(
        distance(mine, losses(reference, name))
        for mine, name in zip(before, ("loss", "validation_loss"), strict=True)
    )


if __name__ == "__main__":
    typer.run(main)
