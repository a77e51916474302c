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
    VerifiedReader,
    hashes_path,
)
from training.checkpoint.file_image import local, part_of, torch_type
from training.checkpoint.marker import CheckpointFile
from training.checkpoint.tensor_table import WIDTHS, Layout, Part, Table, parse_header
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


def slices(parts: Mapping[str, Part], table: Table, place: str) -> list[Slice]:
    """Return the slices that this rank needs to read.

    Args:
        parts: name → what this rank holds.

    Raises:
        TrainingError: a tensor is not in the checkpoint, or has another shape there.
    """
    regions: list[Slice] = []
    overlaps_by_key: dict[tuple[int, Part], list[tuple]] = {}
    for name, part in parts.items():
        if name not in table.tensors:
            raise TrainingError(f"{place}: holds no {name}, which this training has")
        layout = table.layouts[table.tensors[name][1]]
        if part.shape != layout.shape:
            raise TrainingError(
                f"{place}: {name} has shape {list(layout.shape)} there, and {list(part.shape)} here"
            )
        key = table.tensors[name][1], part
        if key not in overlaps_by_key:
            overlaps_by_key[key] = list(_overlaps(layout, part))
        regions += [Slice(name, *overlap) for overlap in overlaps_by_key[key]]
    return regions


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
    metadata, table = files.metadata, files.metadata.table
    regions_by_file: dict[int, list[Slice]] = defaultdict(list)
    parts = {name: part_of(name, tensor) for name, tensor in state.items()}
    for region in slices(parts, table, str(files.folder)):
        regions_by_file[region.file].append(region)
    read = {name: torch.empty_like(local(tensor), device="cpu") for name, tensor in state.items()}
    numbers = sorted(regions_by_file)
    first = local_rank % max(1, len(numbers))
    for number in numbers[first:] + numbers[:first]:
        name = metadata.names[number]
        with closing(
            File(name, metadata.files[name], files.open_file, lambda count: advance())
        ) as file:
            file.fill(read, regions_by_file[number])
    return read


class File:
    """A shard whose header has been read."""

    def __init__(
        self, name: str, entry: CheckpointFile, open_file: Open, advance: Callable[[int], None]
    ) -> None:
        self._name = name
        hashes = bytearray(-(-entry.bytes // BLOCK) * HASH)
        with closing(open_file(hashes_path(Path(name)).name)) as source:
            source.read(0, memoryview(hashes))
        advance(len(hashes))
        if hashlib.sha256(hashes).hexdigest() != entry.sha256:
            raise Torn(f"{hashes_path(Path(name))} is not as it was written")
        self._content = VerifiedReader(name, open_file(name), entry.bytes, bytes(hashes), advance)
        self._header, self._data = parse_header(self._content.read)

    def close(self) -> None:
        self._content.close()

    def fill(self, read: Mapping[str, Tensor], regions: list[Slice]) -> None:
        """Copy the slices to their destinations."""
        steps = [(*cut, region) for region in regions for cut in self._cuts(region)]
        for begin, end, start, lengths, region in sorted(steps, key=lambda step: step[:2]):
            content = self._content.read(begin, end)
            dtype = torch_type(self._header[region.name]["dtype"])
            part = _view_content(content, dtype).as_strided(lengths, _strides(region.sizes))
            into = read[region.name]
            for dimension, (offset, length) in enumerate(zip(start, lengths, strict=True)):
                into = into.narrow(dimension, region.into[dimension] + offset, length)
            into.copy_(part)

    def _cuts(self, region: Slice) -> Iterator[tuple[int, int, tuple, tuple]]:
        """Yield (begin and end in the file, begin in the slice, lengths) of each piece to read."""
        header = self._header.get(region.name)
        if header is None or tuple(header["shape"]) != region.sizes:
            raise Torn(f"{self._name} does not hold what the marker says of {region.name}")
        width, strides = WIDTHS[header["dtype"]], _strides(region.sizes)
        base = self._data + header["data_offsets"][0]
        for start, lengths in _cut((0,) * len(region.lengths), region.lengths, strides, width):
            origin = [b + s for b, s in zip(region.begin, start, strict=True)]
            first = sum(a * s for a, s in zip(origin, strides, strict=True))
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
    span, size = _span(lengths, strides) * width, math.prod(lengths) * width
    dimension = next((d for d, length in enumerate(lengths) if length > 1), None)
    run = size // lengths[dimension] if dimension is not None else size
    if dimension is None or (span <= MOST and (span == size or run < RUN)):
        yield start, lengths
        return
    half = lengths[dimension] // 2
    for begin, length in ((0, half), (half, lengths[dimension] - half)):
        new_start = (*start[:dimension], start[dimension] + begin, *start[dimension + 1 :])
        shorter = (*lengths[:dimension], length, *lengths[dimension + 1 :])
        yield from _cut(new_start, shorter, strides, width)


def _view_content(content: memoryview, dtype: torch.dtype) -> Tensor:
    flat = torch.frombuffer(content, dtype=torch.uint8)
    if flat.data_ptr() % dtype.itemsize:  # others' files need not be aligned
        flat = flat.clone()
    return flat.view(dtype)


@torch.no_grad()
def commit(state: Mapping[str, Tensor], read: dict[str, Tensor]) -> None:
    """Write what was read into the state's tensors; empties ``read``."""
    for name, tensor in state.items():
        local(tensor).copy_(read.pop(name))
