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
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from trainyard.common.errors import TrainingError

WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Mapping of a safetensors type to bytes per element."""

Numbers = tuple[int, ...]
Spread = tuple[tuple[Numbers, Numbers, tuple[int, ...]], ...]
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
        """Build the report; ``parts``: mapping of each name to the part that this rank holds."""
        numbers: dict[tuple[Numbers, Numbers, Numbers], int] = {}
        names = {}
        for name, part in parts.items():
            layout = part.shape, part.offsets, part.sizes
            names[name] = part.dtype, numbers.setdefault(layout, len(numbers))
        return cls(zlib.compress(json.dumps(names).encode(), 1), tuple(numbers))


@dataclass
class Shares:
    """The decision on which rank writes what."""

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
    spreads = {
        key: _find_spread(key, by_digest)
        for key in {tuple(holding) for holding in holders.values()}
    }
    return _assign_parts(holders, types, spreads)


def _find_spread(
    key: tuple[tuple[str, int], ...], by_digest: Mapping[str, Any]
) -> tuple[Any, Spread]:
    """Return the shape and the parts, with their ranks, of the tensors that these reports have.

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
    spreads: Mapping[tuple, tuple[Numbers, Spread]],
) -> Shares:
    """Assign each part of each tensor to a rank, the least loaded one if several hold it."""
    loads: dict[int, int] = defaultdict(int)
    shares = Shares(Table(layouts=(), tensors={}))
    layouts: dict[tuple, int] = {}
    tensors: dict[str, tuple[str, int]] = {}
    for name, holding in holders.items():
        shape, spread = spreads[tuple(holding)]
        held_count = sum(math.prod(sizes) for _, sizes, _ in spread)
        expected_count = math.prod(shape)
        if held_count != expected_count:
            raise TrainingError(
                f"{name}: the ranks hold {held_count} elements of it, but its shape {list(shape)} "
                f"has {expected_count}; it cannot be written to a checkpoint"
            )
        pieces = _assign_pieces(name, WIDTHS[types[name]], spread, loads, shares.not_written)
        number = layouts.setdefault((shape, pieces), len(layouts))
        tensors[name] = types[name], number
    final_layouts = [Layout(shape=shape, pieces=pieces) for shape, pieces in layouts]
    shares.table = Table(layouts=tuple(final_layouts), tensors=tensors)
    return shares


def _assign_pieces(
    name: str,
    width: int,
    spread: Spread,
    loads: dict[int, int],
    not_written: dict[int, set[str]],
) -> tuple:
    """Return (rank, offsets, sizes) of each part; add to ``loads`` and ``not_written``."""
    pieces = []
    for offsets, sizes, ranks in spread:
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
        Torn: the header is not valid.
    """
    length = int.from_bytes(read(0, 8), "little")
    # A damaged length could otherwise request any amount of memory.
    if length > LONGEST:
        raise Torn(f"a header of {length} bytes is too long for safetensors")
    try:
        return json.loads(bytes(read(8, 8 + length))), 8 + length
    except ValueError:
        raise Torn("a header is not JSON") from None


# Hashes of a file's blocks, so that a part of it can be verified without the rest. No torch here.
#
# Each ``shard-….safetensors`` has a ``shard-….sha256`` next to it: the SHA-256 of each 16 KiB of
# it, 32 bytes each, one after the other (0.2 % of the file). The marker has the SHA-256 of these
# hashes: a Merkle tree of two levels. To verify a slice, up to 16 KiB too much is read at each of
# its ends.

BLOCK = 16 * 2**10
HASH = 32  # bytes


class Torn(Exception):  # noqa: N818 (a finding: the search continues with an older one)
    """A file of a checkpoint is missing or not as it was written; the message names it."""


class Source(Protocol):
    """The bytes of a file, on this machine or another."""

    def read(self, begin: int, into: memoryview) -> None:
        """Fill ``into`` with the bytes from ``begin`` on.

        Raises:
            Torn: the file ends before ``into`` is full.
        """

    def close(self) -> None:
        """Close the source."""


def build_hashes_path(path: Path) -> Path:
    """Return the path of the file that holds the block hashes of ``path``."""
    return path.with_suffix(".sha256")


def hash_blocks(content: memoryview) -> bytes:
    """Return the hashes of the blocks of ``content``, which begins at a block boundary."""
    starts = range(0, len(content), BLOCK)
    return b"".join(hashlib.sha256(content[n : n + BLOCK]).digest() for n in starts)


class LocalFile:
    """A ``Source`` for a file on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise Torn(f"{path.name} cannot be read: {error.strerror}") from None

    def read(self, begin: int, into: memoryview) -> None:
        self._file.seek(begin)
        offset = 0
        while offset < len(into):
            count = self._file.readinto(into[offset:])
            if not count:
                raise Torn(f"{self._path.name} ends at byte {begin + offset}, too early")
            offset += count

    def close(self) -> None:
        self._file.close()


class VerifiedReader:
    """Read and verify parts of a file in ascending order, in whole blocks, each block once.

    Args:
        name: name of the file, for messages.
        size: size of the file as written, in bytes.
        hashes: hashes of the file's blocks.
        advance: called with the number of bytes read from the source.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        size: int,
        hashes: bytes,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._name, self._source, self._size = name, source, size
        self._hashes, self._advance = hashes, advance
        # Range of the file that is in the buffer.
        self._buffer, self._begin, self._end = bytearray(), 0, 0

    def read(self, begin: int, end: int) -> memoryview:
        """Return the bytes from ``begin`` to ``end``; the view is valid until the next call.

        Raises:
            Torn: the bytes are not as they were written.
        """
        first, last = begin - begin % BLOCK, min(self._size, -(-end // BLOCK) * BLOCK)
        if not (self._begin <= first and last <= self._end):
            self._fill(first, last)
        return memoryview(self._buffer)[begin - self._begin : end - self._begin]

    def close(self) -> None:
        """Close the underlying source."""
        self._source.close()

    def _fill(self, first: int, last: int) -> None:
        """Read and verify the blocks from ``first`` to ``last``, except those already in the
        buffer.
        """
        overlap = b""
        if self._begin <= first < self._end <= last:
            overlap = bytes(memoryview(self._buffer)[first - self._begin : self._end - self._begin])
        self._buffer = bytearray(last - first)
        self._begin, self._end = first, last
        self._buffer[: len(overlap)] = overlap
        fresh = memoryview(self._buffer)[len(overlap) :]
        self._source.read(first + len(overlap), fresh)
        self._advance(len(fresh))
        number = (first + len(overlap)) // BLOCK
        expected_hashes = self._hashes[number * HASH :][: -(-len(fresh) // BLOCK) * HASH]
        hashes = hash_blocks(fresh)
        if hashes == expected_hashes:
            return
        wrong = next(
            n
            for n in range(0, len(hashes), HASH)
            if hashes[n:][:HASH] != expected_hashes[n:][:HASH]
        )
        offset = (number + wrong // HASH) * BLOCK
        raise Torn(
            f"{self._name} was changed since it was written: the hash of bytes {offset} to "
            f"{min(offset + BLOCK, self._size)} does not match"
        )
