"""Read and verify this rank's slices of a checkpoint, then write them all into the tensors.

Which parts of which files a rank needs is computed once for all tensors with the same layout. What
was read is kept in memory (as much as this rank's part of the state) until every rank has found its
own slices intact: so a damaged file changes no rank's weights.
"""

import hashlib
import math
import mmap
import operator
import os
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
    DamagedFile,
    Source,
    VerifiedReader,
    build_hashes_path,
)
from training.checkpoint.marker import CheckpointFile
from training.checkpoint.tensor_table import (
    WIDTHS,
    Layout,
    Part,
    Table,
    build_part_header,
    parse_header,
)
from training.weights.initial.initial_values import find_local_part
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    from training.checkpoint.find_files import Files

MOST = 16 * 2**20  # maximum bytes that are read at once
# If the contiguous pieces of a slice are at least this long, the gaps between them are skipped.
RUN = 8 * BLOCK

Open = Callable[[str], Source]
"""Opens a file by name, on this machine or another."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A region of one file's part of a tensor, and where it goes in this rank's part of that
    tensor.

    Attributes:
        name: the tensor's name.
        file: the file's number, which is its index in the sorted names.
        begin: first index of the region in the file's part, by dimension.
        lengths: sizes of the region, by dimension.
        into: first index of the region in this rank's part, by dimension.
    """

    name: str
    file: int
    sizes: tuple[int, ...]
    """Sizes of the part in the file."""
    begin: tuple[int, ...]
    lengths: tuple[int, ...]
    into: tuple[int, ...]


def compute_slices(parts: Mapping[str, Part], table: Table, location: str) -> list[Slice]:
    """Return the slices that this rank needs to read.

    Args:
        parts: mapping of each tensor's name to the part that this rank holds.
        location: location of the checkpoint, for messages.

    Raises:
        TrainingError: a tensor is not in the checkpoint, or has another shape there.
    """
    regions: list[Slice] = []
    overlaps_by_key: dict[tuple[int, Part], list[tuple]] = {}
    for name, part in parts.items():
        if name not in table.tensors:
            raise TrainingError(f"{location}: contains no {name}, which this training has")
        layout = table.layouts[table.tensors[name][1]]
        if part.shape != layout.shape:
            raise TrainingError(
                f"{location}: {name} has shape {list(layout.shape)} there, but {list(part.shape)} "
                "here"
            )
        key = table.tensors[name][1], part
        if key not in overlaps_by_key:
            overlaps_by_key[key] = list(_iter_overlaps(layout, part))
        regions += [Slice(name, *overlap) for overlap in overlaps_by_key[key]]
    return regions


def _iter_overlaps(layout: Layout, part: Part) -> Iterator[tuple]:
    """Yield the overlap of ``part`` with each file's piece, as the fields of a ``Slice`` except its
    name.
    """
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


