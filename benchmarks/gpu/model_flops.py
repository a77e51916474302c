"""Model FLOPs utilisation of the shapes that ship, beside a loop written by hand.

Both loops train in turns in one process, and who begins changes. All shapes have a round before any
has two: a section that is out of time has fewer rounds. The peak is that of dense products in
bfloat16 (``training.watching.step_progress.PEAKS``: NVIDIA's data sheets; H100 and H200 SXM 989
TFLOP/s).
"""

import time
from collections.abc import Iterator
from statistics import harmonic_mean

import torch

from benchmarks.gpu.findings import LATE, Finding, Frame, contained
from benchmarks.gpu.short_training import (
    SMOKE,
    Shape,
    by_hand,
    forget,
    random_tokens,
    shapes,
    trained,
)
from benchmarks.harness import Figure
from training.data.dataset import Dataset
from training.watching.step_progress import peak

ROUNDS = 3
SLOWER = 7.0, "as far as rounds of equal loops are apart on a processor (benchmarks/README.md)"
SAME = 1e-2, "both loops begin with the same weights and samples; bfloat16 rounds to 2^-8"


def ours(shape: Shape, train: Dataset, device: torch.device) -> tuple[float, float]:
    """Return (tokens a second after the warm-up, the last loss) of Trainyard's loop."""
    lines = [line for line in trained(shape, train) if "loss" in line]
    counted = [line["units_per_second"] for line in lines if line["step"] > shape.warm_up]
    return harmonic_mean(counted), lines[-1]["loss"]  # as many steps in each line


LOOPS = {"ours": ours, "by hand": by_hand}


def findings(frame: Frame) -> Iterator[Finding]:
    """Yield each shape's figures after each of its rounds, and the shapes that had no time."""
    measured = {"smoke": SMOKE} if frame.smoke else shapes()
    data = {name: random_tokens(one, frame.scratch / name) for name, one in measured.items()}
    speeds = {name: {loop: list[float]() for loop in LOOPS} for name in measured}
    took: dict[str, float] = {}
    for number in range(1 if frame.smoke else ROUNDS):
        for name, shape in measured.items():
            began = time.monotonic()
            if began + took.get(name, max(took.values(), default=0)) < frame.until:
                loops = [*LOOPS][:: -1 if number % 2 else 1]
                one = told(name, shape, data[name], loops, speeds[name], frame.device)
                yield from contained(name, one)
                took[name] = time.monotonic() - began
    for name in measured.keys() - took.keys():
        yield Finding.without(f"{name}: MFU", LATE)


def told(
    name: str,
    shape: Shape,
    train: Dataset,
    loops: list[str],
    speeds: dict[str, list[float]],
    device: torch.device,
) -> Iterator[Finding]:
    """Measure a shape once more; yield what its rounds say so far."""
    found = {}
    for loop in loops:
        forget(device)
        found[loop] = LOOPS[loop](shape, train, device)
    for loop, (speed, _) in found.items():
        speeds[loop].append(speed)
    mine, hand = (Figure(tuple(speeds[loop])) for loop in LOOPS)
    yield Finding(what=f"{name}: tokens/s", rounds=mine.rounds)
    ratio = mine.over(hand)
    yield Finding(what=f"{name}: ÷ by hand", rounds=ratio.rounds, quoted=True)
    if shape.compiled:  # a toy's step is shorter than what the host does in it
        late = 100 * max(0.0, 1 - ratio.median)
        yield Finding.held(f"{name}: slower than by hand", late, *SLOWER, unit="%")
    if (most := peak(device)) is not None:
        used = tuple(100 * speed * shape.flops() / most for speed in mine.rounds)
        yield Finding(what=f"{name}: MFU", rounds=used, unit="%", quoted=True)
    else:
        yield Finding(what=f"{name}: MFU", text="the device's peak is not known")
    apart = found["ours"][1] / found["by hand"][1] - 1
    yield Finding.held(f"{name}: last loss ÷ by hand − 1", apart, *SAME, of_gpu=False)
