"""Searches among configurations that are all exactly as good as the champion.

Each model's loss on a group of examples is that group's difficulty plus the model's own noise, so
whoever wins has been lucky. As in a recipe, the best by the validation samples are compared again
on held-out ones, and the gate's own code judges the winner on the test split: promoted is a model
that it calls better. Beside it what is often done: the best of all on the test split, judged there.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from benchmarks.gate.judge import FIRST, promoted
from benchmarks.gate.setting import data, percent, rate
from benchmarks.harness import JsonFile, keep
from trainyard.terminal import console

GROUPS = {"validation": 100, "held_out": 100, "test": 200}
"""Groups of examples in each split; of log-normal sizes."""
TRIED, JUDGED = (5, 20, 50), 3
ALLOWED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A simulated search: how lucky its winner was, and whether the gate promotes it."""

    promoted: bool
    promoted_on_test: bool
    """Promoted when chosen by the test split itself."""
    validation: float
    """Gain over the champion of the first by the validation samples, on these; truly 0."""
    held_out: float
    """Gain of the chosen one on the samples that it was chosen by; truly 0."""
    test: float
    """Its gain on the test split; truly 0."""


def search(tried: int, seed: int) -> Search:
    """Simulate a search of ``tried`` trainings."""
    source = np.random.default_rng([seed, tried])
    weight = {split: np.floor(source.lognormal(3, 0.7, n)) + 1 for split, n in GROUPS.items()}
    better = {
        split: source.normal(0, 0.05, (tried, n)) - source.normal(0, 0.05, n)
        for split, n in GROUPS.items()
    }
    gain = {split: better[split] @ weight[split] / weight[split].sum() for split in GROUPS}
    best = np.argsort(-gain["validation"])[:JUDGED]
    chosen = best[np.argmax(gain["held_out"][best])]
    on_test = np.argmax(gain["test"])

    def passes(model: int) -> bool:
        return promoted(better["test"][model] * weight["test"], weight["test"], 0.0, FIRST)

    return Search(
        promoted=passes(chosen),
        promoted_on_test=passes(on_test),
        validation=gain["validation"][best[0]],
        held_out=gain["held_out"][chosen],
        test=gain["test"][chosen],
    )


def luck(
    searches: Annotated[int, typer.Option(min=100, help="Simulated searches of each kind.")] = 4000,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if an equal model is promoted too often (upper limit above 6 %)."""
    table = Table("trainings", "promoted, of 5 % allowed", "chosen on the test split",
                  "gain on validation", "on held-out", "on test", box=None)  # fmt: skip
    figures, good = {}, True
    for tried in TRIED:
        found = [search(tried, seed) for seed in range(searches)]
        ours = rate([one.promoted for one in found])
        usual = rate([one.promoted_on_test for one in found])
        gains = {split: float(np.mean([getattr(one, split) for one in found])) for split in GROUPS}
        good &= ours.high <= ALLOWED + 0.01
        table.add_row(
            str(tried), percent(ours), percent(usual), *(f"{gain:+.4f}" for gain in gains.values())
        )
        figures[str(tried)] = {"ours": data(ours), "on_test": data(usual), "gains": gains}
    console.print(table)
    keep(json_file, {"searches": searches, "figures": figures, "good": good})
    raise typer.Exit(0 if good else 1)
