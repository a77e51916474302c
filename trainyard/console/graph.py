"""The graph of an execution's steps as it is drawn: boxes and curves, in pixels.

Layers by the longest way, a bend in each layer that a line passes, and in each layer an order by
the mean of the neighbours', so that few lines cross.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from statistics import fmean
from unicodedata import east_asian_width

from trainyard.console.flow import Edge, Flow, Node

LONGEST = 20
"""Characters of a title in a box."""

BOX_WIDTH, BOX_HEIGHT = 184, 44
ACROSS, DOWN = BOX_WIDTH + 20, BOX_HEIGHT + 34
BEND = 24
"""Pixels of a layer that a line takes which passes it."""

MARGIN = 8
SWEEPS = 6

Place = tuple[float, float]
Bend = tuple[str, str, int]
"""Of the line between two nodes, in a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step, by its upper left corner."""

    node: Node
    x: float
    y: float
    critical: bool

    @property
    def title(self) -> str:
        """As much of it as there is room for."""
        return shortened(self.node.title, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An edge: an SVG path, and where its label stands."""

    edge: Edge
    path: str
    x: float
    y: float
    critical: bool
    taken: bool
    """Whether its branch of a condition is, or may still be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A picture of ``width`` × ``height`` pixels."""

    width: float
    height: float
    boxes: Sequence[Box]
    lines: Sequence[Line]


def graph(flow: Flow, critical: Collection[tuple[str, str]], path: Collection[str]) -> Graph | None:
    """The picture; None where there is no step. ``critical``: the edges along the ``path``."""
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
    """What stands in each layer from left to right, and each edge from end to end with its bends.

    An edge that closes a circle, which no definition of SageMaker's has, is left out of the order.
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
    """Node → its layer: below all that it waits for."""
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
    """The middle of each node and bend; each layer stands in the middle of the picture."""
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
    """From the foot of the first box, straight on beside those that it passes, to the last."""
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
    """``text``, or its beginning with an ellipsis; of a name without spaces its end, too, where
    names that programs give differ. ``longest``: characters; those of East Asia are two."""
    columns = sum(2 if east_asian_width(one) in "WF" else 1 for one in text)
    if columns <= longest:
        return text
    room = longest * len(text) // columns - 1
    first = room if " " in text else room * 2 // 3
    return f"{text[:first]}…{text[len(text) - room + first :]}"
