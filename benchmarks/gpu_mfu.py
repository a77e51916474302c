"""Measure tokens a second and MFU on one GPU: Trainyard's loop and a hand-written one.

python -m benchmarks.gpu_mfu [--json FILE] [--only gpt2,1b] [--rounds 3]

bfloat16 by autocast, torch.compile, random tokens; both contenders in turns, in one process.
Without a GPU it says so and exits with status 0; ``--smoke`` runs it all on a tiny model without
compiling.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import harmonic_mean
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import torch
import typer
from torch.nn import functional as F

from benchmarks.harness import Figure, JsonFile, chosen, keep, show_figures
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.manifest import Field
from training.data.sample_order import uniform
from training.data.shard_writer import write_dataset
from training.loop import Loop
from training.strategies import started
from training.watching.step_progress import peak_of
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and the batch that one GPU takes at once."""

    layers: int
    heads: int
    dim: int
    context_length: int
    batch: int
    vocabulary: int = 50_304
    """GPT-2's 50,257, rounded up to a multiple of 64 as nanoGPT does."""
    warm_up: int = 10
    """Steps that are not counted: the first ones compile."""
    steps: int = 20
    """Steps that are: a multiple of ``warm_up``."""


SIZES = {
    "gpt2": Size(layers=12, heads=12, dim=768, context_length=1024, batch=32),
    "1b": Size(layers=18, heads=16, dim=2048, context_length=2048, batch=8),
}
SMOKE = {
    "smoke": Size(
        layers=1, heads=2, dim=16, context_length=16, batch=2, vocabulary=64, warm_up=1, steps=2
    )
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class NoCheckpoints:
    """In the place of ``Checkpoints``: 12 GB at the end of a run are not what is measured."""

    def __enter__(self) -> "NoCheckpoints":
        return self

    def __exit__(self, *_: object) -> None: ...

    def save(self, step: int, state: dict, loss: float | None = None) -> None: ...

    def resume(self, state: Callable) -> None: ...

    def progress(self, step: int) -> dict[str, float]:
        return {}


@app.command()
def main(
    json_file: JsonFile = None,
    only: Annotated[str, typer.Option(help="Models: gpt2,1b; default: both.")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    smoke: Annotated[bool, typer.Option(help="A tiny model on any machine: does it run?")] = False,
) -> None:
    """Measure both loops."""
    if not smoke and not torch.cuda.is_available():
        print("no CUDA device here: nothing is measured (--smoke runs it on a CPU)")
        return
    sizes = SMOKE if smoke else SIZES
    names = chosen(only, sizes)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    most = peak_of(name)
    found = {"device": name, "peak": most, "torch": torch.__version__, "models": {}}
    for model in names:
        with tempfile.TemporaryDirectory(prefix="gpu-mfu-") as folder:
            measured = measure(sizes[model], Path(folder), rounds, compiled=not smoke)
        show(model, measured, most)
        found["models"][model] = data(sizes[model], measured, most)
    keep(json_file, found)


def measure(size: Size, folder: Path, rounds: int, *, compiled: bool) -> dict:
    """Tokens a second of both loops, one figure a round; their losses."""
    train = _random_tokens(size, folder)
    tokens: dict[str, list[float]] = {"ours": [], "by hand": []}
    losses: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in (("ours", ours), ("by hand", by_hand)):
            speed, losses[name] = run(size, train, compiled)
            tokens[name].append(speed)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return {
        "tokens": {name: Figure(tuple(values)) for name, values in tokens.items()},
        "losses": losses,
        "flops": _workload(size).flops(_workload(size).model()),
    }


def ours(size: Size, train: Dataset, compiled: bool) -> tuple[float, float]:
    """(tokens a second after the warm-up, the last loss) of ``training.loop``."""
    lines: list[dict[str, float]] = []
    config = _config(size, compiled)
    workload = _workload(size)
    with started(config, workload) as strategy:
        Loop(config, workload, strategy, NoCheckpoints(), lines.append).train(train, train)
    counted = [line for line in lines if line["step"] > size.warm_up and "loss" in line]
    # As many steps in each line: the mean of their times.
    return harmonic_mean([line["units_per_second"] for line in counted]), counted[-1]["loss"]


def by_hand(size: Size, train: Dataset, compiled: bool) -> tuple[float, float]:
    """Measure a loop like nanoGPT's: no synchronisation between the steps."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = raw = _workload(size).model().to(device)
    if compiled:
        model = torch.compile(raw)
    wide = [p for p in raw.parameters() if p.dim() >= 2]
    narrow = [p for p in raw.parameters() if p.dim() < 2]
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    for step, tokens in enumerate(_batches(size, train, device)):
        if step == size.warm_up:
            _wait(device)
            began = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    _wait(device)
    seconds = time.perf_counter() - began
    return size.steps * size.batch * size.context_length / seconds, loss.item()


def show(name: str, measured: dict, most: float | None) -> None:
    """A table of both loops."""
    rows = []
    for contender, speed in measured["tokens"].items():
        share = speed.text(most / measured["flops"] / 100, 1) if most else "unknown peak"
        ratio = speed.over(measured["tokens"]["by hand"]).text()
        rows.append((contender, speed.text(1, 0), share, ratio))
    show_figures(("", "tokens/s", "MFU, %", "÷ by hand"), rows, name)


def data(size: Size, measured: dict, most: float | None) -> dict:
    """Return the figures as JSON types."""
    speeds = measured["tokens"]
    return {
        "size": asdict(size),
        "flops_per_token": measured["flops"],
        "tokens_per_second": {name: speed.data() for name, speed in speeds.items()},
        "mfu": {n: most and s.median * measured["flops"] / most for n, s in speeds.items()},
        "last_loss": measured["losses"],
    }


def _config(size: Size, compiled: bool) -> TrainConfig:
    steps = size.warm_up + size.steps
    return TrainConfig(
        strategy="single",
        max_steps=steps,
        global_batch=size.batch,
        micro_batch=size.batch,
        learning_rate=3e-4,
        min_learning_rate_ratio=1.0,
        log_interval=size.warm_up,
        validation_interval=steps,
        validation_samples=1,
        compile=compiled,
    )


def _workload(size: Size) -> Workload:
    """The language model's, with a vocabulary that no tokenizer stands behind."""
    names = ("layers", "heads", "dim", "context_length")
    config = LanguageModelConfig(**{name: getattr(size, name) for name in names})
    tokenizer = SimpleNamespace(size=size.vocabulary, end=size.vocabulary - 1)
    return Workload(SimpleNamespace(config=config, tokenizer=tokenizer))


def _random_tokens(size: Size, folder: Path) -> Dataset:
    samples = size.batch * (size.warm_up + size.steps)
    width = size.context_length + 1
    tokens = np.random.default_rng(0).integers(0, size.vocabulary - 1, (samples, width), np.uint16)
    fields = {"tokens": Field(dtype="uint16", shape=(width,))}
    write_dataset(folder, {"tokens": tokens}, fields, shard_bytes=64_000_000)
    return Dataset(folder)


def _batches(size: Size, train: Dataset, device: str) -> Iterator[torch.Tensor]:
    """Yield batches in the order in which Trainyard's loader gives them."""
    indices = uniform(train.fingerprint, 0, len(train)).at(np.arange(len(train)))
    for batch in np.split(indices, size.warm_up + size.steps):
        tokens = torch.from_numpy(train.read(batch)["tokens"]).long()
        if device == "cuda":
            tokens = tokens.pin_memory()
        yield tokens.to(device, non_blocking=True)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    app()
