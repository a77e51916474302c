"""MFU of the shapes that ship, by short trainings of random tokens beside a loop written by hand.

Both loops train in turns in one process, in bfloat16 by autocast, and who begins changes. All
shapes have a round before any has two. The peak is that of dense products in bfloat16
(``training.watching.step_progress.PEAKS``).
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F

from benchmarks.gpu.findings import LATE, Finding, Frame, contain_failures
from benchmarks.harness import CHECKOUT, Figure
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.sample_order import create_uniform_order
from training.data.shard_writer import write_dataset
from training.loop import Loop
from training.strategies import start_strategy
from training.watching.step_progress import find_device_peak
from training.workloads import Workload, load_workload

ROUNDS = 3
SLOWER = 7.0, "as far as rounds of equal loops are apart on a processor (benchmarks/README.md)"
SAME = 1e-2, "both loops begin with the same weights and samples; bfloat16 rounds to 2^-8"
OF_FILE = 32_000  # tokens of the tokenizer that recipes/prod.yaml names


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model, its batch on one GPU, and the number of steps to train."""

    model: Mapping[str, Any]
    batch: int
    compiled: bool = True
    warm_up: int = 5
    """Steps that are not counted: the first one compiles. ``steps`` are a multiple of it."""
    steps: int = 10

    def workload(self) -> Workload:
        return load_workload("language_model", self.model)

    def make_model(self, device: torch.device) -> nn.Module:
        """Return a model on the device, with the same initial weights each time."""
        torch.manual_seed(0)
        with device:
            return self.workload().model()


GPT = {"layers": 12, "heads": 12, "dim": 768, "context_length": 1024, "vocabulary": 50_304}
"""GPT-2's, with its 50,257 tokens rounded up to a multiple of 64, as nanoGPT does."""
BILLION = GPT | {"layers": 18, "heads": 16, "dim": 2048, "context_length": 2048}
GPT2 = Shape(model=GPT, batch=32, warm_up=10, steps=20)
TINY = {"layers": 1, "heads": 1, "dim": 16, "context_length": 16}
SMOKE = Shape(model=TINY, batch=2, compiled=False, warm_up=1, steps=2)


class NoCheckpoints(nullcontext):
    """Stand-in for ``Checkpoints``: writing 12 GB at the end of a run is not to be measured."""

    save = resume = lambda *_: None
    collect_metrics = lambda *_: {}  # noqa: E731


class WatchedLoop(Loop):
    """Trainyard's loop, with a context manager around each step."""

    around: Callable[["WatchedLoop"], AbstractContextManager]

    def _train_step(self, *given: Any) -> None:
        with self.around(self):
            super()._train_step(*given)


def train_shape(
    shape: Shape,
    train: Dataset,
    around: Callable[[WatchedLoop], AbstractContextManager] = lambda loop: nullcontext(),
    **settings: Any,
) -> list[dict[str, float]]:
    """Train a shape with Trainyard's loop; return its lines of metrics."""
    lines: list[dict[str, float]] = []
    steps = shape.warm_up + shape.steps
    defaults = {
        **{"strategy": "single", "max_steps": steps, "compile": shape.compiled},
        **{"global_batch": shape.batch, "micro_batch": shape.batch, "learning_rate": 3e-4},
        **{"min_learning_rate_ratio": 1.0, "log_interval": shape.warm_up},
        **{"validation_interval": steps, "validation_samples": 1},
    }
    free_memory()
    config, workload = TrainConfig.model_validate(defaults | settings), shape.workload()
    with start_strategy(config, workload) as strategy:
        model = shape.make_model(strategy.ranks.device)
        given = config, workload, strategy, NoCheckpoints(), lines.append
        loop = WatchedLoop(*given, model=model)
        loop.around = around
        loop.train(train, train)
    return lines


def write_tokens(shape: Shape, folder: Path, samples: int = 0, split: str = "") -> Dataset:
    """Write ``samples`` random samples, by default all steps' of the shape, without end tokens."""
    packing = shape.workload().packing
    samples = samples or shape.batch * (shape.warm_up + shape.steps)
    most = shape.model.get("vocabulary", packing.tokenizer.size) - 1
    size = samples, packing.width
    tokens = np.random.default_rng(0).integers(0, most, size).astype(packing.dtype)
    tokens += tokens >= packing.tokenizer.end  # ends would be padding, which has no loss
    options = {"shard_bytes": 64_000_000, "workload": packing.info}
    options |= {"split": split} if split else {}
    write_dataset(folder, {"tokens": tokens}, packing.fields, **options)
    return Dataset(folder)


