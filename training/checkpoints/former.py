"""Checkpoints of form 1, as torch's own writer made them: verified as whole files.

One rank of each machine hashes the files that lie there, once, and tells what is in them; from that
comes the table that the marker of such a checkpoint lacks.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from training.checkpoints.blocks import Local, Torn
from training.checkpoints.header import OFFSETS, parsed
from training.checkpoints.table import Layout, Table
from training.marker import Marker
from trainyard.common.hashes import file_sha256


def is_whole(path: Path, sha256: str, advance: Callable[[int], None]) -> bool:
    """Whether a file is there as it was written."""
    try:
        return file_sha256(path, advance) == sha256
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


def contents(path: Path) -> list[tuple[str, str, list[int], list[int]]]:
    """(name, type, offsets, sizes) of each part of a tensor in a file.

    Raises:
        Torn: it is no file of tensors.
    """
    file = Local(path)

    def read(begin: int, end: int) -> memoryview:
        content = memoryview(bytearray(end - begin))
        file.read(begin, content)
        return content

    with closing(file):
        said, _ = parsed(read)
    known = json.loads(said.pop("__metadata__", {}).get(OFFSETS, "{}"))
    found = []
    for name, one in said.items():
        offsets = known.get(name, {}).get("saved_offsets", [0] * len(one["shape"]))
        found.append((name, one["dtype"], list(offsets), one["shape"]))
    return found


def tabled(said: Marker, surveys: Iterable[Mapping[str, Any]]) -> Table:
    """The table, from what each machine's files hold.

    Raises:
        Torn: nobody has one of the files.
    """
    known: dict[str, Any] = {}
    for survey in surveys:
        known.update(survey)
    tensors: dict[str, tuple[str, list]] = {}
    for number, file in enumerate(said.names):
        if file not in known:
            raise Torn(f"{file} is missing, or not as it was written")
        for name, dtype, offsets, sizes in known[file]:
            tensors.setdefault(name, (dtype, []))[1].append((number, offsets, sizes))
    layouts: dict[str, int] = defaultdict(lambda: len(layouts))
    found: list[Layout] = []
    places = {}
    for name, (dtype, pieces) in tensors.items():
        ends = [
            [o + s for o, s in zip(offsets, sizes, strict=True)] for _, offsets, sizes in pieces
        ]
        shape = tuple(map(max, zip(*ends, strict=True)))
        number = layouts[repr((shape, pieces))]
        if number == len(found):
            found.append(Layout(shape=shape, pieces=pieces))
        places[name] = dtype, number
    return Table(layouts=tuple(found), tensors=places)
