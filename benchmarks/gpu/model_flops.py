"""Model FLOPs utilisation of the shapes that ship, beside a loop written by hand.

Both loops train in turns in one process, all shapes once a round, so a section that is out of time
has fewer rounds and not fewer shapes. The device's peak is that of dense products in bfloat16, by
NVIDIA's data sheets (``training.watching.step_progress.PEAKS``; H100 and H200 SXM: 989 TFLOP/s).
"""

import time
from collections import defaultdict
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
SAME = 1e-2
"""Both loops begin with the same weights and samples; bfloat16 rounds to 2^-8."""


def findings(frame: Frame) -> Iterator[Finding]:
    """Yield each shape's figures after each of its rounds, and the shapes that had no time."""
    measured = {"smoke": SMOKE} if frame.smoke else shapes()
    data = {name: random_tokens(one, frame.scratch / name) for name, one in measured.items()}
    speeds: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    took: dict[str, float] = {}
    for _ in range(1 if frame.smoke else ROUNDS):
        for name, shape in measured.items():
            began = time.monotonic()
            if began + took.get(name, 0) < frame.until:
                one = told(name, shape, data[name], speeds[name], frame.device)
                yield from contained(name, one)
                took[name] = time.monotonic() - began
    for name in measured.keys() - took.keys():
        yield Finding.without(f"{name}: MFU", LATE)


def pair(
    shape: Shape, train: Dataset, device: torch.device
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return tokens a second, and the last loss, of Trainyard's loop and of the one by hand."""
    forget(device)
    counted = [line for line in trained(shape, train)
               if line["step"] > shape.warm_up and "loss" in line]  # fmt: skip
    # As many steps in each line: the mean of their times.
    ours = harmonic_mean([line["units_per_second"] for line in counted])
    forget(device)
    theirs, loss = by_hand(shape, train, device)
    return (ours, theirs), (counted[-1]["loss"], loss)


def told(
    name: str,
    shape: Shape,
    train: Dataset,
    speeds: list[tuple[float, float]],
    device: torch.device,
) -> Iterator[Finding]:
    """Measure a shape once more; yield what its rounds say so far."""
    tokens, losses = pair(shape, train, device)
    speeds.append(tokens)
    ours, by_hand_ = (Figure(each) for each in zip(*speeds, strict=True))
    yield Finding(what=f"{name}: tokens/s", rounds=ours.rounds)
    yield Finding(what=f"{name}: ÷ by hand", rounds=ours.over(by_hand_).rounds, quoted=True)
    if (most := peak(device)) is not None:
        used = tuple(100 * speed * shape.flops() / most for speed in ours.rounds)
        yield Finding(what=f"{name}: MFU", rounds=used, unit="%", quoted=True)
    else:
        yield Finding(what=f"{name}: MFU", text="the device's peak is not known")
    apart = losses[0] / losses[1] - 1
    why = "both loops train the same; bfloat16 rounds to 2^-8"
    yield Finding.held(f"{name}: last loss ÷ by hand − 1", apart, SAME, why, of_gpu=False)
