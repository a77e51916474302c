"""Simulate champions and challengers whose difference is known, and have the gate judge them.

python -m benchmarks.gate [--json FILE] [--pairs N] [--full] [--only promotion,…]

The gate's own code decides on sums over groups that are drawn from worlds with a known improvement.
It counts promotions of challengers that are no better, of those that are better by two and four
standard errors, and of one of many equal tries; and harmless challengers that a slice stops.
"""

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, TypeVar

import typer

from benchmarks import harness
from benchmarks.gate import judge
from benchmarks.gate.judge import ALPHA, TRIES, Outcome
from benchmarks.gate.worlds import WORLDS
from benchmarks.harness import Figure, JsonFile, Section, Target
from trainyard.common.process import count_cores

Found = TypeVar("Found")
FULL = 10_000
"""Pairs for a cell of the table, which estimate a rate of 5 % to within 0.4."""
USUAL = 1000
"""Pairs judged by the usual limits, too, whose bootstrap takes twenty times as long."""
FOUR, TWO = 4.0, 2.0
"""Standard errors by which a challenger is better."""
KEPT = {  # world → most that is promoted though no better, at any size, %
    **dict.fromkeys(["normal", "normal, unlike sizes", "spread that follows size",
                     "Student's t with 2 degrees", "negative correlation within",
                     "one group with 20 % of the weight", "log-normal gain, σ 1"], 5.8),
    **{name: 5.0 for name, world in WORLDS.items() if world.largest},
}  # fmt: skip
KEPT_AT = {("log-normal loss, σ 1", 100): 7.0, ("log-normal loss, σ 1", 300): 7.0,
           ("exponential loss", 100): 5.8, ("atom at the margin", 300): 10.0}  # fmt: skip
