"""Read a table of a champion's probabilities: raw records, each with a column ``probability``.

The table is read as the raw data are (``steps.shard.readers``), so a record has the same content,
and with it the same ``example``, as in the shards. Rows that are not in the test split do no harm.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steps.shard.readers import Bad, read
from training.workloads import Column
from trainyard.common.errors import DataError

PROBABILITY = "probability"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Probabilities by record, sorted by ``example``."""

    name: str
    """Name of the file."""
    example: np.ndarray
    """int64 (n,), each once."""
    probability: np.ndarray
    """float64 (n,): that the label is 1."""
    bad: list[Bad]
    """Rows that are no records, and are left out."""

    def of(self, examples: np.ndarray) -> np.ndarray:
        """Return the probability of each example, float64 (n,); NaN for one that is missing."""
        at = np.searchsorted(self.example, examples).clip(max=len(self.example) - 1)
        return np.where(self.example[at] == examples, self.probability[at], np.nan)


def read_table(path: Path, packing: Any) -> Table:
    """Read the table.

    Args:
        packing: the workload's; it has ``examples_of``.

    Raises:
        DataError: the file cannot be read, lacks a column, has a probability that is missing or not
            from 0 to 1, or two of them for records that are equal.
    """
    if PROBABILITY in packing.columns:
        raise DataError(
            f"{path.name}: the recipe's workload has a column {PROBABILITY}, too; rename that"
        )
    columns = {**packing.columns, PROBABILITY: Column("number", required=False)}
    examples, values, lines, bad = [], [], [], []
    for batch in read(path, columns):
        bad += batch.bad
        given = batch.records.column(PROBABILITY).to_numpy(zero_copy_only=False)
        wrong = ~((given >= 0) & (given <= 1))  # a missing one is NaN
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"{path.name}: row {batch.lines[row]}: column {PROBABILITY}: is {given[row]}; "
                "expected a number from 0 to 1, the probability of the label 1"
            )
        examples.append(packing.examples_of(batch.records.select(list(packing.columns))))
        values.append(given)
        lines.append(batch.lines)
    if not examples or not sum(map(len, examples)):
        raise DataError(f"{path.name}: holds no record{_first(bad)}")
    table = _sorted(path.name, np.concatenate(examples), np.concatenate(values), lines)
    refuse_classes(path.name, table[1])
    return Table(path.name, *table, bad)


def refuse_classes(what: str, probability: np.ndarray) -> None:
    """Refuse answers that are classes: a champion judged by them would lose without a fight.

    Raises:
        DataError: all are 0 or 1.
    """
    if len(probability) > 1 and np.isin(probability, (0.0, 1.0)).all():
        raise DataError(
            f"{what}: every probability is 0 or 1, so these are classes; give the probability of "
            "the label 1, as scikit-learn's predict_proba(rows)[:, 1]"
        )


def missing(table: Table, lacking: np.ndarray, record: Any) -> DataError:
    """Return the error about test rows that the table lacks.

    Args:
        lacking: bool, of each test row.
        record: the first of them.
    """
    return DataError(
        f"{table.name}: lacks {lacking.sum():,} of the {len(lacking):,} test rows, the first "
        f"{record}; score the raw data that data.input names, with all columns of the workload as "
        f"they are there, the label included{_first(table.bad)}"
    )


def _sorted(
    name: str, example: np.ndarray, probability: np.ndarray, lines: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(example, kind="stable")
    example, probability = example[order], probability[order]
    same = example[1:] == example[:-1]
    if (other := np.flatnonzero(same & (probability[1:] != probability[:-1]))).size:
        rows = np.concatenate(lines)[order[other[0] : other[0] + 2]]
        first, second = probability[other[0] : other[0] + 2]
        raise DataError(
            f"{name}: rows {rows[0]} and {rows[1]} are equal in every column of the workload, and "
            f"have probabilities {first:g} and {second:g}; keep one of them"
        )
    once = np.append(True, ~same)
    return example[once], probability[once]


def _first(bad: list[Bad]) -> str:
    if not bad:
        return ""
    return f"; {len(bad):,} rows are unreadable, the first in line {bad[0].line}: {bad[0].reason}"
