"""How often the gate promotes a challenger that is better by four standard errors."""

from functools import partial

from benchmarks.gate.judge import judge
from benchmarks.gate.promotion import data, percent, rate
from benchmarks.gate.setting import Setting
from benchmarks.gate.simulate import Kind, World, standard_error
from benchmarks.harness import Section, Target

FOUR = 4.0
KINDS: tuple[Kind, ...] = (
    "loss", "accuracy", "heavy", "skewed", "log-normal", "tied 90 %, normal",
    "tied 90 %, exponential", "tied 95 %", "tied 90 %", "tied 70 %",
)  # fmt: skip
LEAST = {"loss": 0.9, "tied 90 %, normal": 0.9}
"""What is demanded from 300 groups on."""


def measure(setting: Setting) -> Section:
    section = Section("sure", f"Promoted when better by {FOUR:g} standard errors, %")
    section.columns = ("world", "groups", "gate", "usual limits")
    for kind in KINDS:
        for groups in setting.groups:
            world = World(kind=kind, groups=groups, effect=FOUR * standard_error(kind, groups))
            found = setting.each(f"sure, {kind}, {groups} groups", partial(judge, world, None),
                                 max(4, setting.pairs // 2))  # fmt: skip
            gate, usual = (
                rate([getattr(one, name) for one in found]) for name in ("gate", "usual")
            )
            section.rows.append((kind, f"{groups:,}", percent(gate), percent(usual)))
            section.data.setdefault(kind, {})[str(groups)] = data(gate) | {"usual": data(usual)}
            if kind in LEAST and groups >= 300:
                what = f"promoted when better by {FOUR:g} standard errors, {kind}, {groups} groups"
                section.targets.append(Target(what, gate, "≥", LEAST[kind], "%"))
    section.notes.append("In a tied world the improvement is on the groups that differ alone.")
    return section