POWER_AT = {
    **{(world, 100): 90.0 for world in ("normal", "wins and losses", "MRR",
                                        "wins and losses, 80 % tie", "10 % of groups lost whole")},
    ("log-normal loss, σ 1", 100): 80.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Size of the simulations, and where they run."""

    pairs: int
    """Pairs of simulated models, for each check and number of groups."""
    groups: tuple[int, ...]
    executor: Executor
    """A process for each core."""

    @property
    def reduced_pairs(self) -> int:
        return max(4, self.pairs // 5)

    def run_each_seed(self, run: Callable[[int], Found], times: int) -> list[Found]:
        """Return ``run(seed)`` for the seeds below ``times``, computed on all cores."""
        return list(self.executor.map(run, range(times), chunksize=20))


def count_promotions(setting: Setting) -> Section:
    """Count false promotions, and promotions of better challengers."""
    section = Section("promotion", f"Promoted, %; declared: {100 * ALPHA:g} of what is no better")
    section.columns = ("world", "groups", "no better", "95 % interval", "no range declared",
                       "usual limits", "better by 4 SE", "no range declared", "usual limits",
                       "better by 2 SE", "no range declared")  # fmt: skip
    for world, groups in harness.track_steps("promotion", product(WORLDS, setting.groups)):
        found = {}
        for errors, pairs in (
            (0.0, setting.pairs),
            (FOUR, setting.reduced_pairs),
            (TWO, setting.reduced_pairs),
        ):
            decide = partial(judge.judge_pair, world, groups, errors, USUAL)
            found[errors] = setting.run_each_seed(decide, pairs)
        _add_promotion_row(section, world, groups, found)
    section.notes.append(
        f"{setting.pairs:,} pairs of equal models a line, a fifth of that of better ones; usual "
        f"limits: the first {USUAL:,}. A world with a range (accuracy, MRR, NDCG, wins) is judged "
        "by betting, and in the columns beside it as if none were declared. SE: standard errors of "
        "the improvement over such test splits."
    )
    return section


def _add_promotion_row(
    section: Section, world: str, groups: int, found: Mapping[float, Sequence[Outcome]]
) -> None:
    """Add a world's row, figures and targets to the section."""
    rates: dict[str, Figure] = {}
    for errors, outcomes in found.items():
        for name in ("gate", "undeclared", "usual"):
            values = [hit for one in outcomes if (hit := getattr(one, name)) is not None]
            rates[f"{name} {errors:g}"] = harness.compute_rate(values)
    gate = rates["gate 0"]
    names = ("undeclared 0", "usual 0", "gate 4", "undeclared 4", "usual 4", "gate 2",
             "undeclared 2")  # fmt: skip
    ranged = WORLDS[world].largest is not None
    cells = [f"{100 * rates[name].median:.1f}" if ranged or "undeclared" not in name else ""
             for name in ("gate 0", *names)]  # fmt: skip
    cells.insert(1, f"{100 * gate.low:.1f}–{100 * gate.high:.1f}")
    section.rows.append((world, f"{groups:,}", *cells))
    section.data.setdefault(world, {})[str(groups)] = {n: one.data() for n, one in rates.items()}
    where = f"{world}, {groups} groups"
    most = KEPT.get(world, KEPT_AT.get((world, groups)))
    if most is not None:
        what = f"promoted though no better, {where}"
        section.targets.append(Target(what, gate, "≤", most / 100, "%"))
    if (least := POWER_AT.get((world, groups))) is not None:
        what = f"promoted when better by 4 SE, {where}"
        section.targets.append(Target(what, rates["gate 4"], "≥", least / 100, "%"))


LOOKED = ("normal", "log-normal loss, σ 1", "90 % nearly tie, log-normal", "MRR")


def count_promoted_looks(setting: Setting) -> Section:
    """Count pipelines that promote one of many equal challengers, tried on one test split."""
    section = Section("looks", "Any of so many equal challengers is promoted, %")
    section.columns = ("world", "groups", *(f"{tries} tries" for tries in TRIES), "50, uncounted")
    for world, groups in harness.track_steps("looks", product(LOOKED, setting.groups)):
        decide = partial(judge.find_first_promotions, world, groups)
        found = setting.run_each_seed(decide, setting.reduced_pairs)
        rates = [harness.compute_rate([one[0] <= tries for one in found]) for tries in TRIES]
        uncounted = harness.compute_rate([one[1] <= TRIES[-1] for one in found])
        cells = [one.text(0.01, 1) for one in (*rates, uncounted)]
        section.rows.append((world, f"{groups:,}", *cells))
        section.data.setdefault(world, {})[str(groups)] = [one.data() for one in rates]
        if world in ("normal", "MRR"):
            what = f"any of 50 promoted, {world}, {groups} groups"
            section.targets.append(Target(what, rates[-1], "≤", ALPHA, "%"))
    return section


SPLITS = ((10, 12), (10, 30), (10, 100), (1, 30), (3, 100), (3, 300), (1, 600))
"""(number of slices, number of groups of each)."""
SHAPES = ("normal, unlike sizes", "log-normal gain, σ 1", "wins and losses")
BAD = 3.5
"""Standard errors by which one slice is worse, for its harm to be found."""


def count_stopped_models(setting: Setting) -> Section:
    """Count harmless models that a slice stops, and models with a bad slice that are stopped."""
    section = Section("slices", "Models stopped for a slice, %")
    harmless = tuple(f"harmless, {shape}" for shape in SHAPES)
    section.columns = ("slices × groups", *harmless, "a bad slice found")
    for count, groups in harness.track_steps("slices", SPLITS):
        name, found = f"{count} × {groups}", []
        for shape, bad in [*((shape, 0.0) for shape in SHAPES), (SHAPES[0], BAD)]:
            decide = partial(judge.is_stopped, shape, count, groups, bad)
            found.append(harness.compute_rate(setting.run_each_seed(decide, setting.reduced_pairs)))
        section.rows.append((name, *(one.text(0.01, 1) for one in found)))
        section.data[name] = [one.data() for one in found]
        what = f"harmless models stopped, {SHAPES[0]}, {name}"
        section.targets.append(Target(what, found[0], "≤", 0.058, "%"))
    section.notes.append(
        "Harmless: on no slice truly worse. A log-normal gain is rare luck: a slice that lacks it "
        f"looks worse than it is. Bad: one slice is worse by {BAD:g} standard errors."
    )
    return section


SECTIONS: dict[str, Callable[[Setting], Section]] = {
    "promotion": count_promotions,
    "slices": count_stopped_models,
    "looks": count_promoted_looks,
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
    pairs: Annotated[int, typer.Option(min=4, help="Pairs a line; some lines take less.")] = 1000,
    groups: Annotated[str, typer.Option(help="Groups of the test splits.")] = "30,100,300",
    full: Annotated[bool, typer.Option("--full", help="10,000 pairs a line.")] = False,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
) -> None:
    """Simulate champions and challengers whose difference is known, and judge them."""
    pairs = max(pairs, FULL) if full else pairs
    numbers, sections = tuple(int(number) for number in groups.split(",")), []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count_cores(), context, judge.limit_to_one_thread) as executor:
        setting = Setting(pairs=pairs, groups=numbers, executor=executor)
        for name in harness.choose_sections(only, SECTIONS):
            sections.append(SECTIONS[name](setting))
            harness.show_section(sections[-1])
    sizes = {"pairs": pairs, "groups": numbers}
    harness.write_report(sections, json_file, sizes, ("numpy", "pyarrow", "scipy"))


if __name__ == "__main__":
    app()
