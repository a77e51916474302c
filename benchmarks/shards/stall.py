"""The training loop itself, on a small language model: how much of a step is waiting for data?"""

from pathlib import Path

import numpy as np

from benchmarks.harness import Figure, Section, Target
from benchmarks.shards import corpus
from benchmarks.shards.bench import Bench
from benchmarks.shards.contenders import WIDTH

BYTES = 256
"""Tokens of the corpus here, since the model reads bytes."""

LINES = 6
"""Metric lines of the run; the first step is in none of them."""

MODEL = {"context_length": WIDTH - 1, "layers": 2, "heads": 2, "dim": 64}


def measure(bench: Bench) -> Section:
    bench.end_processes()
    lines = _train(_dataset(bench), bench.empty("stall/checkpoints"), bench.sizes.steps)
    lines = [line for line in lines if "data_stall" in line and line["step"] > 1]
    stall = Figure(tuple(line["data_stall"] for line in lines))
    tokens = Figure(tuple(line["units_per_second"] for line in lines))
    batches = Figure(tuple(line["samples_per_second"] for line in lines))
    section = Section("stall", "The training loop on this corpus")
    section.columns = ("", "")
    section.rows = [
        ("waiting for data, % of the time", stall.text(0.01, 4)),
        ("tokens a second", tokens.text(1, 0)),
    ]
    section.targets.append(Target("training loop waits for data", stall, "≤", 0.01, "%"))
    section.data = {
        "data_stall": stall.data(),
        "tokens_per_second": tokens.data(),
        "samples_per_second": batches.data(),
        "model": MODEL,
        "steps": bench.sizes.steps,
    }
    section.notes.append(
        f"training.loop for {bench.sizes.steps} steps of 8 samples of {WIDTH} tokens on a decoder "
        f"of {MODEL['layers']} layers of width {MODEL['dim']}, as small as a model that anybody "
        "trains; the share is the loop's own metric data_stall."
    )
    bench.empty("stall")
    return section


def _dataset(bench: Bench) -> Path:
    from benchmarks.shards.contenders.ours import Contender

    folder = bench.empty("stall")
    corpus.write_tokens(folder / "tokens.bin", bench.sizes.samples, BYTES)
    samples = np.memmap(folder / "tokens.bin", np.uint16, "r").reshape(-1, WIDTH)
    Contender().write(samples, folder / "train")
    return folder / "train"


def _train(folder: Path, checkpoints: Path, steps: int) -> list[dict[str, float]]:
    """The metric lines of a run."""
    from training.checkpoint.checkpoints import Checkpoints
    from training.config import TrainConfig
    from training.data.dataset import Dataset
    from training.loop import Loop
    from training.strategies import started
    from training.workloads import load

    config = TrainConfig(
        strategy="single",
        max_steps=steps,
        global_batch=8,
        micro_batch=8,
        learning_rate=1e-3,
        log_interval=max(1, steps // LINES),
        validation_interval=steps,
        validation_samples=1,
        checkpoint_interval=steps,
        precision="float32",
    )
    lines: list[dict[str, float]] = []
    train = Dataset(folder)
    workload = load("language_model", MODEL)
    with started(config, workload) as strategy:
        saved = Checkpoints(checkpoints, "stall", 1, strategy.ranks)
        Loop(config, workload, strategy, saved, lines.append).train(train, train)
    return lines
