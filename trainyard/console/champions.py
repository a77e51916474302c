"""The picture of a group's versions: a metric over the versions, and the line of the Approved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.console.registry import is_approved
from trainyard.console.scales import Scale, around, is_shown

WIDTH, HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 24, 64
WITHOUT = HEIGHT - 40
"""Where versions without the metric stand: below the axis."""

SHAPES = {"Approved": "disc", "Rejected": "cross"}
"""Approval status → the mark; a ring for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A version in the picture."""

    arn: str
    version: str
    status: str
    shape: str
    x: float
    y: float
    value: float | None
    is_champion: bool
    label: bool
    """Whether its number stands below it: there is no room for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Marks, the line through the Approved ones, and the axis."""

    width: int
    height: int
    marks: Sequence[Mark]
    line: str
    """An SVG path; empty where fewer than two are Approved."""

    ticks: Sequence[tuple[float, str]]
    """(y, text)."""


def picture(
    packages: Sequence[Mapping[str, Any]],
    values: Sequence[float | None],
    champion: str | None,
) -> Picture | None:
    """The versions from the oldest on; None where there is none.

    Args:
        packages: descriptions or summaries, the newest first.
        values: the metric of each; None or NaN where it has none.
    """
    if not packages:
        return None
    known = [v for v in values if v is not None and is_shown(v)]
    up = around(known, HEIGHT - BOTTOM, TOP)
    across = Scale(-0.5, len(packages) - 0.5, LEFT, WIDTH - RIGHT)
    every = math.ceil(len(packages) / 25)
    pairs = list(zip(packages, values, strict=True))[::-1]
    marks = [
        _mark(package, value, number, across, up, champion, every)
        for number, (package, value) in enumerate(pairs)
    ]
    approved = [m for m in marks if m.shape == "disc" and m.value is not None]
    line = "M" + " L".join(f"{m.x:.1f} {m.y:.1f}" for m in approved) if len(approved) > 1 else ""
    ticks = [(up(value), text) for value, text in up.ticks(5)] if known else []
    if len(known) < len(values):
        ticks.append((WITHOUT, "none"))
    return Picture(width=WIDTH, height=HEIGHT, marks=marks, line=line, ticks=ticks)


def _mark(
    package: Mapping[str, Any],
    value: float | None,
    number: int,
    across: Scale,
    up: Scale,
    champion: str | None,
    every: int,
) -> Mark:
    there = value if value is not None and is_shown(value) else None
    status = str(package.get("ModelApprovalStatus", "none"))
    arn = package["ModelPackageArn"]
    return Mark(
        arn=arn,
        version=str(package.get("ModelPackageVersion", "")),
        status=status,
        shape="disc" if is_approved(package) else SHAPES.get(status, "ring"),
        x=round(across(number), 1),
        y=round(up(there), 1) if there is not None else WITHOUT,
        value=there,
        is_champion=arn == champion,
        label=number % every == 0 or arn == champion,
    )
