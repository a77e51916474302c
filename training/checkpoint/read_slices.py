"""Read and verify this rank's slices of a checkpoint, then write them all into the tensors.

Which parts of which files it needs is computed once for tensors with the same layout. What was read
waits in memory, as much as this rank holds, until every rank has found its part intact: a torn file
leaves no trace in any rank's weights.
"""

import hashlib
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.checkpoint.block_hashes import (
    BLOCK,
    HASH,
    Source,
    Torn,
    Verified,
    hashes_path,
)
from training.checkpoint.file_image import local, part_of, torch_type
from training.checkpoint.marker import Written
from training.checkpoint.tensor_table import WIDTHS, Layout, Part, Table, parsed
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    from training.checkpoint.find_files import Files

MOST = 16 * 2**20  # bytes that are read at once
RUN = 8 * BLOCK  # contiguous bytes above which gaps between them are not read

Open = Callable[[str], Source]
"""Opens a file by name, on this machine or another."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A region of a part in a file, and where it goes in this rank's part of a tensor."""

    name: str
    file: int
    sizes: tuple[int, ...]
    """Sizes of the part in the file."""
    begin: tuple[int, ...]
    lengths: tuple[int, ...]
    into: tuple[int, ...]


def slices(parts: Mapping[str, Part], table: Table, where: str) -> list[Slice]:
    """Return the slices that this rank needs to read.

    Args:
        parts: name → what this rank holds.

    Raises:
        TrainingError: a tensor is not in the checkpoint, or has another shape there.
    """
    found: list[Slice] = []
    alike: dict[tuple[int, Part], list[tuple]] = {}
    for name, part in parts.items():
        if name not in table.tensors:
            raise TrainingError(f"{where}: holds no {name}, which this training has")
        layout = table.layouts[table.tensors[name][1]]
        if part.shape != layout.shape:
            raise TrainingError(
                f"{where}: {name} has shape {list(layout.shape)} there, and {list(part.shape)} here"
            )
        key = table.tensors[name][1], part
        if key not in alike:
            alike[key] = list(_overlaps(layout, part))
        found += [Slice(name, *one) for one in alike[key]]
    return found


def _overlaps(layout: Layout, part: Part) -> Iterator[tuple]:
    """Yield the overlap of each file's piece with ``part``: a slice's fields except its name."""
    if not math.prod(part.sizes):
        return
    ends = [begin + size for begin, size in zip(part.offsets, part.sizes, strict=True)]
    for file, offsets, sizes in layout.pieces:
        first = tuple(map(max, offsets, part.offsets))
        lengths = tuple(min(o + s, end) - f for o, s, end, f in
                        zip(offsets, sizes, ends, first, strict=True))  # fmt: skip
        if all(length > 0 for length in lengths):
            begin = tuple(map(operator.sub, first, offsets))
            yield file, sizes, begin, lengths, tuple(map(operator.sub, first, part.offsets))


def read(
    state: Mapping[str, Tensor], files: "Files", local_rank: int, advance: Callable[[], None]
) -> dict[str, Tensor]:
    """Return name → this rank's part of each tensor as it is in the checkpoint, on the CPU.

    Args:
        local_rank: ranks of a machine that need the same files begin with different ones, and find
            in its memory what the others had from the disk.
        advance: called each time some bytes were read.

    Raises:
        Torn: a file is not as it was written.
        TrainingError: the checkpoint does not fit the state.
    """
    said, table = files.said, files.said.table
    needed: dict[int, list[Slice]] = defaultdict(list)
    parts = {name: part_of(name, tensor) for name, tensor in state.items()}
    for one in slices(parts, table, str(files.folder)):
        needed[one.file].append(one)
    read = {name: torch.empty_like(local(tensor), device="cpu") for name, tensor in state.items()}
    numbers = sorted(needed)
    first = local_rank % max(1, len(numbers))
    for number in numbers[first:] + numbers[:first]:
        name = said.names[number]
        with closing(File(name, said.files[name], files.opened, lambda count: advance())) as file:
            file.fill(read, needed[number])
    return read


