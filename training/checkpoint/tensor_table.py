"""Table of which file of a checkpoint has which part of which tensor. It does not import torch, so
that markers are read without it.

What several ranks hold (everything with DDP, a shard's copies with a hybrid, norms under tensor
parallelism) is written by the rank with the least to write so far, as in torch's own
``dedup_save_plans``. Rank 0 decides, once per training run. What it receives grows little with the
number of tensors: most tensors share shape and layout, so a rank names its few layouts and, for
each tensor, one of these; and ranks with the same tensors send their names only once.
"""

import hashlib
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from training.checkpoint.block_hashes import DamagedFile
from trainyard.common.errors import TrainingError

WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Mapping of a safetensors type to bytes per element."""

Numbers = tuple[int, ...]
PartHolders = tuple[tuple[Numbers, Numbers, tuple[int, ...]], ...]
"""(offsets, sizes, ranks that hold it) of each part of a tensor."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tensor that a rank holds; ``offsets`` and ``sizes`` are by dimension."""

    dtype: str
    """The element type's name in safetensors."""
    shape: Numbers
    """Shape of the whole tensor."""
    offsets: Numbers
    sizes: Numbers

    @property
    def bytes(self) -> int:
        return WIDTHS[self.dtype] * math.prod(self.sizes)


class Layout(BaseModel):
    """How tensors of one shape are distributed over the files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Numbers
    pieces: tuple[tuple[int, Numbers, Numbers], ...]
    """Pieces of the tensor: (number of the file, offsets, sizes)."""


class Table(BaseModel):
    """Location of each tensor of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layouts: tuple[Layout, ...]
    tensors: dict[str, tuple[str, int]]
    """Mapping of a tensor's name to (type, index of its layout)."""

    def renumber_files(self, numbers: Mapping[int, int]) -> "Table":
        """Return the same table with other numbers for the files."""
        layouts = [
            Layout(
                shape=layout.shape, pieces=tuple((numbers[n], o, s) for n, o, s in layout.pieces)
            )
            for layout in self.layouts
        ]
        return Table(layouts=tuple(layouts), tensors=self.tensors)


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank's report to rank 0 about the tensors that it holds."""

    names: bytes
    """Mapping of name to (type, index of a layout) as compressed JSON; identical on many ranks."""
    layouts: tuple[tuple[Numbers, Numbers, Numbers], ...]
    """(shape, offsets, sizes) of each layout."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.names).hexdigest()[:32]

    @classmethod
    def from_parts(cls, parts: Mapping[str, Part]) -> "RankReport":
        """Build the report of a rank; ``parts``: mapping of each name to the part that it holds."""
        numbers: dict[tuple[Numbers, Numbers, Numbers], int] = {}
        names = {}
        for name, part in parts.items():
            layout = part.shape, part.offsets, part.sizes
            names[name] = part.dtype, numbers.setdefault(layout, len(numbers))
        return cls(zlib.compress(json.dumps(names).encode(), 1), tuple(numbers))


@dataclass
class Shares:
    """Assignment of each part of each tensor to the rank that writes it."""

    table: Table
    """Where each tensor is stored; file numbers are ranks here."""
    not_written: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Mapping of a rank to the names of tensors that it holds but another rank writes."""


def assign_shares(
    names: Mapping[str, bytes], ranks: Sequence[tuple[str, Sequence[Sequence[Iterable[int]]]]]
) -> Shares:
    """Decide which rank writes which part.

    Args:
        names: mapping of digest to ``RankReport.names``.
        ranks: digest and ``RankReport.layouts`` of each rank.

    Raises:
        TrainingError: the parts of a tensor do not cover it.
    """
    by_digest: dict[str, list[tuple[int, list[tuple[Numbers, ...]]]]] = defaultdict(list)
    for rank, (digest, layouts) in enumerate(ranks):
        by_digest[digest].append((rank, [tuple(map(tuple, layout)) for layout in layouts]))
    holders: dict[str, list[tuple[str, int]]] = defaultdict(list)
    types: dict[str, str] = {}
    for digest in by_digest:
        for name, (dtype, number) in json.loads(zlib.decompress(names[digest])).items():
            holders[name].append((digest, number))
            types[name] = dtype
    part_holders = {
        key: _collect_part_holders(key, by_digest)
        for key in {tuple(holding) for holding in holders.values()}
    }
    return _assign_parts(holders, types, part_holders)


