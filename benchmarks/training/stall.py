"""How long a checkpoint stops the training, against a plain torch.save of the same state."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.harness import Figure, Section, Target
from training.checkpoint.checkpoints import Checkpoints
from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Single
from training.workloads import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    layers: int = 6
    heads: int = 6
    dim: int = 384
    context_length: int = 128


def measure(scratch: Path, rounds: int, model: Model = Model()) -> Section:
    """Save of ours, of torch.save with and without fsync, in turns; none overlaps another.

    Ours is measured until ``save`` returns; its files are then waited for and not counted: they
    are written while the training goes on. The first save allocates the copy, and is given apart.
    One thread, as each rank has in the other sections: two that wait for each other on a busy
    machine measure the machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measure(scratch, rounds, model)
    finally:
        torch.set_num_threads(threads)


def _measure(scratch: Path, rounds: int, model: Model) -> Section:
    strategy = _trained(model)
    checkpoints = Checkpoints(scratch / "checkpoints", "stall", 1, strategy.ranks)
    path = scratch / "plain.pt"
    measures: dict[str, Callable[[], None]] = {
        "torch.save": lambda: _plain(strategy, path, fsync=False),
        "torch.save and fsync": lambda: _plain(strategy, path, fsync=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", "ours, CPU", *measures)}
    whole: list[float] = []
    first, *_ = _save(checkpoints, strategy, 0)
    for number in range(1, rounds + 1):
        stall, cpu, complete = _save(checkpoints, strategy, number)
        seconds["ours"].append(stall)
        seconds["ours, CPU"].append(cpu)
        whole.append(complete)
        for name, save in measures.items():
            began = time.perf_counter()
            save()
            seconds[name].append(time.perf_counter() - began)
    size = sum(tensor.numel() * tensor.element_size() for tensor in strategy.state().values())
    shutil.rmtree(scratch / "checkpoints")
    path.unlink()
    figures = {name: Figure(tuple(values)) for name, values in seconds.items()}
    return _section(figures, Figure(tuple(whole)), first, size)


def _section(figures: dict[str, Figure], whole: Figure, first: float, size: int) -> Section:
    ours = figures["ours"]
    section = Section("stall", f"A checkpoint of {size / 1e6:.0f} MB stops the training for")
    section.columns = ("", "ms", "Trainyard ÷ it")
    for name, figure in figures.items():
        ratio = "" if name.startswith("ours") else ours.over(figure).text(1, 3)
        section.rows.append((name, figure.text(1e-3, 1), ratio))
    section.rows.append(("ours, the first one", f"{first * 1e3:.1f}", ""))
    section.rows.append(("ours, until the files are complete", whole.text(1e-3, 0), ""))
    for name in ("torch.save", "torch.save and fsync"):
        section.targets.append(
            Target(f"checkpoint stall ÷ {name}", ours.over(figures[name]), "≤", 0.2)
        )
    section.data = {name: figure.data() for name, figure in figures.items()}
    section.data |= {"first": first, "complete": whole.data(), "state_bytes": size}
    return section


def _trained(model: Model) -> Single:
    """A strategy with the optimizer's state as after a step."""
    config = TrainConfig(
        strategy="single", max_steps=1, global_batch=1, micro_batch=1, learning_rate=1e-3
    )
    settings = {name: getattr(model, name) for name in Model.__slots__}
    workload = load("language_model", settings)
    strategy = Single(config, workload, Ranks(0, 0, 1, torch.device("cpu")))
    strategy.prepare(workload.model())
    strategy.state()
    return strategy


def _save(checkpoints: Checkpoints, strategy: Single, step: int) -> tuple[float, float, float]:
    """Seconds and CPU seconds of this thread that the training stood still; until complete."""
    began, cpu = time.perf_counter(), time.thread_time()
    checkpoints.save(step, strategy.state())
    stall, cpu = time.perf_counter() - began, time.thread_time() - cpu
    checkpoints.finish()
    return stall, cpu, time.perf_counter() - began


def _plain(strategy: Single, path: Path, *, fsync: bool) -> None:
    state = {
        "model": strategy.model.state_dict(),
        "optimizer": strategy.optimizer.state_dict(),
    }
    with path.open("wb") as file:
        torch.save(state, file)
        if fsync:
            file.flush()
            os.fsync(file.fileno())
