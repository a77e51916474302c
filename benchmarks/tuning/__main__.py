"""Measure the hyperparameter search where the optimum is known.

python -m benchmarks.tuning

The strategies alone on 12 tables against optuna alone; what Hyperband and early stopping spare on
made-up curves. Regret is 0 at a table's optimum and 1 at its median. Spread is over tables and
seeds: the middle half.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.harness import JsonFile, keep, screen
from benchmarks.tuning.searches import NAMES, RULES, SEARCHERS, Table, load, searched, units

AT = (10, 20, 30, 60)


def main(
    trials: Annotated[int, typer.Option(help="Of each search.")] = 60,
    seeds: Annotated[int, typer.Option(help="Searches of each table.")] = 10,
    tables: Annotated[int, typer.Option(help="So many of the 12.")] = len(NAMES),
    json_file: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the regret into this PNG.")] = None,
) -> None:
    """Print tables of regret and of units of resource."""
    console = screen(160)
    found = [load(name) for name in NAMES[:tables]]
    regrets, took = _regrets(found, trials, seeds)
    _show_regrets(console, regrets, took)
    spent = {rule: np.array([[units(table, RULES[rule], seed) for seed in range(seeds)]
                             for table in found]) for rule in RULES}  # fmt: skip
    _show_units(console, spent)
    found = {name: values.tolist() for name, values in regrets.items()}
    units_spent = {name: values.tolist() for name, values in spent.items()}
    keep(json_file, {"regret": found, "milliseconds": took, "units": units_spent})
    if plot:
        _draw(plot, regrets)


def _regrets(
    found: list[Table], trials: int, seeds: int
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Searcher → (tables, seeds, trials), and milliseconds a suggestion."""
    regrets, took = {}, {}
    for name in SEARCHERS:
        runs = [[searched(table, name, trials, seed) for seed in range(seeds)] for table in found]
        regrets[name] = np.array([[run.regrets for run in row] for row in runs])
        took[name] = float(np.mean([run.milliseconds for row in runs for run in row]))
    return regrets, took


def _show_regrets(console: Console, regrets: dict[str, np.ndarray], took: dict[str, float]) -> None:
    trials = next(iter(regrets.values())).shape[-1]
    at = [count for count in AT if count <= trials]
    shown = Shown(title="regret of the incumbent: mean (middle half)")
    for column in ("", *(f"after {count}" for count in at), "ms", "better than Random",
                   "trials to Random's last"):  # fmt: skip
        shown.add_column(column, justify="left" if not column else "right")
    goal = regrets["Random"].mean(axis=1)[:, -1]
    for name, values in regrets.items():
        cells = [_spread(values[:, :, count - 1]) for count in at]
        final = values.mean(axis=1)[:, -1]
        better = f"{int((final < goal).sum())} of {len(goal)} tables"
        curves = values.mean(axis=1)
        first = [int(np.argmax(curve <= aim)) + 1 if (curve <= aim).any() else trials
                 for curve, aim in zip(curves, goal, strict=True)]  # fmt: skip
        shown.add_row(name, *cells, f"{took[name]:.1f}",
                      "" if name == "Random" else better, f"{np.median(first):g}")  # fmt: skip
    console.print(shown)


def _show_units(console: Console, spent: dict[str, np.ndarray]) -> None:
    shown = Shown(title="units of resource to a job of the best 1 %: median (middle half)")
    for column in ("", "units", "Random's, over it, by table"):
        shown.add_column(column, justify="left" if not column else "right")
    usual = np.median(spent["Random"], axis=1)
    for name, values in spent.items():
        ratio = usual / np.median(values, axis=1)
        low, high = np.percentile(values, [25, 75])
        shown.add_row(name, f"{np.median(values):,.0f} ({low:,.0f}..{high:,.0f})",
                      f"{np.median(ratio):.1f} ({ratio.min():.1f}..{ratio.max():.1f})")  # fmt: skip
    console.print(shown)


def _spread(values: np.ndarray) -> str:
    low, high = np.percentile(values, [25, 75])
    return f"{values.mean():.3f} ({low:.3f}..{high:.3f})"


def _draw(path: Path, regrets: dict[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for (name, values), colour in zip(
        regrets.items(), ("#8a8a8a", "#d97706", "#1d4ed8"), strict=True
    ):
        count = np.arange(1, values.shape[-1] + 1)
        by_table = values.mean(axis=1)
        mean = by_table.mean(axis=0)
        seeds = values.mean(axis=0)  # spread over seeds of the mean over tables
        low, high = np.percentile(seeds, [10, 90], axis=0)
        axes.plot(count, mean, label=name, color=colour, linewidth=2)
        axes.fill_between(count, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(
        xlabel="training jobs",
        ylabel="regret (0: optimum, 1: median)",
        yscale="log",
        xlim=(1, values.shape[-1]),
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    axes.set_title(f"{values.shape[0]} tables, {values.shape[1]} seeds; band: 80 % of the seeds",
                   fontsize=10)  # fmt: skip
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    typer.run(main)
