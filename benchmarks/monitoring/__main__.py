"""Simulate weeks of requests of ten features; count false alarms, and which features are named.

python -m benchmarks.monitoring [--weeks 1000] [--evidently PYTHON]

Without drift the share of weeks in which anything is called drift must be at most ``error`` and a
point (upper 95 % limit, Clopper and Pearson 1934); Holm's correction is also judged alone, without
an effect size. With drift in two features exactly these two have to be named. In a third row the
answers have truths, and an alarm of the metric counts, too; a second table judges the metric alone,
also where truths depend on each other; a third has faults of what sends the requests. Evidently's
DataDriftPreset, with its defaults, sees the first of these weeks in a Python of its own; a second
row is without its two features of many values.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from scipy.stats import beta

from benchmarks.monitoring.answered_weeks import DEPENDENCE, INDEPENDENT, METRIC, quality
from benchmarks.monitoring.weeks import CATEGORIES, DRIFTED, FAULTS, draw, spoil
from pipelines.endpoint.drift import Change, compare
from trainyard.quality.model_quality import Cells
from trainyard.terminal import console, run

ERROR, LEAST_PSI = 0.05, 0.1
POWER = 0.95
"""Least share of weeks in which a fault has to be named."""
JOINT = "with truths"
SIZES = ((500, 500), (2000, 500))
"""Requests of baseline and week."""
WIDE = {"country", "product"}
"""Features of 60 and of 400 values."""
Names = list[set[str]]
"""Features named, by week."""


def ours(weeks: int, sizes: tuple[int, int], drift: bool) -> Iterator[tuple[str, Names]]:
    """Yield what the monitor names, and what it does by the tests alone."""
    found = [changes(draw(seed, sizes, drift)) for seed in range(weeks)]
    yield "monitor", [{one.feature for one in week if one.has_drifted} for week in found]
    certain = [changes(draw(seed, sizes, drift), least_psi=0) for seed in range(weeks)]
    yield "its tests alone", [{one.feature for one in week if one.has_drifted} for week in certain]
    found = [
        changes(draw(seed, sizes, drift), quality(seed, INDEPENDENT, drift))
        for seed in range(weeks)
    ]
    yield JOINT, [{one.feature for one in week if one.has_drifted} for week in found]


def changes(sides: Sequence[dict], *also: Change, least_psi: float = LEAST_PSI) -> list[Change]:
    """Return the changes between both sides, and those that are given."""
    before, now = ({name: cells(values) for name, values in one.items()} for one in sides)
    quantities = before.keys() - CATEGORIES.keys()
    return compare(before, now, quantities, error=ERROR, least_psi=least_psi, also=also)


def _drifted_features(seed: int, sizes: tuple[int, int], fault: str) -> set[str]:
    before, now = draw(seed, sizes, False)
    return {one.feature for one in changes((before, spoil(now, fault, seed))) if one.has_drifted}


def cells(values: Sequence) -> Cells:
    """Return values as a table's cells."""
    return [None if value is None else str(value) for value in values]


def evidently(python: Path, weeks: int, sizes: tuple[int, int], drift: bool) -> Names:
    """Return what Evidently names."""
    command = [
        python,
        "-W",
        "ignore",
        "-m",
        "benchmarks.monitoring.evidently_peer",
        weeks,
        *sizes,
        int(drift),
    ]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def upper(found: int, trials: int) -> float:
    """Return the upper 95 % limit of a share."""
    return 1.0 if found == trials else float(beta.ppf(0.95, found + 1, trials - found))


def main(
    weeks: Annotated[int, typer.Option(help="Number without drift.")] = 1000,
    drifted: Annotated[int, typer.Option(help="Number with drift.")] = 200,
    peer: Annotated[
        Path | None, typer.Option("--evidently", help="Python that has Evidently.")
    ] = None,
    peer_weeks: Annotated[int, typer.Option(help="Number of each kind that it sees.")] = 20,
) -> None:
    """Simulate weeks."""
    columns = ("requests", "by", "false alarms", "upper 95 %", "the two alone", "the two")
    table = Table(*columns, box=None)
    failed = False
    for sizes in SIZES:
        found = {(who, drift): names for drift, number in ((False, weeks), (True, drifted))
                 for who, names in ours(number, sizes, drift)}  # fmt: skip
        if peer:
            for drift in (False, True):
                names = evidently(peer, peer_weeks, sizes, drift)
                found["Evidently", drift] = names
                found["Evidently, few values", drift] = [one - WIDE for one in names]
        for who in dict.fromkeys(name for name, _ in found):
            calm, moved = found[who, False], found[who, True]
            alarms = sum(map(bool, calm))
            limit = upper(alarms, len(calm))
            failed |= who in ("monitor", JOINT) and limit > ERROR + 0.01
            alone = sum(names - {METRIC} == set(DRIFTED) for names in moved) / len(moved)
            named = sum(names >= set(DRIFTED) for names in moved) / len(moved)
            shares = (alarms / len(calm), limit, alone, named)
            table.add_row("{:,}, {:,}".format(*sizes), who, *(f"{share:.1%}" for share in shares))
    console.print(table)
    table = Table("truths", f"{METRIC} called worse, calm", "upper 95 %", "worse", box=None)
    for kind in DEPENDENCE:
        calm, worse = (
            [quality(seed, kind, which).chance <= ERROR for seed in range(number)]
            for number, which in ((weeks, False), (drifted, True))
        )
        limit = upper(sum(calm), len(calm))
        failed |= limit > ERROR + 0.01
        shares = sum(calm) / len(calm), limit, sum(worse) / len(worse)
        table.add_row(kind, *(f"{share:.1%}" for share in shares))
    console.print(table)
    table = Table("requests", "fault", "named", "named alone", box=None)
    for sizes in SIZES:
        for fault, feature in FAULTS.items():
            weeks_named = [_drifted_features(seed, sizes, fault) for seed in range(drifted)]
            named = sum(feature in names for names in weeks_named) / drifted
            alone = sum(names == {feature} for names in weeks_named) / drifted
            failed |= named < POWER
            table.add_row("{:,}, {:,}".format(*sizes), fault, f"{named:.1%}", f"{alone:.1%}")
    console.print(table)
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    run(main)
