"""The steps of an execution, begun or not, and their dependencies, from its definition."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

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
    type: str
    """Type in the definition; empty if that is not known."""

    status: str
    """Status of the service, or one of ``WORDS``."""

    step: Step | None = None
    """The execution's step; None before it has begun."""

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
        name: [step.name for step in begun if step.loop == one.loop and _body(step.name) == name]
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
    return Flow(nodes, _needed(_instances(edges, bodies, nodes)))


def _node(name: str, declared: Declared | None, step: Step | None, unbegun: str) -> Node:
    document = declared.document if declared else {}
    return Node(
        name=name,
        title=step.title if step else str(document.get("DisplayName") or name),
        type=declared.type if declared else "",
        status=_status(step) if step else unbegun,
        step=step,
    )


def _status(step: Step) -> str:
    waits = step.status == "Executing" and step.metadata.get("Callback", {}).get("CallbackToken")
    return "Waiting" if waits else step.status


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


def _body(name: str) -> str:
    """Return ``Train`` for its iteration ``Train-3``."""
    return name.rpartition("-")[0]


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


def _needed(edges: Iterator[Edge]) -> tuple[Edge, ...]:
    """Return the edges without those that carry no data and are implied by a longer path."""
    every = list(edges)
    after: dict[str, set[str]] = {}
    for edge in every:
        after.setdefault(edge.source, set()).add(edge.target)
    return tuple(e for e in every if e.kind == "data" or not _detour(e.source, e.target, after))


def _detour(source: str, target: str, after: Mapping[str, set[str]]) -> bool:
    """Return whether ``target`` is reached from ``source`` by more than one edge."""
    todo = [name for name in after.get(source, ()) if name != target]
    seen = set(todo)
    while todo:
        for name in after.get(todo.pop(), ()):
            if name == target:
                return True
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return False


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


def links(path: Sequence[str]) -> set[tuple[str, str]]:
    """Return the edges along a path."""
    return set(pairwise(path))
