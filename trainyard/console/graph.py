"""The graph of an execution's steps as it is drawn: boxes and curves, in pixels."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainyard.console.boxes import placed, shortened
from trainyard.console.flow import Edge, Flow, Node

LONGEST = 20
"""Characters of a title in a box."""


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
    found = placed(flow.nodes, list(dict.fromkeys((e.source, e.target) for e in flow.edges)))
    boxes = [
        Box(node=flow.nodes[name], x=x, y=y, critical=name in path)
        for name, (x, y) in found.corners.items()
    ]
    lines = []
    for edge in flow.edges:
        curve = found.curves[edge.source, edge.target]
        lines.append(
            Line(
                edge=edge,
                path=curve.path,
                x=curve.x,
                y=curve.y,
                critical=(edge.source, edge.target) in critical,
                taken=flow.nodes[edge.target].status != "NotTaken",
            )
        )
    return Graph(width=found.width, height=found.height, boxes=boxes, lines=lines)
