"""Models with frozen, unused, tied and batch-normalised weights, under each strategy."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.training import worlds
from tests.training.strategies.cases import distance
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


def case(
    root: Path, model: Mapping[str, Any], world: int, differs: Mapping[str, Any], reference: Path
) -> float:
    """Train, and resume from the middle; the distance of the losses from those of ``reference``.

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
