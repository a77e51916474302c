"""Simulate canaries that fail more often, or answer worse, and count which are rolled back when.

python -m benchmarks.rollbacks [--trials 1000] [--traffic 4000] [--plot FILE.png]

A canary gets half of the requests, of which 50 are compared at a time; its errors, or the mean of
its answers' quality (exponential, so skewed), are worse by so many standard errors of the whole
traffic. Zero standard errors are equal models: what is rolled back there is a false alarm.
"""

import math
import random
from pathlib import Path
from typing import Annotated

import typer
from scipy.stats import norm

from benchmarks.harness import compute_rate, show_table, track_steps
from pipelines.endpoint.rollout import ErrorTest, MeanTest

LEVEL, BASE, AT_ONCE = 0.05, 0.02, 50
"""Probability of a false roll-back; the serving model's error rate; requests between two looks."""
EFFECTS = (0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Standard errors of the difference, over the whole traffic."""
KINDS = ("errors", "answers")


def simulate_canary(kind: str, effect: float, traffic: int, draw: random.Random) -> int | None:
    """Return after how many requests a worse canary is rolled back; None for never."""
    half = traffic / 2
    worse = BASE + effect * math.sqrt(2 * BASE * (1 - BASE) / half)
    more = effect * math.sqrt(2 / half)
    test = ErrorTest(LEVEL) if kind == "errors" else MeanTest(LEVEL, "lower")
    for done in range(AT_ONCE, traffic + 1, AT_ONCE):
        mine = sum(draw.random() < 0.5 for _ in range(AT_ONCE))
        if kind == "errors":
            counts = ((mine, worse), (AT_ONCE - mine, BASE))
            test.add(*((n, sum(draw.random() < share for _ in range(n))) for n, share in counts))
        else:
            canary = [draw.expovariate(1) + more for _ in range(mine)]
            test.add(canary, [draw.expovariate(1) for _ in range(AT_ONCE - mine)])
        if test.is_worse:
            return done
    return None


def main(
    trials: int = 1000,
    traffic: int = 4000,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves.")] = None,
) -> None:
    """Simulate roll-backs."""
    draw, curves, rows = random.Random(0), {}, []
    for kind, effect in track_steps("canaries", [(k, e) for k in KINDS for e in EFFECTS]):
        found = [simulate_canary(kind, effect, traffic, draw) for _ in range(trials)]
        ends = curves[kind, effect] = sorted(one for one in found if one)
        best = norm.cdf(effect - norm.ppf(1 - LEVEL))  # of a one-sided test that looks once
        median = str(ends[len(ends) // 2]) if ends else ""
        share = compute_rate([one is not None for one in found]).text(0.01, 1)
        rows.append((kind, f"{effect:g}", share, f"{best:.1%}", median))
    columns = ("worse in", "by standard errors", "rolled back, % (95 %)", "one look, best",
               "median requests to it")  # fmt: skip
    show_table(columns, rows)
    if plot:
        _plot_curves(curves, trials, traffic, plot)


def _plot_curves(curves: dict, trials: int, traffic: int, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(KINDS), figsize=(10, 4), sharey=True, layout="constrained")
    for axis, kind in zip(axes, KINDS, strict=True):
        for effect in EFFECTS:
            ends = curves[kind, effect]
            shares = [n / trials for n in [*range(len(ends) + 1), len(ends)]]
            axis.step([0, *ends, traffic], shares, where="post", label=f"{effect:g}")
        axis.set(title=f"worse {kind}", xlabel="requests to both models", ylim=(0, 1))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share rolled back")
    handles, labels = axes[0].get_legend_handles_labels()
    title = "standard errors"
    figure.legend(handles, labels, loc="outside right center", title=title, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
