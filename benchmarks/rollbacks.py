"""Simulate canaries that fail more often, or answer worse, and count which are rolled back when.

python -m benchmarks.rollbacks [--trials 1000] [--traffic 4000] [--plot FILE.png]

A canary gets half of the requests, of which 50 are compared at a time; its errors, or the mean of
its answers' quality (exponential, so skewed), are worse by so many standard errors of the whole
traffic. Zero standard errors are equal models: what is rolled back there is a false alarm.
"""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from scipy.stats import beta, norm

from pipelines.endpoint.rollout import ErrorTest, MeanTest
from trainyard.terminal import console, run

LEVEL, BASE, AT_ONCE = 0.05, 0.02, 50
"""Probability of a false roll-back; the serving model's share of errors; requests of a look."""
EFFECTS = (0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Standard errors of the difference, over the whole traffic."""


def fails(effect: float, traffic: int, draw: random.Random) -> int | None:
    """Return after how many requests a canary with more errors is rolled back; None for never."""
    half = traffic / 2
    worse = BASE + effect * math.sqrt(2 * BASE * (1 - BASE) / half)
    test = ErrorTest(LEVEL)
    for done in range(AT_ONCE, traffic + 1, AT_ONCE):
        mine = sum(draw.random() < 0.5 for _ in range(AT_ONCE))
        counts = ((mine, worse), (AT_ONCE - mine, BASE))
        test.add(*((n, sum(draw.random() < rate for _ in range(n))) for n, rate in counts))
        if test.worse:
            return done
    return None


def answers(effect: float, traffic: int, draw: random.Random) -> int | None:
    """Return after how many requests a canary with worse answers is rolled back; None for never."""
    more = effect * math.sqrt(2 / (traffic / 2))
    test = MeanTest(LEVEL, "lower")
    for done in range(AT_ONCE, traffic + 1, AT_ONCE):
        mine = sum(draw.random() < 0.5 for _ in range(AT_ONCE))
        test.add(
            [draw.expovariate(1) + more for _ in range(mine)],
            [draw.expovariate(1) for _ in range(AT_ONCE - mine)],
        )
        if test.worse:
            return done
    return None


KINDS: dict[str, Callable[[float, int, random.Random], int | None]] = {
    "errors": fails,
    "answers": answers,
}


def upper(found: int, trials: int) -> float:
    """Return the upper 95 % limit of a share (Clopper and Pearson 1934)."""
    return 1.0 if found == trials else float(beta.ppf(0.95, found + 1, trials - found))


def fixed(effect: float) -> float:
    """Return the share that the best one-sided test would find that looks once, at the end."""
    return float(norm.cdf(effect - norm.ppf(1 - LEVEL)))


def main(
    trials: int = 1000,
    traffic: int = 4000,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves.")] = None,
) -> None:
    """Simulate roll-backs."""
    draw, curves = random.Random(0), {}
    table = Table("worse in", "by standard errors", "rolled back", "upper 95 %", "one look, best",
                  "median requests to it", box=None)  # fmt: skip
    for kind, simulate in KINDS.items():
        for effect in EFFECTS:
            ends = sorted(e for _ in range(trials) if (e := simulate(effect, traffic, draw)))
            curves[kind, effect] = ends
            table.add_row(
                kind,
                f"{effect:g}",
                f"{len(ends) / trials:.1%}",
                f"{upper(len(ends), trials):.1%}",
                f"{fixed(effect):.1%}",
                str(ends[len(ends) // 2]) if ends else "",
            )
    console.print(table)
    if plot:
        _draw(curves, trials, traffic, plot)


def _draw(curves: dict, trials: int, traffic: int, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(KINDS), figsize=(10, 4), sharey=True, layout="constrained")
    for axis, kind in zip(axes, KINDS, strict=True):
        for effect in EFFECTS:
            ends = curves[kind, effect]
            axis.step(
                [0, *ends, traffic],
                [n / trials for n in [*range(len(ends) + 1), len(ends)]],
                where="post",
                label=f"{effect:g}",
            )
        axis.set(title=f"worse {kind}", xlabel="requests to both models", ylim=(0, 1))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share rolled back")
    handles, labels = axes[0].get_legend_handles_labels()
    title = "standard errors"
    figure.legend(handles, labels, loc="outside right center", title=title, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    run(main)
