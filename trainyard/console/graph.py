"""The graph of an execution's steps and dependencies, and its timeline, as they are drawn.

The steps and dependencies come from the execution's definition.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain, count
from typing import Any, Literal
from unicodedata import east_asian_width

import graphlay

from trainyard.language.definition_document import END_STATUSES, iter_steps
from trainyard.language.definition_document import Step as StepDefinition
from trainyard.runs.execution import Step

Kind = Literal["data", "order", "branch", "loop"]
WORDS: Mapping[str, str] = {
    "NotStarted": "not started",
    "NotTaken": "not taken",
    "NotRun": "not run",
    "Waiting": "waits for an answer",
}
"""Text on the pages for each status that the service does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step of the flow."""

    name: str
    title: str
    type: str  # type in the definition; empty if it is not known
    status: str  # status of the service, or one of ``WORDS``
    step: Step | None = None  # the execution's step; None if it has not begun

    @property
    def status_text(self) -> str:
        """Return the status as text, with ``cached`` or ``reused`` for a reused result."""
        word = WORDS.get(self.status, self.status)
        if self.step is None:
            return word
        return f"{word}, cached" if self.step.cached else word + ", reused" * self.step.reused


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A dependency: ``target`` waits for ``source``."""

    source: str
    target: str
    kind: Kind
    label: str = ""
    """``if`` or ``else`` if ``target`` is in that branch of the condition ``source``."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The steps, each after those that precede it in the definition, and their dependencies."""

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]

    def iter_predecessors(self, name: str) -> Iterator[str]:
        """Return an iterator over the steps that the step waits for."""
        return (edge.source for edge in self.edges if edge.target == name)


def build_flow(document: Mapping[str, Any], status: str, started_steps: Sequence[Step]) -> Flow:
    """Return the steps of a definition with their statuses in an execution, and their edges.

    Args:
        document: the definition.
        status: status of the execution.
        started_steps: steps that have begun. An iteration of a loop replaces the loop's body step.
            A step that is not in the definition (or if the definition is unknown) is added without
            dependencies.
    """
    steps_by_name = {step.name: step for step in started_steps}
    definitions = {step.name: step for step in iter_steps(document.get("Steps"))}
    # An iteration of a loop's body step is named <name>-<index>.
    bodies = {
        name: [
            step.name
            for step in started_steps
            if step.loop == definition.loop and step.name.rpartition("-")[0] == name
        ]
        for name, definition in definitions.items()
        if definition.loop is not None
    }
    nodes = {}
    for name, definition in definitions.items():
        for node_name in bodies.get(name) or [name]:
            nodes[node_name] = _build_node(
                node_name,
                definition,
                steps_by_name.get(node_name),
                _infer_unstarted_status(definition, definitions, steps_by_name, status),
            )
    for step in started_steps:
        if step.name not in nodes:
            nodes[step.name] = _build_node(step.name, None, step, status)
    edges = [edge for definition in definitions.values() for edge in _iter_edges(definition)]
    return Flow(nodes, tuple(_iter_instance_edges(edges, bodies, nodes)))


def _build_node(
    name: str, definition: StepDefinition | None, step: Step | None, unbegun: str
) -> Node:
    """Return a step's node; ``unbegun`` is its status if the execution has not started the step."""
    document = definition.document if definition else {}
    status = step.status if step else unbegun
    if step and status == "Executing" and step.metadata.get("Callback", {}).get("CallbackToken"):
        status = "Waiting"
    return Node(
        name=name,
        title=step.title if step else str(document.get("DisplayName") or name),
        type=definition.type if definition else "",
        status=status,
        step=step,
    )


def _infer_unstarted_status(
    definition: StepDefinition,
    definitions: Mapping[str, StepDefinition],
    steps_by_name: Mapping[str, Step],
    status: str,
) -> str:
    """Return the status of a step that has not begun."""
    names = set()
    holder: StepDefinition | None = definition
    while holder and holder.branch and holder.name not in names:
        names.add(holder.name)
        condition, branch_outcome = holder.branch
        outcome = (
            steps_by_name[condition].metadata.get("Condition", {})
            if condition in steps_by_name
            else {}
        )
        # Before the condition has an outcome, the branch may still be taken.
        if outcome.get("Outcome", str(branch_outcome)).lower() != str(branch_outcome).lower():
            return "NotTaken"
        holder = definitions.get(condition)
    return "NotRun" if status in END_STATUSES else "NotStarted"


def _iter_edges(definition: StepDefinition) -> Iterator[Edge]:
    """Yield the dependencies of one step."""
    data = dict.fromkeys(definition.reads)
    for source in data:
        yield Edge(source=source, target=definition.name, kind="data")
    for source in dict.fromkeys(definition.depends_on):
        if source not in data:
            yield Edge(source=source, target=definition.name, kind="order")
    if definition.branch:
        label = "if" if definition.branch[1] else "else"
        yield Edge(source=definition.branch[0], target=definition.name, kind="branch", label=label)
    if definition.loop:
        yield Edge(source=definition.loop, target=definition.name, kind="loop", label="each")