class File:
    """A shard whose header has been read."""

    def __init__(
        self, name: str, written: Written, opened: Open, advance: Callable[[int], None]
    ) -> None:
        self._name = name
        hashes = bytearray(-(-written.bytes // BLOCK) * HASH)
        with closing(opened(hashes_path(Path(name)).name)) as source:
            source.read(0, memoryview(hashes))
        advance(len(hashes))
        if hashlib.sha256(hashes).hexdigest() != written.sha256:
            raise Torn(f"{hashes_path(Path(name))} is not as it was written")
        self._content = Verified(name, opened(name), written.bytes, bytes(hashes), advance)
        self._header, self._data = parsed(self._content.read)

    def close(self) -> None:
        self._content.close()

    def fill(self, read: Mapping[str, Tensor], needed: list[Slice]) -> None:
        """Copy the slices to their destinations."""
        steps = [(*cut, one) for one in needed for cut in self._cuts(one)]
        for begin, end, start, lengths, one in sorted(steps, key=lambda step: step[:2]):
            content = self._content.read(begin, end)
            dtype = torch_type(self._header[one.name]["dtype"])
            part = _typed(content, dtype).as_strided(lengths, _strides(one.sizes))
            into = read[one.name]
            for dimension, (at, length) in enumerate(zip(start, lengths, strict=True)):
                into = into.narrow(dimension, one.into[dimension] + at, length)
            into.copy_(part)

    def _cuts(self, one: Slice) -> Iterator[tuple[int, int, tuple, tuple]]:
        """Yield (begin and end in the file, begin in the slice, lengths) of each piece to read."""
        said = self._header.get(one.name)
        if said is None or tuple(said["shape"]) != one.sizes:
            raise Torn(f"{self._name} does not hold what the marker says of {one.name}")
        width, strides = WIDTHS[said["dtype"]], _strides(one.sizes)
        base = self._data + said["data_offsets"][0]
        for start, lengths in _cut((0,) * len(one.lengths), one.lengths, strides, width):
            at = [b + s for b, s in zip(one.begin, start, strict=True)]
            first = sum(a * s for a, s in zip(at, strides, strict=True))
            begin = base + first * width
            yield begin, begin + _span(lengths, strides) * width, start, lengths


def _strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[dimension + 1 :]) for dimension in range(len(sizes)))


def _span(lengths: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Number of elements from a slice's first element to its last, both included."""
    return 1 + sum((n - 1) * stride for n, stride in zip(lengths, strides, strict=True))


def _cut(
    start: tuple[int, ...], lengths: tuple[int, ...], strides: tuple[int, ...], width: int
) -> Iterator[tuple[tuple, tuple]]:
    """Yield (begin, lengths) of pieces of a slice, each of few bytes and without large gaps."""
    span, wanted = _span(lengths, strides) * width, math.prod(lengths) * width
    dimension = next((d for d, length in enumerate(lengths) if length > 1), None)
    run = wanted // lengths[dimension] if dimension is not None else wanted
    if dimension is None or (span <= MOST and (span == wanted or run < RUN)):
        yield start, lengths
        return
    half = lengths[dimension] // 2
    for begin, length in ((0, half), (half, lengths[dimension] - half)):
        moved = (*start[:dimension], start[dimension] + begin, *start[dimension + 1 :])
        shorter = (*lengths[:dimension], length, *lengths[dimension + 1 :])
        yield from _cut(moved, shorter, strides, width)


def _typed(content: memoryview, dtype: torch.dtype) -> Tensor:
    flat = torch.frombuffer(content, dtype=torch.uint8)
    if flat.data_ptr() % dtype.itemsize:  # others' files need not be aligned
        flat = flat.clone()
    return flat.view(dtype)


@torch.no_grad()
def commit(state: Mapping[str, Tensor], read: dict[str, Tensor]) -> None:
    """Write what was read into the state's tensors; empties ``read``."""
    for name, tensor in state.items():
        local(tensor).copy_(read.pop(name))
