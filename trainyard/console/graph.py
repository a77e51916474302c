"""The steps of an execution with their dependencies, from its definition; their graph and their
timeline, as drawn.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain, count
from typing import Any, Literal
from unicodedata import east_asian_width

import graphlay

from trainyard.language.statuses import ENDED
from trainyard.language.steps import Step as Declared
from trainyard.language.steps import steps_of
from trainyard.runs.execution import Step

Kind = Literal["data", "order", "branch", "loop"]
WORDS: Mapping[str, str] = {
    "NotStarted": "not started",
    "NotTaken": "not taken",
    "NotRun": "not run",
    "Waiting": "waits for an answer",
}
"""Status that the service does not have → its words on the pages."""


ORDER = """
Failed Waiting Executing Starting Stopping Stopped Succeeded NotStarted NotTaken NotRun
""".split()
"""Statuses in the order in which pages count them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step of the flow."""

    name: str
    title: str
    type: str  # type in the definition; empty if that is not known
    status: str  # status of the service, or one of ``WORDS``
    step: Step | None = None  # the execution's step; None before it has begun

    @property
    def said(self) -> str:
        """Status in words, with the source of a reused result."""
        word = WORDS.get(self.status, self.status)
        if self.step is None:
            return word
        return f"{word}, cached" if self.step.cached else word + ", reused" * self.step.reused


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``target`` waits for ``source``."""

    source: str
    target: str
    kind: Kind
    label: str = ""
    """``if`` or ``else`` if ``target`` is in that branch of the condition ``source``."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The steps, each after those that precede it in the definition."""

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Status → number of steps: first those that need attention, last those that never ran."""
        found = Counter(node.status for node in self.nodes.values())
        order = {status: place for place, status in enumerate(ORDER)}
        return dict(sorted(found.items(), key=lambda each: order.get(each[0], 0)))

    def before(self, name: str) -> Iterator[str]:
        """Iterate over the steps that it waits for."""
        return (edge.source for edge in self.edges if edge.target == name)


def flow(document: Mapping[str, Any], status: str, begun: Sequence[Step]) -> Flow:
    """Return the steps of the definition ``document`` in an execution of that status.

    ``begun``: steps that have begun. A step that is not in the definition (an iteration of a loop,
    or any step without a known definition) takes the place of its loop's body step, or is alone.
    """
    known = {step.name: step for step in begun}
    declared = {step.name: step for step in steps_of(document.get("Steps"))}
    bodies = {
        name: [
            step.name
            for step in begun
            if step.loop == one.loop and step.name.rpartition("-")[0] == name
        ]
        for name, one in declared.items()
        if one.loop is not None
    }
    nodes = {}
    for name, one in declared.items():
        for made in bodies.get(name) or [name]:
            nodes[made] = _node(made, one, known.get(made), _unbegun(one, declared, known, status))
    for step in begun:
        if step.name not in nodes:
            nodes[step.name] = _node(step.name, None, step, status)
    edges = [edge for one in declared.values() for edge in _edges(one)]
    return Flow(nodes, tuple(_instances(edges, bodies, nodes)))


def _node(name: str, declared: Declared | None, step: Step | None, unbegun: str) -> Node:
    document = declared.document if declared else {}
    status = step.status if step else unbegun
    if step and status == "Executing" and step.metadata.get("Callback", {}).get("CallbackToken"):
        status = "Waiting"
    return Node(
        name=name,
        title=step.title if step else str(document.get("DisplayName") or name),
        type=declared.type if declared else "",
        status=status,
        step=step,
    )


def _unbegun(
    one: Declared, declared: Mapping[str, Declared], known: Mapping[str, Step], status: str
) -> str:
    """Return the status of a step that has not begun."""
    seen = set()
    holder: Declared | None = one
    while holder and holder.branch and holder.name not in seen:
        seen.add(holder.name)
        condition, wanted = holder.branch
        outcome = known[condition].metadata.get("Condition", {}) if condition in known else {}
        if outcome.get("Outcome", str(wanted)).lower() != str(wanted).lower():
            return "NotTaken"
        holder = declared.get(condition)
    return "NotRun" if status in ENDED else "NotStarted"


def _edges(one: Declared) -> Iterator[Edge]:
    data = dict.fromkeys(one.reads)
    for source in data:
        yield Edge(source=source, target=one.name, kind="data")
    for source in dict.fromkeys(one.depends_on):
        if source not in data:
            yield Edge(source=source, target=one.name, kind="order")
    if one.branch:
        label = "if" if one.branch[1] else "else"
        yield Edge(source=one.branch[0], target=one.name, kind="branch", label=label)
    if one.loop:
        yield Edge(source=one.loop, target=one.name, kind="loop", label="each")


def _instances(
    edges: Sequence[Edge], bodies: Mapping[str, Sequence[str]], nodes: Mapping[str, Node]
) -> Iterator[Edge]:
    """Iterate over the edges of loops' bodies, once per iteration, without edges to missing
    steps.
    """
    for edge in edges:
        targets = bodies.get(edge.target) or [edge.target]
        sources = bodies.get(edge.source) or [edge.source]
        within = len(sources) > 1 and len(targets) > 1
        for target in targets:
            for source in sources:
                alike = source.rpartition("-")[2] == target.rpartition("-")[2]
                known = source in nodes and target in nodes and source != target
                if known and (alike or not within):
                    yield Edge(source=source, target=target, kind=edge.kind, label=edge.label)


def ends_last(flow: Flow, ends: Mapping[str, float]) -> list[str]:
    """Return the critical path: from the step that ended last back to the first, each time by the
    predecessor that ended last. ``ends``: step → end, for steps that have begun.
    """
    path = []
    name = max(ends, key=lambda each: ends[each], default=None)
    while name is not None and name not in path:
        path.append(name)
        waited = [each for each in flow.before(name) if each in ends]
        name = max(waited, key=lambda each: ends[each], default=None)
    return path[::-1]


HEIGHT = 44  # height of a box

NARROWEST, WIDEST = 150, 320
"""Widths of boxes; the style sheet ends a longer title with an ellipsis."""

LETTER, SMALL, BESIDE = 7.6, 6.2, 44
"""Width of a letter of a title, of one of the line below it, and of everything beside them."""

TIME, BELOW = 14, 9  # letters of that line for the time, and for ``cached`` or ``reused``
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
    taken: bool  # true if its branch of a condition is taken, or may still be


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

TICKS = 6  # most ticks of a chart
SHORT = 0.5  # waits shorter than this many seconds are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A step that has begun; times in seconds since the origin."""

    node: Node
    start: float
    end: float | None  # end; None while it runs
    machines: float | None
    """Time when its machines were ready; None if not known, or if nothing waited."""

    critical: bool
    waits: bool  # true if it still waits for machines


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
    span: float  # seconds that the chart spans
    runs: bool
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    critical: Sequence[str]  # steps of the critical path


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
    days = (86400 * 2**power for power in count())
    every = next(seconds for seconds in chain(NICE, days) if widest / seconds < TICKS)
    span = math.ceil(widest * 1.02 / every) * every if runs else widest * 1.02
    return [_tick(origin, every * i, widest) for i in range(int(span / every) + 1)], span


def _tick(origin: datetime, at: float, widest: float) -> Tick:
    when = (origin + timedelta(seconds=at)).astimezone()
    absolute = when.strftime("%H:%M:%S" if widest < 3600 else "%H:%M")
    if widest > 86400:
        absolute = when.strftime("%m-%d %H:%M")
    minutes, seconds = divmod(round(at), 60)
    relative = f"{minutes // 60}:{minutes % 60:02d} h" if at >= 3600 else f"{minutes}:{seconds:02d}"
    return Tick(at=at, relative=relative, absolute=absolute)