def _iter_instance_edges(
    edges: Sequence[Edge], bodies: Mapping[str, Sequence[str]], nodes: Mapping[str, Node]
) -> Iterator[Edge]:
    """Yield the dependencies, with those of a loop's body steps repeated for each iteration.

    Dependencies on steps that do not exist are left out.
    """
    for edge in edges:
        targets = bodies.get(edge.target) or [edge.target]
        sources = bodies.get(edge.source) or [edge.source]
        has_instances = len(sources) > 1 and len(targets) > 1
        for target in targets:
            for source in sources:
                # Two body steps of a loop wait for each other only within an iteration.
                is_same_instance = source.rpartition("-")[2] == target.rpartition("-")[2]
                is_known = source in nodes and target in nodes and source != target
                if is_known and (is_same_instance or not has_instances):
                    yield Edge(source=source, target=target, kind=edge.kind, label=edge.label)


def find_critical_path(flow: Flow, ends: Mapping[str, float]) -> list[str]:
    """Return the critical path: the steps that determined when the execution ended, in order.

    It is found from the step that ended last, by going back to the predecessor that ended last each
    time. ``ends`` has the end of each step that has begun.
    """
    path = []
    name = max(ends, key=lambda step_name: ends[step_name], default=None)
    while name is not None and name not in path:
        path.append(name)
        predecessors = [
            predecessor for predecessor in flow.iter_predecessors(name) if predecessor in ends
        ]
        name = max(predecessors, key=lambda predecessor: ends[predecessor], default=None)
    return path[::-1]


HEIGHT = 44  # height of a box

NARROWEST, WIDEST = 150, 320
"""Minimum and maximum width of a box. The style sheet truncates longer titles with an ellipsis."""

LETTER, SMALL, SIDE_WIDTH = 7.6, 6.2, 44
"""Width of a letter of a title, of a letter of the line below it, and of everything next to them.
"""

TIME, BELOW = 14, 9  # number of letters, in that line, for the time and for ``cached``/``reused``
MARGIN = 8
OPTIONS = {
    "direction": "topbottom",
    "spacing": {"layer_gap": 34.0, "node_gap": 20.0, "dummy_gap": 16.0},
    "routing": {"style": "diagonal", "port_sides": "facing_only"},
}
"""Options that differ from graphlay's preset ``layered``."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step's box; x and y are those of its upper left corner."""

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
    taken: bool  # true if its branch of a condition is taken, or may still be taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A picture of ``width`` × ``height`` pixels."""

    width: float
    height: float
    boxes: Sequence[Box]
    lines: Sequence[Line]


def draw_graph(
    flow: Flow, critical: Collection[tuple[str, str]], path: Collection[str]
) -> Graph | None:
    """Return the positions and curves of a run's graph of steps; None if the run has no steps.

    ``critical`` has the edges along the critical ``path``.
    """
    if not flow.nodes:
        return None
    sizes = tuple((name, _compute_width(node)) for name, node in flow.nodes.items())
    edges = tuple((edge.source, edge.target) for edge in flow.edges)
    spots, routes, (width, height) = compute_layout(sizes, edges)
    boxes = [
        Box(node=node, x=x - wide / 2, y=y - HEIGHT / 2, width=wide, critical=name in path)
        for (name, wide), (x, y), node in zip(sizes, spots, flow.nodes.values(), strict=True)
    ]
    lines = []
    for edge, points in zip(flow.edges, routes, strict=True):
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


def _compute_width(node: Node) -> float:
    """Return the width of a step's box."""
    columns = sum(2 if east_asian_width(letter) in "WF" else 1 for letter in node.title)
    below = len(node.type) + BELOW * bool(node.step and (node.step.cached or node.step.reused))
    return min(
        WIDEST, max(NARROWEST, SIDE_WIDTH + LETTER * columns, SIDE_WIDTH + SMALL * (TIME + below))
    )


