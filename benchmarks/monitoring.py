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

from benchmarks import monitored_weeks
from benchmarks.harness import CHECKOUT, compute_rate, show_table, track_steps
from benchmarks.monitored_weeks import CATEGORIES, DRIFTED, FAULTS
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
    """Return the features that drifted between both sides; ``also``: changes to judge with them."""
    before, now = (
        {name: [None if value is None else str(value) for value in values]
         for name, values in one.items()}
        for one in sides
    )  # fmt: skip
    quantities = before.keys() - CATEGORIES.keys()
    found = compare_columns(before, now, quantities, error=ERROR, least_psi=least_psi, also=also)
    return {one.feature for one in found if one.has_drifted}


def name_week_features(who: str, seed: int, sizes: tuple[int, int], drift: bool) -> set[str]:
    """Return the features that ``who``, one of ``BY``, names in a simulated week."""
    also = [draw_change(seed, INDEPENDENT, drift)] if who == "with truths" else []
    least = 0.0 if who == "its tests alone" else LEAST_PSI
    return name_drifted_features(
        monitored_weeks.draw_weeks(seed, sizes, drift), *also, least_psi=least
    )


def draw_change(seed: int, kind: str, worse: bool) -> Change:
    """Draw an evaluation and a week; return the metric's change between them."""
    before, now = DEPENDENCE[kind]
    losses, names = _draw_losses(2 * seed, EVALUATED, False, before)
    pulls = (losses - losses.mean()) / len(losses)
    if names is not None:
        pulls = np.bincount(names, pulls)
    record = RecordedQuality("v", METRIC, True, float(losses.mean()), compute_standard_error(pulls))
    losses, names = _draw_losses(2 * seed + 1, ANSWERED, worse, now)
    return compute_quality_change(losses, None if names is None else [*names], record)


def _draw_losses(
    seed: int, size: int, worse: bool, groups: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    probability, truth, names = monitored_weeks.draw_answers(seed, size, worse, groups)
    return OF_TRUTHS[METRIC](probability, truth), names


def run_evidently(python: Path, weeks: int, sizes: tuple[int, int], drift: bool) -> list[set[str]]:
    """Return the features that Evidently names in each week."""
    numbers = map(str, (weeks, *sizes, int(drift)))
    command = [str(python), "-W", "ignore", "-m", "benchmarks.monitored_weeks", *numbers]
    output = subprocess.check_output(command, cwd=CHECKOUT, text=True)
    return [set(filter(None, line.split(","))) for line in output.splitlines()]


def show_weeks(weeks: int, drifted: int, peer: Path | None, peer_weeks: int) -> list[str]:
    """Print how often drift is named in weeks without and with it; return what is wrong."""
    rows, wrong = [], []
    whose = (*BY, "Evidently") if peer else BY
    for sizes, who in track_steps("weeks", [(s, w) for s in SIZES for w in whose]):
        if peer and who == "Evidently":
            calm, moved = (run_evidently(peer, peer_weeks, sizes, drift) for drift in (False, True))
        else:
            calm = [name_week_features(who, seed, sizes, False) for seed in range(weeks)]
            moved = [name_week_features(who, seed, sizes, True) for seed in range(drifted)]
        alarms = compute_rate([bool(names) for names in calm])
        if who in ("monitor", "with truths") and alarms.high > ERROR + 0.01:
            wrong.append(f"{who}: too many alarms")
        alone = compute_rate([names - {METRIC} == {*DRIFTED} for names in moved])
        both = compute_rate([names >= {*DRIFTED} for names in moved])
        shares = (one.text(0.01, 1) for one in (alarms, alone, both))
        rows.append(("{:,}, {:,}".format(*sizes), who, *shares))
    columns = ("requests", "by", "false alarms, % (95 %)", "the two alone", "the two")
    show_table(columns, rows)
    return wrong


def show_truths(weeks: int, drifted: int) -> list[str]:
    """Print how often the metric is called worse; return what is wrong."""
    rows, wrong = [], []
    for kind in track_steps("truths", DEPENDENCE):
        calm = compute_rate([draw_change(n, kind, False).p_value <= ERROR for n in range(weeks)])
        worse = compute_rate([draw_change(n, kind, True).p_value <= ERROR for n in range(drifted)])
        if calm.high > ERROR + 0.01:
            wrong.append(f"truths {kind}: too many alarms")
        rows.append((kind, calm.text(0.01, 1), worse.text(0.01, 1)))
    show_table(("truths", f"{METRIC} called worse, calm, %", "worse"), rows)
    return wrong


def show_faults(weeks: int) -> list[str]:
    """Print how often a fault of what sends the requests is named; return what is wrong."""
    rows, wrong = [], []
    for sizes, fault in track_steps("faults", [(s, f) for s in SIZES for f in FAULTS]):
        sides = [monitored_weeks.draw_weeks(seed, sizes, False) for seed in range(weeks)]
        spoiled = [
            (a, monitored_weeks.inject_fault(b, fault, seed)) for seed, (a, b) in enumerate(sides)
        ]
        found = [*map(name_drifted_features, spoiled)]
        seen = compute_rate([FAULTS[fault] in names for names in found])
        alone = compute_rate([names == {FAULTS[fault]} for names in found])
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
        Path | None, typer.Option("--run_evidently", help="Python that has Evidently.")
    ] = None,
    peer_weeks: Annotated[int, typer.Option(help="Number of each kind that it sees.")] = 20,
) -> None:
    """Simulate weeks; exit 1 if an alarm is too frequent, or a fault is not named."""
    wrong = show_weeks(weeks, drifted, peer, peer_weeks)
    wrong += show_truths(weeks, drifted) + show_faults(drifted)
    print("\n".join(wrong))
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
