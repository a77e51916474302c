"""Where the nodes of a directed graph are drawn: in layers, with few crossings and short lines.

Sugiyama's method: layers by the longest way, a bend in each layer that a line passes (shared by the
lines of one node), an order in each layer by the mean of the neighbours', and in that order the
places nearest to the neighbours (the pool-adjacent-violators algorithm of isotonic regression).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

SWEEPS = 12
"""Times that the order is improved; it rarely does after the first few."""

ROUNDS = 60
"""Times that all places are made better."""

Name = str | tuple[str, int]
"""A node, or the bend of a node's lines in a layer."""

Edges = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Places are (across, layer): the middle along the layer, in nodes' widths, and its number."""

    nodes: Mapping[str, tuple[float, int]]
    lines: Mapping[tuple[str, str], Sequence[tuple[float, int]]]
    """Edge → its two ends, and between them its bends."""

    width: float
    """Of the widest layer, in nodes' widths."""

    layers: int


def layout(nodes: Iterable[str], edges: Edges, bend: float = 0.2) -> Layout:
    """Places for the nodes; ``bend``: the width of a line among them, in nodes' widths.

    An edge that closes a circle counts as one the other way round.
    """
    layer = _layers(list(nodes), edges)
    ways = {(a, b): _way(a, b, layer) for a, b in edges if a in layer and b in layer}
    rows: list[list[Name]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    above: dict[Name, list[Name]] = {}
    below: dict[Name, list[Name]] = {}
    for name, row in layer.items():
        rows[row].append(name)
    for way in ways.values():
        for one, other in pairwise(way):
            if one not in above.setdefault(other, []):
                above[other].append(one)
                below.setdefault(one, []).append(other)
        for bent in way[1:-1]:
            if isinstance(bent, tuple) and bent not in rows[bent[1]]:
                rows[bent[1]].append(bent)
    rows = _ordered(rows, above, below)
    at = _places(rows, above, below, bend)
    left = min((at[n] - _half(n, bend) for n in at), default=0)
    right = max((at[n] + _half(n, bend) for n in at), default=0)
    where = {n: (at[n] - left, n[1] if isinstance(n, tuple) else layer[n]) for n in at}
    return Layout(
        nodes={name: where[name] for name in layer},
        lines={edge: [where[n] for n in way] for edge, way in ways.items()},
        width=right - left,
        layers=len(rows),
    )


def _layers(nodes: Sequence[str], edges: Edges) -> dict[str, int]:
    """Node → its layer: below all that it waits for, and above what waits for it."""
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in edges:
        if source in before and target in before:
            before[target].append(source)
    found: dict[str, int] = {}
    for name in nodes:
        todo = [name]
        while todo:  # no recursion: a chain may be longer than Python's stack
            one = todo[-1]
            missing = [b for b in before[one] if b not in found and b not in todo]
            if missing:
                todo.append(missing[0])
            else:
                todo.pop()
                found[one] = max((found.get(b, -1) for b in before[one]), default=-1) + 1
    for name in nodes:  # what waits for nothing stands beside what it is for
        after = [found[b] for a, b in edges if a == name and b in found]
        if not before[name] and after:
            found[name] = max(0, min(after) - 1)
    rows = {row: number for number, row in enumerate(sorted(set(found.values())))}
    return {name: rows[found[name]] for name in nodes}


def _way(source: str, target: str, layer: Mapping[str, int]) -> list[Name]:
    first, last = sorted((source, target), key=lambda name: layer[name])
    bends: list[Name] = [(first, row) for row in range(layer[first] + 1, layer[last])]
    return [first, *bends, last] if first == source else [first, *bends, last][::-1]


def _ordered(
    rows: list[list[Name]],
    above: Mapping[Name, Sequence[Name]],
    below: Mapping[Name, Sequence[Name]],
) -> list[list[Name]]:
    """The order with the fewest crossings of those that the sweeps come by."""
    best, fewest = [row[:] for row in rows], _crossings(rows, below)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        for number in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            beside = {n: p for p, n in enumerate(rows[number - 1 if down else number + 1])}
            near = above if down else below
            rows[number].sort(key=_mean(near, beside, rows[number]).__getitem__)
        if (crossed := _crossings(rows, below)) < fewest:
            best, fewest = [row[:] for row in rows], crossed
    return best


def _mean(
    near: Mapping[Name, Sequence[Name]], beside: Mapping[Name, int], row: Sequence[Name]
) -> dict[Name, float]:
    """Of each the mean place of its neighbours; its own where it has none."""
    found = {}
    for place, name in enumerate(row):
        places = [beside[n] for n in near.get(name, ()) if n in beside]
        found[name] = fmean(places) if places else float(place)
    return found


def _crossings(rows: Sequence[Sequence[Name]], below: Mapping[Name, Sequence[Name]]) -> int:
    found = 0
    for row, following in pairwise(rows):
        place = {name: p for p, name in enumerate(following)}
        passed: list[int] = []
        for name in row:
            ends = [place[n] for n in below.get(name, ()) if n in place]
            found += sum(1 for end in ends for other in passed if other > end)
            passed += ends
    return found


def _half(name: Name, bend: float) -> float:
    return bend / 2 if isinstance(name, tuple) else 0.5


def _places(
    rows: Sequence[Sequence[Name]],
    above: Mapping[Name, Sequence[Name]],
    below: Mapping[Name, Sequence[Name]],
    bend: float,
) -> dict[Name, float]:
    """The middle of each node and bend, in the order of its row, as near to its neighbours' as the
    others in the row let it be."""
    at = {name: float(place) for row in rows for place, name in enumerate(row)}
    for sweep in range(ROUNDS + 1):
        last = sweep == ROUNDS  # each below what leads to it
        near = [above] if last else [above, below]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            offsets = [0.0]
            for one, other in pairwise(row):
                offsets.append(offsets[-1] + _half(one, bend) + _half(other, bend))
            wished = [_wished(name, at, near) for name in row]
            for place, wish in enumerate(wished):  # what stands alone stands with the others
                if wish is None:
                    before = wished[place - 1] if place else None
                    wished[place] = at[row[place]] if before is None else before
            free = _rising([(w or 0.0) - o for w, o in zip(wished, offsets, strict=True)])
            at.update({n: f + o for n, f, o in zip(row, free, offsets, strict=True)})
    return at


def _wished(
    name: Name, at: Mapping[Name, float], near: Sequence[Mapping[Name, Sequence[Name]]]
) -> float | None:
    """The mean place of its neighbours; None where it has none."""
    places = [at[n] for side in near for n in side.get(name, ())]
    return fmean(places) if places else None


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest values, by squares, of which none is smaller than the one before."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, n), (b, m) = pools[-2:]
            pools[-2:] = [((a * n + b * m) / (n + m), n + m)]
    return [value for value, count in pools for _ in range(count)]
