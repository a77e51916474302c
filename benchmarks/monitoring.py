"""Simulate weeks of requests of ten features; count false alarms, and which features are named.

python -m benchmarks.monitoring [--weeks 1000] [--evidently PYTHON]

Without drift the share of weeks in which anything is called drift must be at most ``error`` and a
point (upper end of its exact 95 % interval); Holm's correction is also judged alone, without an
effect size. With drift in two features exactly these two have to be named. In a third row the
answers have truths, and an alarm of the metric counts, too; a second table judges the metric alone,
also where truths depend on each other; a third has faults of what sends the requests. Evidently's
DataDriftPreset, with its defaults, sees the first of these weeks in a Python of its own.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.harness import CHECKOUT, rate, show_table, steps_of
from benchmarks.monitored_weeks import CATEGORIES, DRIFTED, FAULTS, answers, draw, spoil
from pipelines.endpoint.answer_quality import OF_TRUTHS, RecordedQuality, compute_quality_change
from pipelines.endpoint.drift import Change, compare_columns
from training.scores import compute_standard_error

ERROR, LEAST_PSI, METRIC = 0.05, 0.1, "log_loss"
POWER = 0.95
"""Least share of weeks in which a fault has to be named."""
SIZES = ((500, 500), (2000, 500))
"""Requests of baseline and week."""
EVALUATED, ANSWERED = 2000, 500
INDEPENDENT = "each on its own"
DEPENDENCE = {INDEPENDENT: (None, None), "of 50 groups": (200, 50), "of 7 groups": (200, 7)}
"""How truths depend on each other → groups of the evaluation, and of the week."""
BY = ("monitor", "its tests alone", "with truths")


def name_drifted_features(
    sides: Sequence[dict], *also: Change, least_psi: float = LEAST_PSI
) -> set[str]:
    """Return the features that are called drifted between both sides, and what else is given."""
    before, now = (
        {name: [None if value is None else str(value) for value in values]
         for name, values in one.items()}
        for one in sides
    )  # fmt: skip
    quantities = before.keys() - CATEGORIES.keys()
    found = compare_columns(before, now, quantities, error=ERROR, least_psi=least_psi, also=also)
    return {one.feature for one in found if one.has_drifted}


def by(who: str, seed: int, sizes: tuple[int, int], drift: bool) -> set[str]:
    """Return what is named in a week."""
    also = [quality(seed, INDEPENDENT, drift)] if who == "with truths" else []
    least = 0.0 if who == "its tests alone" else LEAST_PSI
    return name_drifted_features(draw(seed, sizes, drift), *also, least_psi=least)


def quality(seed: int, kind: str, worse: bool) -> Change:
    """Return the metric's change in a week; evaluation and week are drawn anew."""
    before, now = DEPENDENCE[kind]
    losses, names = _losses(2 * seed, EVALUATED, False, before)
    pulls = (losses - losses.mean()) / len(losses)
    if names is not None:
        pulls = np.bincount(names, pulls)
    record = RecordedQuality("v", METRIC, True, float(losses.mean()), compute_standard_error(pulls))
    losses, names = _losses(2 * seed + 1, ANSWERED, worse, now)
    return compute_quality_change(losses, None if names is None else [*names], record)


def _losses(
    seed: int, size: int, worse: bool, groups: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    probability, truth, names = answers(seed, size, worse, groups)
    return OF_TRUTHS[METRIC](probability, truth), names


def evidently(python: Path, weeks: int, sizes: tuple[int, int], drift: bool) -> list[set[str]]:
    """Return what Evidently names in each week."""
    command = [python, "-W", "ignore", "-m", "benchmarks.monitored_weeks", weeks, *sizes,
               int(drift)]  # fmt: skip
    done = subprocess.run(
        [*map(str, command)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
    )
    return [set(filter(None, line.split(","))) for line in done.stdout.splitlines()]


def weeks_table(weeks: int, drifted: int, peer: Path | None, peer_weeks: int) -> list[str]:
    """Show what is named in weeks without and with drift; return what is wrong."""
    rows, wrong = [], []
    whose = (*BY, "Evidently") if peer else BY
    for sizes, who in steps_of("weeks", [(s, w) for s in SIZES for w in whose]):
        if peer and who == "Evidently":
            calm, moved = (evidently(peer, peer_weeks, sizes, drift) for drift in (False, True))
        else:
            calm = [by(who, seed, sizes, False) for seed in range(weeks)]
            moved = [by(who, seed, sizes, True) for seed in range(drifted)]
        alarms = rate([bool(names) for names in calm])
        if who in ("monitor", "with truths") and alarms.high > ERROR + 0.01:
            wrong.append(f"{who}: too many alarms")
        alone = rate([names - {METRIC} == {*DRIFTED} for names in moved])
        both = rate([names >= {*DRIFTED} for names in moved])
        shares = (one.text(0.01, 1) for one in (alarms, alone, both))
        rows.append(("{:,}, {:,}".format(*sizes), who, *shares))
    columns = ("requests", "by", "false alarms, % (95 %)", "the two alone", "the two")
    show_table(columns, rows)
    return wrong


def truths_table(weeks: int, worse_weeks: int) -> list[str]:
    """Show how often the metric is called worse; return what is wrong."""
    rows, wrong = [], []
    for kind in steps_of("truths", DEPENDENCE):
        calm = rate([quality(seed, kind, False).p_value <= ERROR for seed in range(weeks)])
        worse = rate([quality(seed, kind, True).p_value <= ERROR for seed in range(worse_weeks)])
        if calm.high > ERROR + 0.01:
            wrong.append(f"truths {kind}: too many alarms")
        rows.append((kind, calm.text(0.01, 1), worse.text(0.01, 1)))
    show_table(("truths", f"{METRIC} called worse, calm, %", "worse"), rows)
    return wrong


def faults_table(weeks: int) -> list[str]:
    """Show how often a fault of what sends the requests is named; return what is wrong."""
    rows, wrong = [], []
    for sizes, fault in steps_of("faults", [(s, f) for s in SIZES for f in FAULTS]):
        sides = [draw(seed, sizes, False) for seed in range(weeks)]
        found = [
            name_drifted_features((a, spoil(b, fault, seed))) for seed, (a, b) in enumerate(sides)
        ]
        seen = rate([FAULTS[fault] in names for names in found])
        alone = rate([names == {FAULTS[fault]} for names in found])
        if seen.median < POWER:
            wrong.append(f"{fault}: not named")
        cells = (seen.text(0.01, 1), alone.text(0.01, 1))
        rows.append(("{:,}, {:,}".format(*sizes), fault, *cells))
    show_table(("requests", "fault", "named, %", "named alone"), rows)
    return wrong


def main(
    weeks: Annotated[int, typer.Option(help="Number without drift.")] = 1000,
    drifted: Annotated[int, typer.Option(help="Number with drift.")] = 200,
    peer: Annotated[
        Path | None, typer.Option("--evidently", help="Python that has Evidently.")
    ] = None,
    peer_weeks: Annotated[int, typer.Option(help="Number of each kind that it sees.")] = 20,
) -> None:
    """Simulate weeks; exit 1 if an alarm is too frequent, or a fault is not named."""
    wrong = weeks_table(weeks, drifted, peer, peer_weeks)
    wrong += truths_table(weeks, drifted) + faults_table(drifted)
    print("\n".join(wrong))
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
