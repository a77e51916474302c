"""The graph of an execution's steps as drawn: boxes and curves, in pixels.

Layers follow the longest path. A line has a bend in each layer that it passes. The order within a
layer follows the mean of the neighbours' positions, so that few lines cross.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from statistics import fmean
from unicodedata import east_asian_width

from trainyard.console.step_flow import Edge, Flow, Node, ends_last
from trainyard.runs.step_table import duration

LONGEST = 20
"""Most characters of a title in a box."""

BOX_WIDTH, BOX_HEIGHT = 184, 44
ACROSS, DOWN = BOX_WIDTH + 20, BOX_HEIGHT + 34
BEND = 24
"""Width in pixels of a line that passes a layer."""

MARGIN = 8
SWEEPS = 6

Place = tuple[float, float]
Bend = tuple[str, str, int]
"""Bend of the line between two nodes, in a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step's box, by its upper left corner."""

    node: Node
    x: float
    y: float
    critical: bool

    @property
    def title(self) -> str:
        """Title, shortened to the room in the box."""
        return shortened(self.node.title, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An edge: an SVG path, and the position of its label."""

    edge: Edge
    path: str
    x: float
    y: float
    critical: bool
    taken: bool
    """True if its branch of a condition is taken, or may still be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A picture of ``width`` × ``height`` pixels."""

    width: float
    height: float
    boxes: Sequence[Box]
    lines: Sequence[Line]


def graph(flow: Flow, critical: Collection[tuple[str, str]], path: Collection[str]) -> Graph | None:
    """Return the picture; None without steps. ``critical``: the edges along the ``path``."""
    if not flow.nodes:
        return None
    rows, ways = layers(flow.nodes, [(edge.source, edge.target) for edge in flow.edges])
    middles = placed(rows)
    boxes = [
        Box(
            node=node,
            x=middles[name][0] - BOX_WIDTH / 2,
            y=middles[name][1] - BOX_HEIGHT / 2,
            critical=name in path,
        )
        for name, node in flow.nodes.items()
    ]
    lines = []
    for edge in flow.edges:
        points = [middles[each] for each in ways[edge.source, edge.target]]
        (x1, y1), (x2, y2) = points[0], points[1]
        lines.append(
            Line(
                edge=edge,
                path=_curve(points),
                x=round(x1 + (x2 - x1) * 0.4, 1),
                y=round((y1 + y2) / 2, 1),
                critical=(edge.source, edge.target) in critical,
                taken=flow.nodes[edge.target].status != "NotTaken",
            )
        )
    return Graph(
        width=max(x for x, _ in middles.values()) + BOX_WIDTH / 2 + MARGIN,
        height=len(rows) * DOWN - (DOWN - BOX_HEIGHT) + 2 * MARGIN,
        boxes=boxes,
        lines=lines,
    )


Rows = list[list[str | Bend]]
Ways = Mapping[tuple[str, str], Sequence[str | Bend]]


def layers(nodes: Iterable[str], edges: Sequence[tuple[str, str]]) -> tuple[Rows, Ways]:
    """Return the nodes and bends of each layer, from left to right, and the course of each edge.

    An edge that closes a cycle, which definitions of SageMaker do not have, is ignored for the
    order.
    """
    layer = _depths(nodes, edges)
    rows: Rows = [[] for _ in range(max(layer.values()) + 1)]
    for name, depth in layer.items():
        rows[depth].append(name)
    ways: dict[tuple[str, str], list[str | Bend]] = {}
    for source, target in edges:
        step = 1 if layer[source] <= layer[target] else -1
        inner = range(layer[source] + step, layer[target], step)
        bends: list[str | Bend] = [(source, target, depth) for depth in inner]
        if (source, target) not in ways:
            for depth, bend in zip(inner, bends, strict=True):
                rows[depth].append(bend)
        ways[source, target] = [source, *bends, target]
    near: dict[str | Bend, list[str | Bend]] = {}
    for way in ways.values():
        for one, other in pairwise(way):
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
    for _ in range(SWEEPS):
        at = {name: place / len(row) for row in rows for place, name in enumerate(row)}
        for row in rows:
            row.sort(key=lambda name: fmean(at[each] for each in near.get(name, [name])))
    return rows, ways


def _depths(nodes: Iterable[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each node: below all nodes that it waits for."""
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in edges:
        before[target].append(source)
    try:
        order = [*TopologicalSorter(before).static_order()]
    except CycleError:
        order = [*before]
    found: dict[str, int] = {}
    for name in order:
        found[name] = 1 + max((found.get(each, -1) for each in before[name]), default=-1)
    return found


def placed(rows: Rows) -> dict[str | Bend, Place]:
    """Return the centre of each node and bend; each layer is centred in the picture."""
    widths = [sum(_width(name) for name in row) for row in rows]
    found: dict[str | Bend, Place] = {}
    for depth, row in enumerate(rows):
        x = MARGIN + (max(widths) - widths[depth]) / 2
        for name in row:
            width = _width(name)
            found[name] = (
                x + (width - (ACROSS - BOX_WIDTH) * isinstance(name, str)) / 2,
                (MARGIN + BOX_HEIGHT / 2 + depth * DOWN),
            )
            x += width
    return found


def _width(name: str | Bend) -> float:
    return ACROSS if isinstance(name, str) else BEND


def _curve(points: Sequence[Place]) -> str:
    """Return a path from the foot of the first box, straight beside the passed boxes, to the
    last.
    """
    (x, y), *bends, (end, bottom) = points
    y += BOX_HEIGHT / 2
    found = f"M{x:.1f} {y:.1f}"
    for a, b in (*bends, (end, bottom)):
        top = b - BOX_HEIGHT / 2
        middle = (y + top) / 2
        found += f" C{x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {top:.1f}"
        x, y = a, b + BOX_HEIGHT / 2
        if (a, b) != (end, bottom):
            found += f" L{x:.1f} {y:.1f}"
    return found


def shortened(text: str, longest: int) -> str:
    """Return ``text``, or its beginning with an ellipsis, and the end of a name without spaces,
    since generated names differ there.

    ``longest``: characters; East Asian ones count as two.
    """
    columns = sum(2 if east_asian_width(one) in "WF" else 1 for one in text)
    if columns <= longest:
        return text
    room = longest * len(text) // columns - 1
    first = room if " " in text else room * 2 // 3
    return f"{text[:first]}…{text[len(text) - room + first :]}"


NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two ticks; above a day, doublings of whole days."""

TICKS = 6
"""Most ticks of a chart."""

SHORT = 0.5
"""Waits shorter than this many seconds are not shown."""

AHEAD = 6
"""Doublings of the shown time for which a running chart has ticks: the script moves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A step that has begun; times in seconds since the origin."""

    node: Node
    start: float
    end: float | None
    """End; None while it runs."""

    machines: float | None
    """Time when its machines were ready; None if not known, or if nothing waited."""

    critical: bool
    waits: bool
    """True if it still waits for machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A grid line of the chart."""

    at: float
    relative: str
    absolute: str
    rank: int
    """Halvings of the ticks that it survives: the script hides the others as time goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The bars in the order in which the steps began."""

    origin: datetime
    span: float
    """Seconds that the chart spans."""

    runs: bool
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    critical: Sequence[str]
    """Steps of the critical path."""


def timeline(
    flow: Flow, origin: datetime, now: datetime, machines: Mapping[str, datetime | None]
) -> Timeline | None:
    """Return the bars of steps that have begun; None if there are none.

    ``machines``: step → time when its machines were ready, None while they are not; only for steps
    whose job the service described.
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
    """Return the ticks, and the seconds to show: up to the next tick while the run goes on."""
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