@lru_cache(maxsize=64)
def compute_layout(
    sizes: tuple[tuple[str, float], ...], edges: tuple[tuple[str, str], ...]
) -> tuple[list[Point], list[list[Point]], Point]:
    """Return the centre of each box, the points of each edge, and the picture's lower right corner.

    ``sizes`` has (name, width) of each box. The layout is cached, because a page is rendered again
    at every change.
    """
    graph = graphlay.Graph()
    for name, width in sizes:
        graph.node(name, width=width, height=HEIGHT)
    for source, target in edges:
        graph.edge(source, target)
    layout = graphlay.layout(graph, options=OPTIONS)
    routes = [[(point["x"], point["y"]) for point in edge["points"]] for edge in layout.edges]
    spots = [(node["center"]["x"], node["center"]["y"]) for node in layout.nodes]
    halves = [width / 2 for _, width in sizes]
    every = [point for route in routes for point in route]
    boxes = [(x - half, x + half) for (x, _), half in zip(spots, halves, strict=True)]
    left_edge = min([start for start, _ in boxes] + [x for x, _ in every])
    right = max([end for _, end in boxes] + [x for x, _ in every])
    top, bottom = min(y for _, y in spots) - HEIGHT / 2, max(y for _, y in spots) + HEIGHT / 2

    def shift_point(point: Point) -> Point:
        return point[0] - left_edge + MARGIN, point[1] - top + MARGIN

    ends = right - left_edge + 2 * MARGIN, bottom - top + 2 * MARGIN
    return (
        [shift_point(center) for center in spots],
        [[shift_point(point) for point in route] for route in routes],
        ends,
    )


NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Allowed seconds between two ticks. Above a day, they are whole days, doubled each time."""

TICKS = 6  # maximum number of ticks of a chart
SHORT = 0.5  # waits shorter than this many seconds are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A step that has begun. Times are in seconds since the timeline's origin."""

    node: Node
    start: float
    end: float | None  # None while it runs
    machines: float | None
    """Time when its machines were ready. None if it is not known or the wait was too short."""

    critical: bool
    waits: bool  # true if it is still waiting for machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A grid line of the chart, with its labels."""

    at: float
    relative: str
    absolute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The bars, in the order in which the steps began."""

    origin: datetime
    span: float  # seconds that the chart spans
    runs: bool
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    critical: Sequence[str]  # steps of the critical path


def build_timeline(
    flow: Flow, origin: datetime, now: datetime, machines: Mapping[str, datetime | None]
) -> Timeline | None:
    """Return the bars of the steps that have begun, or None if there are none.

    ``machines`` has the time when a step's machines were ready, or None while they are not. It has
    only steps whose job is described by the service.
    """
    started_nodes = {n: node for n, node in flow.nodes.items() if node.step and node.step.started}
    if not started_nodes:
        return None
    began = {
        n: node.step.started for n, node in started_nodes.items() if node.step and node.step.started
    }
    origin = min(origin, *began.values())
    start = {name: (when - origin).total_seconds() for name, when in began.items()}
    end = {
        name: (node.step.ended - origin).total_seconds()
        for name, node in started_nodes.items()
        if node.step and node.step.ended
    }
    elapsed_seconds = max((now - origin).total_seconds(), *start.values())
    path = find_critical_path(
        flow, {name: end.get(name, elapsed_seconds) for name in started_nodes}
    )
    bars = []
    for name, node in sorted(started_nodes.items(), key=lambda item: start[item[0]]):
        machines_time = machines.get(name)
        machines_start = None if machines_time is None else (machines_time - origin).total_seconds()
        bars.append(
            Bar(
                node=node,
                start=start[name],
                end=end.get(name),
                machines=machines_start
                if machines_start
                and start[name] + SHORT < machines_start <= end.get(name, elapsed_seconds)
                else None,
                critical=name in path,
                waits=name in machines and machines_time is None and name not in end,
            )
        )
    runs = len(end) < len(started_nodes)
    widest = max([*end.values(), *([elapsed_seconds] if runs else [])])
    ticks, span = _choose_ticks(origin, max(widest, 1.0), runs)
    return Timeline(origin=origin, span=span, runs=runs, bars=bars, ticks=ticks, critical=path)


def _choose_ticks(origin: datetime, widest: float, runs: bool) -> tuple[list[Tick], float]:
    """Return (ticks, chart length in seconds); while the execution runs, up to the next tick."""
    days = (86400 * 2**power for power in count())
    every = next(seconds for seconds in chain(NICE, days) if widest / seconds < TICKS)
    span = math.ceil(widest * 1.02 / every) * every if runs else widest * 1.02
    return [_make_tick(origin, every * i, widest) for i in range(int(span / every) + 1)], span


def _make_tick(origin: datetime, offset: float, widest: float) -> Tick:
    """Return the tick at ``offset`` seconds; ``widest`` decides the format of its label."""
    when = (origin + timedelta(seconds=offset)).astimezone()
    absolute = when.strftime("%H:%M:%S" if widest < 3600 else "%H:%M")
    if widest > 86400:
        absolute = when.strftime("%m-%d %H:%M")
    minutes, seconds = divmod(round(offset), 60)
    relative = (
        f"{minutes // 60}:{minutes % 60:02d} h" if offset >= 3600 else f"{minutes}:{seconds:02d}"
    )
    return Tick(at=offset, relative=relative, absolute=absolute)