def free_memory() -> None:
    """Free what the previous training left: compiled code, and the allocator's memory."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()  # nothing without a GPU


def load_shapes() -> dict[str, Shape]:
    """Return name → shape: that of recipes/prod.yaml, then those of GPT-2 and a larger GPT."""
    recipe = yaml.safe_load((CHECKOUT / "recipes/prod.yaml").read_text(encoding="utf-8"))
    model = {**recipe["workload"]["config"]} | {"records": "documents", "vocabulary": OF_FILE}
    del model["tokenizer"]
    loop = recipe["train"]["loop"]
    prod = Shape(model=model, batch=loop["micro_batch"], compiled=loop["compile"])
    return {"prod": prod, "gpt2": GPT2, "1b": Shape(model=BILLION, batch=8)}


def measure_own_loop(shape: Shape, train: Dataset, device: torch.device) -> tuple[float, float]:
    """Return (tokens a second after the warm-up, the last loss) of Trainyard's loop."""
    lines = [line for line in train_shape(shape, train) if "loss" in line]
    counted = [line["units_per_second"] for line in lines if line["step"] > shape.warm_up]
    return harmonic_mean(counted), lines[-1]["loss"]  # as many steps in each line


def measure_by_hand(shape: Shape, train: Dataset, device: torch.device) -> tuple[float, float]:
    """Return the same for a loop like nanoGPT's, which does not synchronise between steps.

    Its blocks are compiled one by one, as torchtitan does it: a fifth of the time of a whole model.
    """
    free_memory()
    model = shape.make_model(device)
    for block in shape.workload().blocks(model) if shape.compiled else ():
        block.compile()
    sides = [[p for p in model.parameters() if (p.dim() < 2) == narrow] for narrow in (0, 1)]
    groups = [{"params": p, "weight_decay": d} for p, d in zip(sides, (0.1, 0.0), strict=True)]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    began, loss = 0.0, torch.zeros(())
    for step, tokens in enumerate(iter_batches(shape, train, device)):
        if step == shape.warm_up:
            wait_for_device(device)
            began = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    wait_for_device(device)
    counted = shape.steps * tokens.shape[0] * (tokens.shape[1] - 1)
    return counted / (time.perf_counter() - began), loss.item()


def iter_batches(shape: Shape, train: Dataset, device: torch.device) -> Iterator[torch.Tensor]:
    """Yield the batches in the order in which Trainyard's loader gives them."""
    order = create_uniform_order(train.fingerprint, 0, len(train))
    for batch in np.split(order.indices_at(np.arange(len(train))), shape.warm_up + shape.steps):
        tokens = torch.from_numpy(train.read(batch)["tokens"]).long()
        if device.type == "cuda":
            tokens = tokens.pin_memory()
        yield tokens.to(device, non_blocking=True)


def wait_for_device(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


LOOPS = {"ours": measure_own_loop, "by hand": measure_by_hand}


def count_flops(shape: Shape) -> float:
    """Return the number of floating-point operations per token."""
    return shape.workload().flops(shape.make_model(torch.device("meta")))


def iter_mfu_findings(frame: Frame) -> Iterator[Finding]:
    """Yield each shape's figures after each of its rounds, and the shapes without time for one."""
    measured = {"smoke": SMOKE} if frame.smoke else load_shapes()
    data = {name: write_tokens(one, frame.scratch / name) for name, one in measured.items()}
    speeds = {name: {loop: list[float]() for loop in LOOPS} for name in measured}
    took: dict[str, float] = {}
    for number in range(1 if frame.smoke else ROUNDS):
        for name, shape in measured.items():
            began = time.monotonic()
            if began + took.get(name, max(took.values(), default=0)) < frame.until:
                loops = [*LOOPS][:: -1 if number % 2 else 1]
                given = shape, data[name], loops, speeds[name], frame.device
                yield from contain_failures(name, measure_round(f"{name}: ", *given))
                took[name] = time.monotonic() - began
    for name in measured.keys() - took.keys():
        yield Finding(what=f"{name}: MFU", text=LATE, of_gpu=False)


def measure_round(
    name: str,
    shape: Shape,
    train: Dataset,
    loops: list[str],
    speeds: dict[str, list[float]],
    device: torch.device,
) -> Iterator[Finding]:
    """Measure a shape once more with each loop; yield its findings over all rounds so far."""
    losses = {}
    for loop in loops:
        speed, losses[loop] = LOOPS[loop](shape, train, device)
        speeds[loop].append(speed)
    mine, hand = (Figure(tuple(speeds[loop])) for loop in LOOPS)
    yield Finding(what=f"{name}tokens/s", rounds=mine.rounds)
    ratio = mine.divide_by(hand)
    yield Finding(what=f"{name}÷ by hand", rounds=ratio.rounds)
    if shape.compiled:  # a toy's step is shorter than what the host does in it
        late = 100 * max(0.0, 1 - ratio.median)
        yield Finding.from_bound(f"{name}slower than by hand", late, *SLOWER, unit="%")
    if (most := find_device_peak(device)) is not None:
        used = tuple(100 * speed * count_flops(shape) / most for speed in mine.rounds)
        yield Finding(what=f"{name}MFU", rounds=used, unit="%")
    apart = losses["ours"] / losses["by hand"] - 1
    yield Finding.from_bound(f"{name}last loss ÷ by hand − 1", apart, *SAME, of_gpu=False)
