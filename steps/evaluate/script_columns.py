"""Check the columns of scores that a script writes, and convert them to the gate's.

``example``           a string or an integer; ``example_ids`` turns it into 64 bits; one row each
``group``             likewise: examples of one group depend on each other; optional
``slice.<name>``      a string, an integer, true, false or null
``<metric>``          a number, or true and false: its weight is 1
``<metric>.sum``      a number, and
``<metric>.weight``   a number of 0 or more: the metric of any rows is Σ sum ÷ Σ weight
``probability``       a number from 0 to 1, of a binary classifier, and
``label``             0 or 1

``training.scores`` describes them in the gate's table.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from steps.evaluate.script_files import Piece
from training.scores import Block
from trainyard.common.errors import DataError, nearest

NUMBERS = frozenset((int, float, bool))
IDS = frozenset((str, int))
SLICES: frozenset[type] = frozenset((str, int, bool, type(None)))
SLICE = "slice."
ROW = "row"
"""Column beside the table's own: the number of the row in its file, int64."""
PREDICTIONS = ("probability", "label")


def example_ids(values: Sequence[str | int]) -> np.ndarray:
    """Return ids as 64 bits, int64 (n,): BLAKE2b, 8 bytes little-endian, of the text in UTF-8.

    7 and "7" are one id. Two different ids are taken for equal with a probability of 2^-64.
    """
    texts = (str(value).encode("utf-8", "surrogatepass") for value in values)
    hashed = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(hashed, "<i8").astype(np.int64)


def scored(piece: Piece, metrics: Sequence[str], slices: Sequence[str]) -> Block:
    """Return the piece as the gate's columns, and ROW.

    Args:
        metrics: metrics of the recipe; one without a column is left out.
        slices: slices that must be there.

    Raises:
        DataError: names file, row, column, value and what was expected.
    """
    given = list(piece.columns)
    _check_names(piece, metrics, slices)
    block = named(piece)
    for name in (name for name in given if name.startswith(SLICE)):
        block[name] = _slice(piece, name)
    for metric in metrics:
        if metric in given:
            block[f"{metric}.sum"] = _numbers(piece, metric)
            block[f"{metric}.weight"] = np.ones(len(piece.numbers))
        elif f"{metric}.sum" in given:
            block[f"{metric}.sum"] = _numbers(piece, f"{metric}.sum")
            block[f"{metric}.weight"] = _numbers(piece, f"{metric}.weight", least=0)
    if "probability" in given:
        block["probability"] = _numbers(piece, "probability", least=0, most=1)
        block["label"] = _labels(piece)
    return block


def named(piece: Piece) -> dict[str, np.ndarray]:
    """Return ``example``, ``group`` and ROW.

    Raises:
        DataError: an id is missing, or neither text nor a whole number.
    """
    if "example" not in piece.columns:
        raise DataError(
            f"{piece.path.name}: has no column example; it names each row: a key of the data, or "
            "the row's number in the test data, but the same for every model"
        )
    example = _ids(piece, "example")
    return {
        "example": example,
        "group": _ids(piece, "group") if "group" in piece.columns else example,
        ROW: np.array(piece.numbers, np.int64),
    }


def _check_names(piece: Piece, metrics: Sequence[str], slices: Sequence[str]) -> None:
    given, file = piece.columns.keys(), piece.path.name
    parts = [f"{metric}.{part}" for metric in metrics for part in ("sum", "weight")]
    known = ["example", "group", *metrics, *parts, *PREDICTIONS]
    for name in given:
        if name not in known and (not name.startswith(SLICE) or name == SLICE):
            raise DataError(
                f"{file}: unknown column {name}; "
                f"{nearest(name, [*known, *(f'{SLICE}{one}' for one in slices)])}; a metric has to "
                "stand in evaluate.metrics"
            )
    for metric in metrics:
        pair = [part for part in (f"{metric}.sum", f"{metric}.weight") if part in given]
        if len(pair) == 1 or (pair and metric in given):
            raise DataError(
                f"{file}: metric {metric} has columns "
                f"{', '.join(n for n in (metric, *pair) if n in given)}; write {metric} alone, or "
                f"{metric}.sum and {metric}.weight"
            )
    for name in slices:
        if f"{SLICE}{name}" not in given:
            raise DataError(
                f"{file}: has no column {SLICE}{name}, and evaluate.slices lists {name}; "
                f"{nearest(f'{SLICE}{name}', list(given))}"
            )
    if len([name for name in PREDICTIONS if name in given]) == 1:
        raise DataError(f"{file}: of probability and label only one is there; write both, or none")


def _ids(piece: Piece, name: str) -> np.ndarray:
    values = piece.columns[name]
    _check_types(piece, name, IDS, "expected a string or an integer: its name in the data")
    return example_ids(values)


def _numbers(
    piece: Piece, name: str, least: float = -math.inf, most: float = math.inf
) -> np.ndarray:
    bounds = "" if least == -math.inf else f" of {least:g} or more"
    bounds = bounds if most == math.inf else f" from {least:g} to {most:g}"
    expected = f"expected a finite number{bounds}"
    _check_types(piece, name, NUMBERS, expected)
    values = piece.columns[name]
    try:
        numbers = np.array(values, np.float64)
    except OverflowError:
        place = next(i for i, value in enumerate(values) if not _fits(value))
        raise piece.wrong(place, name, expected) from None
    right = np.isfinite(numbers) & (numbers >= least) & (numbers <= most)
    if not right.all():
        raise piece.wrong(int(np.argmin(right)), name, expected)
    return numbers


def _fits(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _labels(piece: Piece) -> np.ndarray:
    labels = _numbers(piece, "label")
    right = (labels == 0) | (labels == 1)
    if not right.all():
        raise piece.wrong(int(np.argmin(right)), "label", "expected 0 or 1")
    return labels.astype(np.uint8)


def _slice(piece: Piece, name: str) -> np.ndarray:
    _check_types(piece, name, SLICES, "expected a string, an integer, true, false or null")
    values = piece.columns[name]
    return np.array([None if value is None else str(value) for value in values], object)


def _check_types(piece: Piece, name: str, right: frozenset[type], expected: str) -> None:
    values = piece.columns[name]
    if not set(map(type, values)) <= right:
        place = next(i for i, value in enumerate(values) if type(value) not in right)
        raise piece.wrong(place, name, expected)