def _collect_part_holders(
    key: tuple[tuple[str, int], ...], by_digest: Mapping[str, Any]
) -> tuple[Any, PartHolders]:
    """Return the shape of the tensors that these reports have, and the holders of each part.

    Args:
        key: (digest of a report, index of a layout in it) for each report that has the tensor.
        by_digest: mapping of digest to the ranks that sent this report, each with its layouts.
    """
    ranks_by_part: dict[tuple[Numbers, Numbers], list[int]] = defaultdict(list)
    shape: Numbers = ()
    for digest, number in key:
        for rank, layouts in by_digest[digest]:
            shape, offsets, sizes = layouts[number]
            if math.prod(sizes):
                ranks_by_part[offsets, sizes].append(rank)
    return shape, tuple((o, s, tuple(ranks)) for (o, s), ranks in sorted(ranks_by_part.items()))


def _assign_parts(
    holders: Mapping[str, list[tuple[str, int]]],
    types: Mapping[str, str],
    part_holders: Mapping[tuple, tuple[Numbers, PartHolders]],
) -> Shares:
    """Assign each part of each tensor to a rank, the least loaded one if several hold it."""
    loads: dict[int, int] = defaultdict(int)
    shares = Shares(Table(layouts=(), tensors={}))
    layouts: dict[tuple, int] = {}
    tensors: dict[str, tuple[str, int]] = {}
    for name, holding in holders.items():
        shape, parts = part_holders[tuple(holding)]
        held_count = sum(math.prod(sizes) for _, sizes, _ in parts)
        expected_count = math.prod(shape)
        if held_count != expected_count:
            raise TrainingError(
                f"{name}: the ranks hold {held_count} elements of it, but its shape {list(shape)} "
                f"has {expected_count}; it cannot be written to a checkpoint"
            )
        pieces = _assign_pieces(name, WIDTHS[types[name]], parts, loads, shares.not_written)
        number = layouts.setdefault((shape, pieces), len(layouts))
        tensors[name] = types[name], number
    final_layouts = [Layout(shape=shape, pieces=pieces) for shape, pieces in layouts]
    shares.table = Table(layouts=tuple(final_layouts), tensors=tensors)
    return shares


def _assign_pieces(
    name: str,
    width: int,
    parts: PartHolders,
    loads: dict[int, int],
    not_written: dict[int, set[str]],
) -> tuple:
    """Return (rank that writes it, offsets, sizes) of each part; add to the last two arguments."""
    pieces = []
    for offsets, sizes, ranks in parts:
        writes = min(ranks, key=loads.__getitem__)
        loads[writes] += width * math.prod(sizes)
        pieces.append((writes, offsets, sizes))
        for rank in ranks:
            if rank != writes:
                not_written[rank].add(name)
    return tuple(pieces)


OFFSETS = "DCP_SHARDING_INFO"
"""Metadata key from which torch's HuggingFaceStorageReader takes a part's offsets, so that it can
read our files.
"""
LONGEST = 2**30  # bytes; longer than the header of any real file


def build_part_header(
    parts: Mapping[str, Part], order: Sequence[str]
) -> tuple[bytes, dict[str, int]]:
    """Return the header of a checkpoint's file, and each tensor's offset after it in bytes."""
    offsets = {name: {"saved_offsets": parts[name].offsets} for name in order}
    metadata = {"format": "pt", "DCP_VERSION": "1.0", OFFSETS: json.dumps(offsets)}
    rows = [(name, parts[name].dtype, parts[name].sizes, parts[name].bytes) for name in order]
    return build_file_header(metadata, rows)


def build_file_header(
    metadata: Mapping[str, str], rows: Iterable[tuple[str, str, Sequence[int], int]]
) -> tuple[bytes, dict[str, int]]:
    """Return the header of a safetensors file, and each tensor's offset after it in bytes.

    Args:
        rows: name, type, shape and bytes of each tensor, in the order of the file.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    offsets, end = {}, 0
    for name, dtype, shape, size in rows:
        offsets[name], end = end, end + size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offsets[name], end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # Padded, so that the tensors behind it begin at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets


def parse_header(read: Callable[[int, int], memoryview]) -> tuple[dict[str, Any], int]:
    """Return a safetensors file's header, and the offset at which its data begin.

    Args:
        read: function that returns the bytes from one offset to another.

    Raises:
        DamagedFile: the header is not valid.
    """
    length = int.from_bytes(read(0, 8), "little")
    # A damaged length could otherwise request any amount of memory.
    if length > LONGEST:
        raise DamagedFile(f"a header of {length} bytes is too long for safetensors")
    try:
        return json.loads(bytes(read(8, 8 + length))), 8 + length
    except ValueError:
        raise DamagedFile("a header is not JSON") from None
