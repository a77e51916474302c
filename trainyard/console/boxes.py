"""A graph's nodes as boxes and its edges as curves, in pixels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from trainyard.console.layout import Edges, layout

BOX_WIDTH, BOX_HEIGHT = 184, 44
BETWEEN_BOXES, BETWEEN_LAYERS = 20, 34
MARGIN = 8
WIDEST = 6
"""Boxes beside each other; a graph with a wider layer is drawn from left to right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """An edge: an SVG path, and where its label stands."""

    path: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A picture of ``width`` × ``height`` pixels."""

    width: float
    height: float
    corners: Mapping[str, tuple[float, float]]
    """Node → the upper left corner of its box."""

    curves: Mapping[tuple[str, str], Curve]


def placed(nodes: Iterable[str], edges: Edges) -> Placed:
    """Where the boxes and curves of a graph are."""
    found = layout(nodes, edges)
    across = found.width > WIDEST
    size = _Size(across)
    middles = {name: size.at(*place) for name, place in found.nodes.items()}
    width, height = size.all(found.width, found.layers)
    return Placed(
        width=width,
        height=height,
        corners={n: (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2) for n, (x, y) in middles.items()},
        curves={
            ends: _drawn(size.points([size.at(*place) for place in places]), across)
            for ends, places in found.lines.items()
        },
    )


def _drawn(points: Sequence[tuple[float, float]], across: bool) -> Curve:
    (x1, y1), (x2, y2) = points[0], points[1]
    return Curve(
        path=" ".join(_curve(points, across)),
        x=round(x1 + (x2 - x1) * 0.4, 1),
        y=round(y1 + (y2 - y1) * 0.5, 1),
    )


@dataclass(frozen=True, slots=True)
class _Size:
    """Layers one below the other, or one right of the other."""

    across: bool

    @property
    def _steps(self) -> tuple[float, float]:
        """Pixels of a node's width along the layer, and from layer to layer."""
        if self.across:
            return BOX_HEIGHT + BETWEEN_BOXES, BOX_WIDTH + BETWEEN_LAYERS * 2
        return BOX_WIDTH + BETWEEN_BOXES, BOX_HEIGHT + BETWEEN_LAYERS

    def at(self, along: float, layer: int) -> tuple[float, float]:
        """The middle in pixels."""
        one, other = self._steps
        depth = BOX_WIDTH if self.across else BOX_HEIGHT
        found = MARGIN + along * one, MARGIN + depth / 2 + layer * other
        return found[::-1] if self.across else found

    def points(self, places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """From the edge of the first box, through the bends, to the edge of the last."""
        dx, dy = (BOX_WIDTH / 2, 0.0) if self.across else (0.0, BOX_HEIGHT / 2)
        (x1, y1), *bends, (x2, y2) = places
        inner = []
        for x, y in bends:  # straight on beside the boxes that it passes
            inner += [(x - dx, y - dy), (x + dx, y + dy)]
        return [(x1 + dx, y1 + dy), *inner, (x2 - dx, y2 - dy)]

    def all(self, width: float, layers: int) -> tuple[float, float]:
        """Width and height of the picture."""
        one, other = self._steps
        gap = BETWEEN_LAYERS * 2 if self.across else BETWEEN_LAYERS
        found = width * one + 2 * MARGIN, layers * other - gap + 2 * MARGIN
        return found[::-1] if self.across else found


def _curve(points: Sequence[tuple[float, float]], across: bool) -> Iterator[str]:
    x, y = points[0]
    yield f"M{x:.1f} {y:.1f}"
    for a, b in points[1:]:
        if across:
            yield f"C{(x + a) / 2:.1f} {y:.1f} {(x + a) / 2:.1f} {b:.1f} {a:.1f} {b:.1f}"
        else:
            yield f"C{x:.1f} {(y + b) / 2:.1f} {a:.1f} {(y + b) / 2:.1f} {a:.1f} {b:.1f}"
        x, y = a, b


def shortened(text: str, longest: int) -> str:
    """``text``, or its beginning with an ellipsis; of a name without spaces its end, too, where
    names that programs give differ. ``longest``: characters; those of East Asia are two."""
    columns = sum(2 if east_asian_width(one) in "WF" else 1 for one in text)
    if columns <= longest:
        return text
    room = longest * len(text) // columns - 1
    first = room if " " in text else room * 2 // 3
    return f"{text[:first]}…{text[len(text) - room + first :]}"
