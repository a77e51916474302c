"""A weight that is read, or put together from what is read: a rank needs its own rows of it only.

``Workload.restore`` makes one matrix of queries, keys and values out of three (``torch.cat``); made
whole on each rank, one of 70B would take 1 GB, more than a rank's share of the model has on 512.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from training.initial.parts import Part
from training.initial.replay import Recorded
from training.initial.steps import Step, View
from training.initial.values import Value

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Rows:
    """``count`` rows of the weight from ``first`` on, which are those of ``value`` from ``start``
    on."""

    first: int
    count: int
    value: Value
    start: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A value whose rows are those of other values."""

    rows: Sequence[Rows]

    def write(self, part: Part, into: Tensor) -> None:
        begin, end = part[0].start, part[0].stop
        for one in self.rows:
            first, last = max(begin, one.first), min(end, one.first + one.count)
            if first < last:
                shift = one.start - one.first
                theirs = (slice(first + shift, last + shift), *part[1:])
                one.value.write(theirs, into[first - begin : last - begin])


def taken(recorded: Recorded, target: View, steps: Sequence[Step]) -> Value | None:
    """What ``steps`` come to, where they only copy a value or put rows of some together; else
    None."""
    source, rest = _source(recorded, target, steps)
    if not rest:
        leaf = recorded.leaves.get(source.storage)
        whole = leaf is not None and _rows_alike(recorded, source, leaf, target)
        return leaf[0] if leaf and whole and leaf[1].size == target.size else None
    [*_, cat] = rest
    made = cat.makes[0] if cat.func is aten.cat.default else None
    if len(rest) > 1 or made is None or made.storage != source.storage:
        return None
    return _joined(recorded, target, cat)


def _source(recorded: Recorded, target: View, steps: Sequence[Step]) -> tuple[View, Sequence[Step]]:
    """What all of the target is a copy of, and the steps that make that."""
    if not steps or steps[-1].func is not aten.copy_.default:
        return target, steps
    into, source = (one for one in steps[-1].flat if isinstance(one, View))
    same = into.storage == target.storage and into.count == source.count
    if same and all(_all(recorded, one) for one in (into, source)):
        return source, steps[:-1]
    return target, steps


def _joined(recorded: Recorded, target: View, cat: Step) -> Joined | None:
    """What torch.cat gives, where that is whole rows of the target."""
    named = cat.named()
    pieces: list[View] = named["tensors"]
    found = [recorded.leaves.get(one.storage) for one in pieces]
    if not all(_rows_alike(recorded, *pair, target) for pair in zip(pieces, found, strict=True)):
        return None
    if len({one.dtype for one in pieces}) > 1:  # torch.cat turns them into another one
        return None
    dimension, width = named.get("dim", 0) % len(pieces[0].size), prod(target.size[1:])
    lengths = [prod(one.size[dimension:]) for one in pieces]
    if not width or any(length % width for length in lengths):
        return None
    rows: list[Rows] = []
    first = 0
    for outer in range(prod(pieces[0].size[:dimension])):
        for (value, _), length in zip(filter(None, found), lengths, strict=True):
            count = length // width
            rows.append(Rows(first, count, value, outer * count))
            first += count
    return Joined(rows)


def _rows_alike(
    recorded: Recorded, piece: View, leaf: tuple[Value, View] | None, target: View
) -> bool:
    """Whether a piece is all of a value, whose rows are as those of the target, all of a weight."""
    if leaf is None or not piece.size or not target.size or not _all(recorded, target):
        return False
    lies = leaf[1]
    alike = lies.size[1:] == target.size[1:] and len(lies.size) == len(target.size)
    return alike and lies.dtype == piece.dtype and all(_all(recorded, x) for x in (piece, lies))


def _all(recorded: Recorded, one: View) -> bool:
    return one.is_all(recorded.bytes_of(one.storage))