def read_local_parts(
    state: Mapping[str, Tensor], files: "Files", local_rank: int, advance: Callable[[], None]
) -> dict[str, Tensor]:
    """Read this rank's part of each tensor from the checkpoint; return them by name, on the CPU.

    Args:
        local_rank: this rank's number on its machine. Ranks of a machine that need the same files
            begin with different ones, so that each then finds in the page cache what the others
            have read.
        advance: called each time some bytes were read.

    Raises:
        DamagedFile: a file is not as it was written.
        TrainingError: the checkpoint does not fit the state.
    """
    metadata, table = files.metadata, files.metadata.table
    regions_by_file: dict[int, list[Slice]] = defaultdict(list)
    parts = {name: build_part(name, tensor) for name, tensor in state.items()}
    for region in compute_slices(parts, table, str(files.folder)):
        regions_by_file[region.file].append(region)
    read = {
        name: torch.empty_like(to_local_tensor(tensor), device="cpu")
        for name, tensor in state.items()
    }
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
        with closing(open_file(build_hashes_path(Path(name)).name)) as source:
            source.read(0, memoryview(hashes))
        advance(len(hashes))
        if hashlib.sha256(hashes).hexdigest() != entry.sha256:
            raise DamagedFile(f"{build_hashes_path(Path(name))} was changed since it was written")
        self._content = VerifiedReader(name, open_file(name), entry.bytes, bytes(hashes), advance)
        self._header, self._data = parse_header(self._content.read)

    def close(self) -> None:
        self._content.close()

    def fill(self, read: Mapping[str, Tensor], regions: list[Slice]) -> None:
        """Copy the slices ``regions`` from the file into the tensors of ``read``."""
        steps = [(*cut, region) for region in regions for cut in self._iter_cuts(region)]
        # Read in the order of the file: the reader only moves forwards, and reads each block once.
        for begin, end, start, lengths, region in sorted(steps, key=lambda step: step[:2]):
            content = self._content.read(begin, end)
            dtype = to_torch_dtype(self._header[region.name]["dtype"])
            flat = torch.frombuffer(content, dtype=torch.uint8)
            if flat.data_ptr() % dtype.itemsize:  # files of other writers need not be aligned
                flat = flat.clone()
            part = flat.view(dtype).as_strided(lengths, _compute_strides(region.sizes))
            into = read[region.name]
            for dimension, (offset, length) in enumerate(zip(start, lengths, strict=True)):
                into = into.narrow(dimension, region.into[dimension] + offset, length)
            into.copy_(part)

    def _iter_cuts(self, region: Slice) -> Iterator[tuple[int, int, tuple, tuple]]:
        """Yield (begin and end in the file, start in the slice, lengths) of each piece to read."""
        header = self._header.get(region.name)
        if header is None or tuple(header["shape"]) != region.sizes:
            raise DamagedFile(
                f"{self._name} does not contain {region.name} as the marker describes it"
            )
        width, strides = WIDTHS[header["dtype"]], _compute_strides(region.sizes)
        base = self._data + header["data_offsets"][0]
        for start, lengths in _split_slice(
            (0,) * len(region.lengths), region.lengths, strides, width
        ):
            origin = [b + s for b, s in zip(region.begin, start, strict=True)]
            first = sum(a * s for a, s in zip(origin, strides, strict=True))
            begin = base + first * width
            yield begin, begin + _compute_span(lengths, strides) * width, start, lengths


def _compute_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[dimension + 1 :]) for dimension in range(len(sizes)))


