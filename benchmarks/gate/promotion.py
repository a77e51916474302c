"""How often the gate promotes a challenger that is no better, beside simpler ways to decide."""

from collections.abc import Sequence
from functools import partial

from scipy.stats import binomtest

from benchmarks.gate.judge import ALPHA, Outcome, judge
from benchmarks.gate.setting import Setting
from benchmarks.gate.simulate import RATES, Kind, World
from benchmarks.harness import Figure, Section, Target

MARGIN, NEAR = 0.03, 0.005
INFLUENCE = 0.5
"""Of ``max_group_influence``, in the last column."""
CASES: tuple[tuple[str, Kind, float | None], ...] = (
    ("loss", "loss", None),
    ("accuracy", "accuracy", None),
    (f"accuracy, not inferior by {MARGIN:g}", "accuracy", MARGIN),
    ("heavy tails", "heavy", None),
    ("exponential tail", "skewed", None),
    ("log-normal tail", "log-normal", None),
    ("worse by log-normal length", "lengths", None),
    ("days, AR 0.5, in order", "days", None),
    ("10 % of groups differ, normal", "tied 90 %, normal", None),
    ("10 % of groups differ, exponential", "tied 90 %, exponential", None),
    ("5 % of groups differ, log-normal", "tied 95 %", None),
    ("10 % of groups differ, log-normal", "tied 90 %", None),
    ("30 % of groups differ, log-normal", "tied 70 %", None),
    (f"10 % differ, log-normal, not inferior by {NEAR:g}", "tied 90 %", NEAR),
    ("each group five times", "copies", None),
    ("days, AR 0.5, order not declared", "undeclared days", None),
    ("much worse on 5 % of groups", "disaster 5 %", None),
    ("much worse on 1 % of groups", "disaster 1 %", None),
)
"""The last two no method covers without a bad group in the sample, and an order that nobody
declares is only said: no targets."""
HOPELESS = tuple(t for t, kind, _ in CASES if kind in RATES or kind == "undeclared days")


def measure(setting: Setting) -> Section:
    section = Section("promotion", f"Promoted although not better, %; declared: {100 * ALPHA:g}")
    section.columns = ("world", "groups", "pairs", "gate", "95 % interval", "usual limits",
                       "plain comparison", f"gate, influence ≤ {INFLUENCE:g}",
                       "said to be alike")  # fmt: skip
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
        if title not in HOPELESS:
            promoted = rate([one.gate for one in pooled])
            what = f"false promotions, {title} ({len(pooled):,} pairs)"
            section.targets.append(Target(what, promoted, "≤", ALPHA, "%"))
    section.notes.append(
        "The exact 95 % interval (Clopper & Pearson) of a rate from so many pairs. Both models of "
        "a pair are truly equal; at non-inferiority the challenger is worse by the very margin. "
        "Usual limits: Student's t and the bootstrap-t at 0.95. The last column: a promotion in "
        "which one group has more than half of the variance does not count; and how often the "
        "reason says that neighbours are alike though no order is declared."
    )
    return section


def rate(hits: Sequence[bool]) -> Figure:
    """The share of hits, with the ends of its exact 95 % interval as its spread."""
    found = binomtest(sum(hits), len(hits)).proportion_ci(0.95, method="exact")
    return Figure((found.low, sum(hits) / len(hits), found.high))


def percent(found: Figure) -> str:
    """``4.8 (4.3–5.3)``."""
    return f"{100 * found.median:.1f} ({100 * found.low:.1f}–{100 * found.high:.1f})"


def _report(section: Section, title: str, groups: int, found: Sequence[Outcome]) -> None:
    rates = {
        "gate": rate([one.gate for one in found]),
        "usual": rate([one.usual for one in found]),
        "plain": rate([one.plain for one in found]),
        "influence": rate([one.gate and one.influence <= INFLUENCE for one in found]),
        "alike": rate([one.alike for one in found]),
    }
    gate = rates["gate"]
    interval = f"{100 * gate.low:.1f}–{100 * gate.high:.1f}"
    others = (
        f"{100 * rates[name].median:.1f}" for name in ("usual", "plain", "influence", "alike")
    )
    section.rows.append(
        (title, f"{groups:,}", f"{len(found):,}", f"{100 * gate.median:.1f}", interval, *others)
    )
    of_groups = section.data.setdefault(title, {})
    figures = {name: data(figure) for name, figure in rates.items()}
    of_groups[str(groups)] = {"pairs": len(found)} | figures


def data(found: Figure) -> dict[str, float]:
    """For the file of all figures."""
    return {"rate": found.median, "low": found.low, "high": found.high}
