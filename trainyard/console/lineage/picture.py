"""The picture of a lineage: boxes and curves, in pixels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainyard.console.boxes import BOX_HEIGHT, BOX_WIDTH, placed, shortened
from trainyard.console.lineage.graph import Lineage, Node

LONGEST = 20
"""Characters of a name in a box."""

LONGEST_LABEL = 12
LETTER, LINE = 6.5, 12.0
"""Pixels of a label's letter, and of its height."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A node, by its upper left corner."""

    node: Node
    x: float
    y: float

    @property
    def title(self) -> str:
        """As much of its name as there is room for."""
        return shortened(self.node.name, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An edge, and where the middle of its label stands."""

    what: str
    path: str
    x: float
    y: float
    short: str
    """As much of the label as there is room for; empty where there is none."""

    def is_over(self, other: "Line") -> bool:
        """Whether the labels of both would stand on one another."""
        width = (len(self.short) + len(other.short)) * LETTER / 2
        is_beside = abs(self.x - other.x) >= width or abs(self.y - other.y) >= LINE
        return bool(self.short and other.short) and not is_beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """``width`` × ``height`` pixels."""

    width: float
    height: float
    boxes: Sequence[Box]
    lines: Sequence[Line]
    box: tuple[int, int] = (BOX_WIDTH, BOX_HEIGHT)


def drawn(lineage: Lineage) -> Picture:
    """Raw data first, endpoints last."""
    found = placed(lineage.nodes, list(lineage.edges))
    return Picture(
        width=found.width,
        height=found.height,
        boxes=[Box(node=lineage.nodes[name], x=x, y=y) for name, (x, y) in found.corners.items()],
        lines=_apart(
            Line(
                what=(what := lineage.edges[ends]),
                path=one.path,
                x=one.x,
                y=one.y,
                short=shortened(what, LONGEST_LABEL),
            )
            for ends, one in found.curves.items()
        ),
    )


def _apart(lines: Iterable[Line]) -> list[Line]:
    """Labels that would stand on others a line higher or lower; where that is taken, none: the
    edge's own title has it, and the table."""
    found: list[Line] = []
    for line in lines:
        places = [replace(line, y=line.y + by) for by in (0.0, LINE, -LINE)]
        free = (one for one in places if not any(one.is_over(other) for other in found))
        found.append(next(free, replace(line, short="")))
    return found
