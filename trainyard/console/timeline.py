"""When each step of an execution waited and ran, to be drawn from its start on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainyard.console.flow import Flow, Node, ends_last
from trainyard.runs.table import duration

NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two ticks; beyond a day whole days, doubled."""

TICKS = 6
"""As many as there are at most."""

SHORT = 0.5
"""Seconds of waiting that are not shown."""

AHEAD = 6
"""Doublings of the shown time for which a running chart has ticks: the script moves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A step that has begun; times in seconds since the origin."""

    node: Node
    start: float
    end: float | None
    """None while it runs."""

    machines: float | None
    """When its machines were there; None where nobody knows, or nothing waited."""

    critical: bool
    waits: bool
    """Whether it waits for machines still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A line across the chart."""

    at: float
    relative: str
    absolute: str
    rank: int
    """Halvings of the ticks that it survives: the script hides the others when time goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The bars in the order in which the steps began."""

    origin: datetime
    span: float
    """Seconds that the chart is wide."""

    runs: bool
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    critical: Sequence[str]
    """The critical path."""


def timeline(
    flow: Flow, origin: datetime, now: datetime, machines: Mapping[str, datetime | None]
) -> Timeline | None:
    """The bars of what has begun; None where nothing has.

    ``machines``: step → when its machines were there, None while they are not; only of steps whose
    job the service could tell.
    """
    begun = {n: node for n, node in flow.nodes.items() if node.step and node.step.started}
    if not begun:
        return None
    began = {n: node.step.started for n, node in begun.items() if node.step and node.step.started}
    origin = min(origin, *began.values())
    start = {name: (when - origin).total_seconds() for name, when in began.items()}
    end = {
        name: (node.step.ended - origin).total_seconds()
        for name, node in begun.items()
        if node.step and node.step.ended
    }
    elapsed = max((now - origin).total_seconds(), *start.values())
    path = ends_last(flow, {name: end.get(name, elapsed) for name in begun})
    bars = []
    for name, node in sorted(begun.items(), key=lambda each: start[each[0]]):
        there = machines.get(name)
        at = None if there is None else (there - origin).total_seconds()
        bars.append(
            Bar(
                node=node,
                start=start[name],
                end=end.get(name),
                machines=at if at and start[name] + SHORT < at <= end.get(name, elapsed) else None,
                critical=name in path,
                waits=name in machines and there is None and name not in end,
            )
        )
    runs = len(end) < len(begun)
    widest = max([*end.values(), *([elapsed] if runs else [])])
    ticks, span = _ticks(origin, max(widest, 1.0), runs)
    return Timeline(origin=origin, span=span, runs=runs, bars=bars, ticks=ticks, critical=path)


def _ticks(origin: datetime, widest: float, runs: bool) -> tuple[list[Tick], float]:
    """The ticks, and how many seconds to show: to the next tick while the run goes on."""
    every = _every(widest)
    span = math.ceil(widest * 1.02 / every) * every if runs else widest * 1.02
    found: dict[float, Tick] = {}
    for rank in range(AHEAD if runs else 1):
        between = every * 2**rank
        for number in range(int(span * 2**rank / between) + 1):
            at = between * number
            found[at] = _tick(origin, at, rank, widest)
    return [found[at] for at in sorted(found)], span


def _every(widest: float) -> float:
    for seconds in NICE:
        if widest / seconds < TICKS:
            return seconds
    days = 1
    while widest / (86400 * days) >= TICKS:
        days *= 2
    return 86400 * days


def _tick(origin: datetime, at: float, rank: int, widest: float) -> Tick:
    when = (origin + timedelta(seconds=at)).astimezone()
    absolute = when.strftime("%H:%M:%S" if widest < 3600 else "%H:%M")
    if widest > 86400:
        absolute = when.strftime("%m-%d %H:%M")
    relative = "0" if at == 0 else f"{at:g} s" if at < 60 else duration(at).removesuffix(" 00 s")
    return Tick(at=at, relative=relative.removesuffix(" 00 min"), absolute=absolute, rank=rank)