def _compute_span(lengths: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from a slice's first element to its last, both included."""
    return 1 + sum((n - 1) * stride for n, stride in zip(lengths, strides, strict=True))


def _split_slice(
    start: tuple[int, ...], lengths: tuple[int, ...], strides: tuple[int, ...], width: int
) -> Iterator[tuple[tuple, tuple]]:
    """Split a slice into pieces that are small enough and without large gaps; yield (start,
    lengths) of each.
    """
    span, size = _compute_span(lengths, strides) * width, math.prod(lengths) * width
    dimension = next((d for d, length in enumerate(lengths) if length > 1), None)
    run = size // lengths[dimension] if dimension is not None else size
    if dimension is None or (span <= MOST and (span == size or run < RUN)):
        yield start, lengths
        return
    half = lengths[dimension] // 2
    for begin, length in ((0, half), (half, lengths[dimension] - half)):
        new_start = (*start[:dimension], start[dimension] + begin, *start[dimension + 1 :])
        shorter = (*lengths[:dimension], length, *lengths[dimension + 1 :])
        yield from _split_slice(new_start, shorter, strides, width)


@torch.no_grad()
def commit_to_state(state: Mapping[str, Tensor], read: dict[str, Tensor]) -> None:
    """Copy the tensors ``read`` into the state's tensors, and empty ``read``."""
    for name, tensor in state.items():
        to_local_tensor(tensor).copy_(read.pop(name))


# The image: a rank's file of a checkpoint, byte for byte, in memory that another process reads.
#
# A save copies the tensors into the image and returns; the writing process reads it from there. The
# memory is anonymous (``memfd_create``): it needs no space in /dev/shm, of which containers have
# little, and is freed when the last process that has it ends, for whatever reason.
#
# On CUDA the memory is page-locked, and the copies are queued on a separate stream, behind the work
# that computes the tensors. The training's next work on the device waits for the copies; the
# process does not. No machine with a GPU was available: that part is written from CUDA's and
# torch's documentation, and has not run.

DTYPES = {
    torch.bool: "BOOL",
    **{torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32"},
    **{torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.float32: "F32", torch.float64: "F64"},
    **{torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"},
}
"""Mapping of torch's type to its name in safetensors."""


def to_local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, or any other tensor unchanged."""
    return getattr(tensor, "_local_tensor", tensor)


def build_part(name: str, tensor: Tensor) -> Part:
    """Return the part of the whole tensor that this rank holds.

    It does not use torch's own ``__create_chunk_list__``: of 257 rows that two tensor-parallel
    ranks share, and of those 129 that four ranks of FSDP2 share, torch 2.13 says 31 where a rank
    has 33.

    Raises:
        TrainingError: safetensors has no such type, or the tensor's layout is unknown.
    """
    if tensor.dtype not in DTYPES:
        raise TrainingError(f"{name}: safetensors has no type {tensor.dtype}; use another")
    try:
        ranges = find_local_part(tensor)
    except TrainingError as error:
        raise TrainingError(f"{name}: {error}") from None
    offsets = tuple(along.start for along in ranges)
    sizes = tuple(along.stop - along.start for along in ranges)
    if to_local_tensor(tensor).numel() != math.prod(sizes):
        raise TrainingError(
            f"{name}: this rank has {list(to_local_tensor(tensor).shape)} of it, expected "
            f"{list(sizes)}; "
            "use an image with torch 2.8 or newer"
        )
    return Part(DTYPES[tensor.dtype], tuple(tensor.shape), offsets, sizes)


class Image:
    """A rank's checkpoint file in memory.

    Attributes:
        descriptor: file descriptor of the memory, for the writing process.
        size: size of the file in bytes.
    """

    def __init__(self, parts: Mapping[str, Part], device: torch.device) -> None:
        """Allocate the file.

        Args:
            parts: mapping of each tensor's name to the part of it that this rank writes.
        """
        # Wide elements come first, as in safetensors' own files, so that each tensor is aligned.
        order = sorted(parts, key=lambda name: (-WIDTHS[parts[name].dtype], name))
        beginning, offsets = build_part_header(parts, order)
        self.size = len(beginning) + sum(parts[name].bytes for name in order)
        self.descriptor = os.memfd_create("checkpoint")
        os.ftruncate(self.descriptor, max(self.size, 1))
        self._memory = mmap.mmap(self.descriptor, self.size)
        self._memory[: len(beginning)] = beginning
        flat = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._views = {}
        for name in order:
            begin = len(beginning) + offsets[name]
            region = flat[begin : begin + parts[name].bytes]
            dtype = to_torch_dtype(parts[name].dtype)
            self._views[name] = region.view(dtype).view(parts[name].sizes)
        self._locked_memory = flat if device.type == "cuda" else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._locked_memory is not None:
            # As torch's ``pin_shared_mem`` does: a GPU copies into locked pages without the host.
            size = self._locked_memory.nbytes
            status = torch.cuda.cudart().cudaHostRegister(self._locked_memory.data_ptr(), size, 0)
            if int(status):
                raise TrainingError(
                    f"cudaHostRegister of {size} bytes for checkpoints failed with {int(status)}: "
                    "the limit of locked memory (ulimit -l) or the machine's memory is too small"
                )

    @torch.no_grad()
    def copy(self, state: Mapping[str, Tensor]) -> Callable[[], None]:
        """Copy the tensors into the image; the returned function waits until the copies have
        arrived.
        """
        sources = {name: to_local_tensor(state[name]).detach() for name in self._views}
        if self._stream is None:
            for name, view in self._views.items():
                view.copy_(sources[name])
            return lambda: None
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for name, view in self._views.items():
                view.copy_(sources[name], non_blocking=True)
            copy_event = torch.cuda.Event()
            copy_event.record()
        # The optimizer's next step, which writes into the sources, is queued behind the copies.
        torch.cuda.current_stream().wait_event(copy_event)

        def wait() -> None:
            """Wait for the copies, then release their sources."""
            copy_event.synchronize()
            # Kept until now, so that the memory of a temporary source is not reused during the
            # copy.
            sources.clear()

        return wait

    def close(self) -> None:
        """Free the memory here; the writing process may still hold it."""
        self._views = {}
        if self._locked_memory is not None:
            torch.cuda.cudart().cudaHostUnregister(self._locked_memory.data_ptr())
        self._locked_memory = None
        os.close(self.descriptor)


def to_torch_dtype(name: str) -> torch.dtype:
    """Return torch's type for safetensors' ``name``."""
    return next(dtype for dtype, dtype_name in DTYPES.items() if dtype_name == name)
