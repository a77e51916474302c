"""Would the fastest of the layouts that were measured have been chosen?"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks.foresight.fitting import Case
from benchmarks.foresight.holding_out import GROUPS, held_out

LEAST = 4
"""Layouts of a group; fewer have no order to speak of."""


@dataclass(frozen=True)
class Choice:
    """A model on machines of one kind, trained in several layouts."""

    group: str
    layouts: int
    spread: float
    """How much slower the slowest layout is than the fastest one: a share of its rate. Ranks within
    a few per cent are those of the measurements' own noise."""

    lost: float
    """How much slower the chosen layout is than the fastest one: a share of its rate."""

    spearman: float
    """Correlation of the ranks of what was foreseen and of what was measured."""


def scores(of: Sequence[Case]) -> list[Choice]:
    """Of each group of layouts, by constants that have not seen the model's size."""
    foreseen = np.array([case.measured for case in of])
    foreseen = foreseen * (1 + held_out(of, GROUPS["model size"]))
    groups = defaultdict(list)
    for here, case in enumerate(of):
        if "model" in case.group:
            groups[f"{case.source} {case.group['model']}"].append(here)
    found = []
    for name, places in groups.items():
        if len(places) >= LEAST:
            chosen = [of[here] for here in places]
            found.append(_choice(name, chosen, foreseen[places]))
    return found


def _choice(name: str, of: Sequence[Case], foreseen: np.ndarray) -> Choice:
    tokens = np.array([case.setting.tokens / case.setting.gpus for case in of])
    rates = tokens / np.array([case.measured for case in of])
    expected = tokens / foreseen
    spread = 1 - rates.min() / rates.max()
    lost = 1 - rates[expected.argmax()] / rates.max()
    order = spearmanr(expected, rates).statistic
    return Choice(name, len(of), float(spread), float(lost), float(order))


def table(found: Sequence[Choice]) -> Table:
    columns = ("layouts of", "n", "slowest is slower by", "chosen is slower by", "Spearman")
    shown = Table(*columns, title="choice")
    for one in found:
        shares = (f"{one.spread:.1%}", f"{one.lost:.1%}")
        shown.add_row(one.group, str(one.layouts), *shares, f"{one.spearman:.2f}")
    return shown
