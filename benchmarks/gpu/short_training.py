"""Short trainings of random tokens in this process, by Trainyard's loop and by one written by hand.

bfloat16 by autocast, one device. The shapes are those that the recipes ship, and two of GPT's.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F

from benchmarks.harness import CHECKOUT
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.sample_order import create_uniform_order
from training.data.shard_writer import write_dataset
from training.loop import Loop
from training.strategies import start_strategy
from training.workloads import Workload, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model, and the batch that one GPU takes at once."""

    model: Mapping[str, Any]
    batch: int
    compiled: bool = True
    warm_up: int = 5
    """Steps that are not counted: the first one compiles."""
    steps: int = 10
    """Steps that are: a multiple of ``warm_up``."""

    def workload(self) -> Workload:
        """Return the language model of this shape."""
        return load("language_model", self.model)

    def fresh(self, device: torch.device) -> nn.Module:
        """Return the model with its initial weights, the same each time, made on the device."""
        torch.manual_seed(0)
        with device:
            return self.workload().model()

    def flops(self) -> float:
        """Return the operations per token, forward and backward."""
        workload = self.workload()
        return workload.flops(self.fresh(torch.device("meta")))

    def tokens(self) -> int:
        """Return the tokens of a step."""
        return self.batch * self.model["context_length"]


def _gpt(layers: int, heads: int, dim: int, context: int) -> dict[str, int]:
    """Return a model with GPT-2's 50,257 tokens, rounded up to a multiple of 64 as nanoGPT does."""
    return {"layers": layers, "heads": heads, "dim": dim, "context_length": context,
            "vocabulary": 50_304}  # fmt: skip


GPT2 = Shape(model=_gpt(12, 12, 768, 1024), batch=32, warm_up=10, steps=20)
SMOKE = Shape(
    model={"layers": 1, "heads": 1, "dim": 16, "context_length": 16},
    batch=2,
    compiled=False,
    warm_up=1,
    steps=2,
)
OF_FILE = 32_000
"""Tokens of the tokenizer that recipes/prod.yaml names, ``tokenizers/32k``."""


def shapes() -> dict[str, Shape]:
    """Return name → shape: those of the recipes, each once and largest first, then GPT's."""
    found: dict[str, Shape] = {}
    for path in sorted((CHECKOUT / "recipes").glob("*.yaml"), reverse=True):
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        loop = recipe["train"].get("loop")
        if recipe["workload"]["name"] != "language_model" or loop is None:
            continue
        model = {**recipe["workload"]["config"]} | {"records": "documents"}
        if model.pop("tokenizer") == "file":
            model["vocabulary"] = OF_FILE
        shape = Shape(model=model, batch=loop["micro_batch"], compiled=loop.get("compile", False))
        if shape.model not in [one.model for one in found.values()]:
            found[path.stem] = shape
    found = dict(sorted(found.items(), key=lambda one: -one[1].model["dim"]))
    return found | {"gpt2": GPT2, "1b": Shape(model=_gpt(18, 16, 2048, 2048), batch=8)}


class NoCheckpoints:
    """In the place of ``Checkpoints``: 12 GB at the end of a run are not what is measured."""

    def __enter__(self) -> "NoCheckpoints":
        return self

    def __exit__(self, *_: object) -> None: ...

    def save(self, step: int, state: dict, loss: float | None = None) -> None: ...

    def resume(self, state: Callable) -> None: ...

    def progress(self, step: int) -> dict[str, float]:
        return {}


class WatchedLoop(Loop):
    """The loop, with a context around each step."""

    around: Callable[["WatchedLoop"], AbstractContextManager]

    def _train_step(self, *given: Any) -> None:
        with self.around(self):
            super()._train_step(*given)


def trained(
    shape: Shape,
    train: Dataset,
    around: Callable[[WatchedLoop], AbstractContextManager] = lambda loop: nullcontext(),
    **settings: Any,
) -> list[dict[str, float]]:
    """Train by Trainyard's loop; return its metric lines."""
    lines: list[dict[str, float]] = []
    steps = shape.warm_up + shape.steps
    asked = {
        **{"strategy": "single", "max_steps": steps, "compile": shape.compiled},
        **{"global_batch": shape.batch, "micro_batch": shape.batch, "learning_rate": 3e-4},
        **{"min_learning_rate_ratio": 1.0, "log_interval": shape.warm_up},
        **{"validation_interval": steps, "validation_samples": 1},
    }
    config, workload = TrainConfig.model_validate(asked | settings), shape.workload()
    with start_strategy(config, workload) as strategy:
        model = shape.fresh(strategy.ranks.device)
        given = config, workload, strategy, NoCheckpoints(), lines.append
        loop = WatchedLoop(*given, model=model)
        loop.around = around
        loop.train(train, train)
    return lines


def by_hand(shape: Shape, train: Dataset, device: torch.device) -> tuple[float, float]:
    """Train by a loop like nanoGPT's, without synchronisation between the steps.

    Its blocks are compiled one by one, as torchtitan does it: a fifth of the time of a whole model.

    Returns (tokens a second after the warm-up, the last loss).
    """
    model = shape.fresh(device)
    for block in shape.workload().blocks(model) if shape.compiled else ():
        block.compile()
    wide = [p for p in model.parameters() if p.dim() >= 2]
    narrow = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    began, loss = 0.0, torch.zeros(())
    for step, tokens in enumerate(_batches(shape, train, device)):
        if step == shape.warm_up:
            _wait(device)
            began = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    _wait(device)
    return shape.steps * shape.tokens() / (time.perf_counter() - began), loss.item()


def random_tokens(shape: Shape, folder: Path) -> Dataset:
    """Write as many samples as the steps of a shape take, without an end token."""
    workload = shape.workload()
    packing, samples = workload.packing, shape.batch * (shape.warm_up + shape.steps)
    most = shape.model.get("vocabulary", packing.tokenizer.size) - 1
    size = samples, packing.width
    tokens = np.random.default_rng(0).integers(0, most, size).astype(packing.dtype)
    tokens += tokens >= packing.tokenizer.end  # ends would be padding, which has no loss
    write_dataset(folder, {"tokens": tokens}, packing.fields, shard_bytes=64_000_000,
                  workload=packing.info)  # fmt: skip
    return Dataset(folder)


def _batches(shape: Shape, train: Dataset, device: torch.device) -> Iterator[torch.Tensor]:
    """Yield batches in the order in which Trainyard's loader gives them."""
    indices = create_uniform_order(train.fingerprint, 0, len(train)).indices_at(
        np.arange(len(train))
    )
    for batch in np.split(indices, shape.warm_up + shape.steps):
        tokens = torch.from_numpy(train.read(batch)["tokens"]).long()
        if device.type == "cuda":
            tokens = tokens.pin_memory()
        yield tokens.to(device, non_blocking=True)


def forget(device: torch.device) -> None:
    """Free what the training before has left: compiled code, and the allocator's memory."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
