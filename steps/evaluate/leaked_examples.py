"""Count examples and groups of the test split that are also in the train split.

The 64-bit ids of each split are distributed over PARTS files by some of their bits, so that equal
ids are in files with the same number. Memory holds 1/PARTS of the test split's ids at a time, 8
bytes each (10^9 examples: 125 MB), and a piece of the train split's.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from steps.evaluate.evaluation_document import Leakage
from training.data.bit_mixing import mix_bits
from training.scores import Block

PARTS = 64
PIECE = 1 << 20  # ids that are read at a time


def count_leakage(train: Iterable[Block], test: Iterable[Block]) -> Leakage:
    """Count the test ``examples`` and ``groups`` that are also in train, and how many were checked.

    ``examples`` counts rows, ``groups`` distinct groups. If the data has no groups, each example is
    a group of its own.
    """
    with tempfile.TemporaryDirectory() as name:
        folders = {split: Path(name) / split for split in ("train", "test")}
        for split, blocks in (("train", train), ("test", test)):
            _spill_ids(folders[split], blocks)
        rows, leak_count, _, _ = _count_overlap(folders, "example")
        _, _, groups, leaked_groups = _count_overlap(folders, "group")
    return {
        "examples": leak_count,
        "groups": leaked_groups,
        "checked_examples": rows,
        "checked_groups": groups,
    }


def _spill_ids(folder: Path, blocks: Iterable[Block]) -> None:
    """Write the ids of a split's examples to PARTS files in ``folder``, and those of its groups."""
    for kind in ("example", "group"):
        (folder / kind).mkdir(parents=True)
    with ExitStack() as stack:
        files = {
            kind: [
                stack.enter_context(_build_part_path(folder, kind, n).open("wb"))
                for n in range(PARTS)
            ]
            for kind in ("example", "group")
        }
        for block in blocks:
            for kind, parts in files.items():
                ids = block.get(kind, block["example"])
                # By mixed bits: even ids that are small or consecutive are distributed evenly.
                number = (mix_bits(ids.view(np.uint64)) % np.uint64(PARTS)).astype(np.int64)
                cuts = np.cumsum(np.bincount(number, minlength=PARTS))[:-1]
                for file, part_ids in zip(
                    parts, np.split(ids[np.argsort(number, kind="stable")], cuts), strict=True
                ):
                    file.write(part_ids.tobytes())


def _count_overlap(folders: dict[str, Path], kind: str) -> list[int]:
    """Return how many rows, rows in train, distinct ids, and distinct ids in train the test has."""
    total = np.zeros(4, np.int64)
    for part in range(PARTS):
        ids = np.fromfile(_build_part_path(folders["test"], kind, part), np.int64)
        distinct, rows = np.unique(ids, return_counts=True)
        hit = np.zeros(len(distinct), bool)
        for piece in _read_pieces(_build_part_path(folders["train"], kind, part)):
            hit |= np.isin(distinct, piece)
        total += [rows.sum(), rows[hit].sum(), len(distinct), hit.sum()]
    return total.tolist()


def _read_pieces(path: Path) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        while len(piece := np.fromfile(file, np.int64, PIECE)):
            yield piece


def _build_part_path(folder: Path, kind: str, number: int) -> Path:
    return folder / kind / f"{number}.ids"
