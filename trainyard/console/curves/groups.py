"""Which metrics belong on one plot, by their names alone.

``train:loss`` and ``validation:loss`` do, or HF's ``loss`` and ``eval_loss``. Of ``a:step_seconds``
beside ``a:data_seconds`` and ``a:optimizer_seconds`` the latter are parts of the first, stacked.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainyard.runs.metric_lines import STEPS

WHOLE, PART = "step_seconds", "_seconds"
_PHASE = re.compile(
    r"^(train|training|validation|valid|val|eval|test)[:_\-./ ]+(?=.)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Group:
    """One plot."""

    title: str
    names: tuple[str, ...]
    whole: str = ""
    """The metric of which the others are parts; empty where they are lines."""


def groups(names: Iterable[str]) -> list[Group]:
    """What the metrics of these names make: losses, rates, parts of a step, then the others."""
    left = [name for name in names if base(name).lower() not in STEPS]
    found = []
    for whole in [name for name in left if _last(name) == WHOLE]:
        parts = _parts(whole, left)
        if len(parts) >= 2:
            found.append(Group("where the time of a step goes", parts, whole))
            left = [name for name in left if name not in parts]
    lines: dict[str, list[str]] = {}
    for name in left:
        lines.setdefault(base(name).lower(), []).append(name)
    plots = [Group(names[0] if len(names) == 1 else base(names[0]), tuple(names))
             for names in lines.values()]  # fmt: skip
    return sorted([*plots, *found], key=_rank)


def _rank(group: Group) -> int:
    """The lower the earlier: what people look at first."""
    title = group.title.lower()
    if "loss" in title:
        return 0
    return 1 if "per_second" in title or "throughput" in title else 2 if group.whole else 3


def base(name: str) -> str:
    """A metric's name without the phase of the training that it is of."""
    return _PHASE.sub("", name)


def _last(name: str) -> str:
    return name.rpartition(":")[2]


def _parts(whole: str, names: Sequence[str]) -> tuple[str, ...]:
    prefix = whole.removesuffix(WHOLE)
    return tuple(
        name
        for name in names
        if name != whole and name.startswith(prefix) and name.endswith(PART)
        and ":" not in name.removeprefix(prefix)
    )  # fmt: skip
