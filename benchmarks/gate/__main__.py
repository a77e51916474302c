"""Simulate champions and challengers whose difference is known, and have the gate judge them.

python -m benchmarks.gate [--json FILE] [--pairs N] [--full] [--only promotion,…]

The gate's own code decides on sums over groups that are drawn from worlds with a known improvement.
It counts promotions of challengers that are no better, of those that are better by two and four
standard errors, and of one of many equal tries; and harmless challengers that a slice stops.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from benchmarks import harness
from benchmarks.gate.judge import ALPHA, TRIES, Outcome, first_promotions, is_stopped, judge
from benchmarks.gate.setting import Setting, data, percent, processes, rate
from benchmarks.gate.worlds import WORLDS
from benchmarks.harness import JsonFile, Section, Target

FULL = 10_000
"""Pairs a cell: a rate of 5 % is then known to 0.4."""
USUAL = 1000
"""Pairs of which the usual limits are computed, whose bootstrap takes twenty times as long."""
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


def promotion(setting: Setting) -> Section:
    """Count false promotions, and promotions of what is better."""
    section = Section("promotion", f"Promoted, %; declared: {100 * ALPHA:g} of what is no better")
    section.columns = ("world", "groups", "no better", "95 % interval", "no range declared",
                       "usual limits", "better by 4 SE", "no range declared", "usual limits",
                       "better by 2 SE", "no range declared")  # fmt: skip
    for world in WORLDS:
        for groups in setting.groups:
            found = {
                errors: setting.each(
                    f"{world}, {groups} groups, {errors:g}",
                    partial(judge, world, groups, errors, USUAL),
                    setting.pairs if errors == 0 else max(4, setting.pairs // 5),
                )
                for errors in (0.0, FOUR, TWO)
            }
            _report(section, world, groups, found)
    section.notes.append(
        f"{setting.pairs:,} pairs of equal models a line, a fifth of that of better ones; usual "
        f"limits: the first {USUAL:,}. A world with a range (accuracy, MRR, NDCG, wins) is judged "
        "by betting, and in the columns beside it as if none were declared. Interval: Clopper & "
        "Pearson. SE: standard errors of the improvement over such test splits."
    )
    return section


def _report(
    section: Section, world: str, groups: int, found: dict[float, Sequence[Outcome]]
) -> None:
    rates = {
        f"{name} {errors:g}": rate(
            [value for one in outcomes if (value := getattr(one, name)) is not None]
        )
        for errors, outcomes in found.items()
        for name in ("gate", "undeclared", "usual")
    }
    gate = rates["gate 0"]
    ranged = WORLDS[world].largest is not None

    def as_percent(name: str) -> str:
        return f"{100 * rates[name].median:.1f}" if ranged or "undeclared" not in name else ""

    section.rows.append(
        (world, f"{groups:,}", as_percent("gate 0"), f"{100 * gate.low:.1f}–{100 * gate.high:.1f}",
         *map(as_percent, ("undeclared 0", "usual 0", "gate 4", "undeclared 4", "usual 4", "gate 2",
                      "undeclared 2")))
    )  # fmt: skip
    section.data.setdefault(world, {})[str(groups)] = {n: data(one) for n, one in rates.items()}
    most = KEPT.get(world, KEPT_AT.get((world, groups)))
    if most is not None:
        what = f"promoted though no better, {world}, {groups} groups"
        section.targets.append(Target(what, gate, "≤", most / 100, "%"))
    if (least := POWER_AT.get((world, groups))) is not None:
        what = f"promoted when better by 4 SE, {world}, {groups} groups"
        section.targets.append(Target(what, rates["gate 4"], "≥", least / 100, "%"))


def looks(setting: Setting) -> Section:
    """Count pipelines that promote one of many equal challengers, tried on one test split."""
    section = Section("looks", "Any of so many equal challengers is promoted, %")
    section.columns = ("world", "groups", *(f"{tries} tries" for tries in TRIES), "50, uncounted")
    for world in ("normal", "log-normal loss, σ 1", "90 % nearly tie, log-normal", "MRR"):
        for groups in setting.groups:
            runs = max(4, setting.pairs // 5)
            found = setting.each(
                f"looks, {world}, {groups}", partial(first_promotions, world, groups), runs
            )
            rates = [rate([one[0] <= tries for one in found]) for tries in TRIES]
            uncounted = rate([one[1] <= TRIES[-1] for one in found])
            cells = [percent(one) for one in (*rates, uncounted)]
            section.rows.append((world, f"{groups:,}", *cells))
            section.data.setdefault(world, {})[str(groups)] = [data(one) for one in rates]
            if world in ("normal", "MRR"):
                what = f"any of 50 promoted, {world}, {groups} groups"
                section.targets.append(Target(what, rates[-1], "≤", ALPHA, "%"))
    return section


SPLITS = ((10, 12), (10, 30), (10, 100), (1, 30), (3, 100), (3, 300), (1, 600))
"""Slices, and groups of each."""
SHAPES = ("normal, unlike sizes", "log-normal gain, σ 1", "wins and losses")
BAD = 3.5
"""Standard errors by which one slice is worse, for its harm to be found."""


def slices(setting: Setting) -> Section:
    """Count harmless models that a slice stops, and bad slices that are found."""
    section = Section("slices", "Models stopped for a slice, %")
    section.columns = (
        "slices × groups",
        *(f"harmless, {shape}" for shape in SHAPES),
        "a bad slice found",
    )
    runs = max(4, setting.pairs // 5)
    for count, groups in SPLITS:
        name = f"{count} × {groups}"
        found = {}
        for shape in SHAPES:
            run = partial(is_stopped, shape, count, groups, 0.0)
            found[shape] = rate(setting.each(f"{name}, {shape}", run, runs))
        run = partial(is_stopped, SHAPES[0], count, groups, BAD)
        bad = rate(setting.each(f"{name}, bad", run, runs))
        section.rows.append((name, *(percent(one) for one in found.values()), percent(bad)))
        section.data[name] = {shape: data(one) for shape, one in found.items()} | {"bad": data(bad)}
        section.targets.append(
            Target(
                f"harmless models stopped, {SHAPES[0]}, {name}", found[SHAPES[0]], "≤", 0.058, "%"
            )
        )
    section.notes.append(
        "Harmless: on no slice truly worse. A log-normal gain is rare luck: a slice that lacks it "
        f"looks worse than it is. Bad: one slice is worse by {BAD:g} standard errors."
    )
    return section


SECTIONS: dict[str, Callable[[Setting], Section]] = {
    "promotion": promotion,
    "slices": slices,
    "looks": looks,
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
    names = harness.chosen(only, SECTIONS)
    console = harness.screen()
    with processes() as executor, harness.progress(console) as progress:
        setting = Setting(
            pairs=max(pairs, FULL) if full else pairs,
            groups=tuple(int(number) for number in groups.split(",")),
            progress=progress,
            executor=executor,
        )
        sections = []
        for name in names:
            sections.append(SECTIONS[name](setting))
            harness.show(sections[-1], console)
    sizes = {"pairs": setting.pairs, "groups": setting.groups}
    harness.report(sections, json_file, sizes, ("numpy", "pyarrow", "scipy"), shown=True)


if __name__ == "__main__":
    app()
