"""The graph of an execution's steps, and their timeline, as drawn: boxes and lines, in pixels."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from unicodedata import east_asian_width

import graphlay

from trainyard.console.step_flow import Edge, Flow, Node, ends_last

HEIGHT = 44
"""Height of a box."""

NARROWEST, WIDEST = 150, 320
"""Widths of boxes; the style sheet ends a longer title with an ellipsis."""

LETTER, SMALL, BESIDE = 7.6, 6.2, 44
"""Width of a letter of a title, of one of the line below it, and of everything beside them."""

TIME, BELOW = 14, 9
"""Letters of that line for the time, and for ``cached`` or ``reused``."""

MARGIN = 8
OPTIONS = {
    "direction": "topbottom",
    "spacing": {"layer_gap": 34.0, "node_gap": 20.0, "dummy_gap": 16.0},
    "routing": {"style": "diagonal", "port_sides": "facing_only"},
}
"""What differs from graphlay's preset ``layered``."""

Place = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step's box, by its upper left corner."""

    node: Node
    x: float
    y: float
    width: float
    critical: bool


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
    sizes = tuple((name, _width(node)) for name, node in flow.nodes.items())
    edges = tuple((edge.source, edge.target) for edge in flow.edges)
    spots, ways, (width, height) = placed(sizes, edges)
    boxes = [
        Box(node=node, x=x - wide / 2, y=y - HEIGHT / 2, width=wide, critical=name in path)
        for (name, wide), (x, y), node in zip(sizes, spots, flow.nodes.values(), strict=True)
    ]
    lines = []
    for edge, points in zip(flow.edges, ways, strict=True):
        (x1, y1), (x2, y2) = points[0], points[1]
        lines.append(
            Line(
                edge=edge,
                path="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points),
                x=round((x1 + x2) / 2, 1),
                y=round((y1 + y2) / 2 + 4, 1),
                critical=(edge.source, edge.target) in critical,
                taken=flow.nodes[edge.target].status != "NotTaken",
            )
        )
    return Graph(width=width, height=height, boxes=boxes, lines=lines)


def _width(node: Node) -> float:
    columns = sum(2 if east_asian_width(one) in "WF" else 1 for one in node.title)
    below = len(node.type) + BELOW * bool(node.step and (node.step.cached or node.step.reused))
    return min(WIDEST, max(NARROWEST, BESIDE + LETTER * columns, BESIDE + SMALL * (TIME + below)))


@lru_cache(maxsize=64)
def placed(
    sizes: tuple[tuple[str, float], ...], edges: tuple[tuple[str, str], ...]
) -> tuple[list[Place], list[list[Place]], Place]:
    """Return the centre of each box, the points of each edge, and the picture's lower right corner.

    ``sizes``: (name, width) of each box. The layout is kept: a page is drawn at every change.
    """
    asked = graphlay.Graph()
    for name, width in sizes:
        asked.node(name, width=width, height=HEIGHT)
    for source, target in edges:
        asked.edge(source, target)
    found = graphlay.layout(asked, options=OPTIONS)
    ways = [[(point["x"], point["y"]) for point in edge["points"]] for edge in found.edges]
    spots = [(node["center"]["x"], node["center"]["y"]) for node in found.nodes]
    halves = [width / 2 for _, width in sizes]
    every = [place for way in ways for place in way]
    boxes = [(x - half, x + half) for (x, _), half in zip(spots, halves, strict=True)]
    left = min([start for start, _ in boxes] + [x for x, _ in every])
    right = max([end for _, end in boxes] + [x for x, _ in every])
    top, bottom = min(y for _, y in spots) - HEIGHT / 2, max(y for _, y in spots) + HEIGHT / 2

    def moved(place: Place) -> Place:
        return place[0] - left + MARGIN, place[1] - top + MARGIN

    ends = right - left + 2 * MARGIN, bottom - top + 2 * MARGIN
    return [moved(one) for one in spots], [[moved(one) for one in way] for way in ways], ends


NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two ticks; above a day, doublings of whole days."""

TICKS = 6
"""Most ticks of a chart."""

SHORT = 0.5
"""Waits shorter than this many seconds are not shown."""


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
    return [_tick(origin, every * i, widest) for i in range(int(span / every) + 1)], span


def _every(widest: float) -> float:
    for seconds in NICE:
        if widest / seconds < TICKS:
            return seconds
    days = 1
    while widest / (86400 * days) >= TICKS:
        days *= 2
    return 86400 * days


def _tick(origin: datetime, at: float, widest: float) -> Tick:
    when = (origin + timedelta(seconds=at)).astimezone()
    absolute = when.strftime("%H:%M:%S" if widest < 3600 else "%H:%M")
    if widest > 86400:
        absolute = when.strftime("%m-%d %H:%M")
    minutes, seconds = divmod(round(at), 60)
    relative = f"{minutes // 60}:{minutes % 60:02d} h" if at >= 3600 else f"{minutes}:{seconds:02d}"
    return Tick(at=at, relative=relative, absolute=absolute)
