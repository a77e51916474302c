"""How often the gate promotes a challenger that is no better, beside a plain comparison."""

from collections.abc import Sequence
from functools import partial

from scipy.stats import binomtest

from benchmarks.gate.setting import Setting
from benchmarks.gate.simulate import ALPHA, Kind, Outcome, World, judge
from benchmarks.shards.figures import Figure, Section, Target

MARGIN = 0.03
CASES: tuple[tuple[str, Kind, float | None], ...] = (
    ("superiority, loss", "loss", None),
    ("superiority, accuracy", "accuracy", None),
    (f"non-inferiority by {MARGIN:g}, accuracy", "accuracy", MARGIN),
    ("superiority, skewed differences", "skewed", None),
)
"""The last one breaks what every such limit assumes, and is no target: it shows by how much."""
HARD = CASES[-1][0]


def measure(setting: Setting) -> Section:
    section = Section("promotion", f"Promoted although not better, %; declared: {100 * ALPHA:g}")
    section.columns = ("check", "groups", "pairs", "gate", "95 % interval", "plain comparison")
    for title, kind, margin in CASES:
        pooled: list[Outcome] = []
        for groups in setting.groups:
            # Just not good enough: no better at all, or worse by the very margin.
            world = World(kind=kind, groups=groups, effect=-margin if margin else 0.0)
            found = setting.each(
                f"{title}, {groups} groups", partial(judge, world, margin), setting.pairs
            )
            _report(section, title, groups, found)
            pooled += found
        if title != HARD:
            promoted = rate([one.promoted for one in pooled])
            what = f"false promotions, {title} ({len(pooled):,} pairs)"
            section.targets.append(Target(what, promoted, "≤", ALPHA, "%"))
    section.notes.append(
        "In brackets: the exact 95 % interval (Clopper & Pearson) of a rate from so many pairs. "
        "Both models of a pair are draws of the same recipe; at non-inferiority the challenger is "
        "worse by the very margin. The minimum of 20 effective groups is off here, or the rows of "
        "20 groups would be 0."
    )
    return section


def rate(hits: Sequence[bool]) -> Figure:
    """The share of hits, with the ends of its exact 95 % interval as its spread."""
    found = binomtest(sum(hits), len(hits)).proportion_ci(0.95, method="exact")
    return Figure((found.low, sum(hits) / len(hits), found.high))


def _report(section: Section, title: str, groups: int, found: Sequence[Outcome]) -> None:
    gate = rate([one.promoted for one in found])
    plain = rate([one.plain for one in found])
    interval = f"{100 * gate.low:.1f}–{100 * gate.high:.1f}"
    row = (title, f"{groups:,}", f"{len(found):,}", f"{100 * gate.median:.1f}", interval,
           f"{100 * plain.median:.1f}")  # fmt: skip
    section.rows.append(row)
    of_groups = section.data.setdefault(title, {})
    of_groups[str(groups)] = {
        "pairs": len(found),
        "gate": _data(gate),
        "plain": _data(plain),
    }


def _data(found: Figure) -> dict[str, float]:
    return {"rate": found.median, "low": found.low, "high": found.high}
