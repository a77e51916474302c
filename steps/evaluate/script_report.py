"""Read what a script reports besides its rows: metrics that are not means, and training examples.

metrics.json          metric to value, for metrics without rows, such as an area under a curve
train_examples.jsonl  or .parquet: ``example`` and, if the scores have it, ``group``
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steps.evaluate.evaluation_document import Leakage, Metric
from steps.evaluate.leaked_examples import count_leakage
from steps.evaluate.score_table import Scores
from steps.evaluate.script_columns import build_id_columns, find_rows_file, read_pieces
from training.scores import Block
from trainyard.common.errors import DataError, suggest_nearest

TRAIN_EXAMPLES = "train_examples"


def read_metrics(output: Path, wanted: Sequence[str]) -> dict[str, Metric]:
    """Return the metrics in metrics.json; {} if the script did not write it.

    Raises:
        DataError: a metric is not one of ``wanted``, or not a finite number.
    """
    file = output / "metrics.json"
    values = _read_json_object(file)
    for name in values:
        if name not in wanted:
            raise DataError(
                f"{file.name}: {name} is not listed in evaluate.metrics, or is already a column "
                "of the rows; "
                f"{suggest_nearest(name, list(wanted))}"
            )
    return {
        name: {"value": _check_number(f"{file.name}: {name}", value), "standard_error": None}
        for name, value in values.items()
    }


def count_leaks(
    output: Path, scores: Path, required_counts: Sequence[str], *, grouped: bool
) -> Leakage:
    """Count the scored examples and groups that are also in the training data; None if unknown.

    Args:
        scores: the gate's table.
        required_counts: which of ``examples`` and ``groups`` the recipe's gate limits.
        grouped: whether the scores have groups of their own.

    Raises:
        DataError: a required count was not reported.
    """
    file = find_rows_file(output, TRAIN_EXAMPLES)
    if file is None:
        if required_counts:
            raise DataError(
                f"gate.max_leaked_{required_counts[0]} is set, and evaluate.script wrote no "
                f'{TRAIN_EXAMPLES}.jsonl: write one, with a line {{"example": …}} for each example '
                "that was trained on, or remove the field"
            )
        return {"examples": None, "groups": None, "checked_examples": None, "checked_groups": None}
    counts = count_leakage(_iter_train_blocks(file), Scores(scores))
    first = next(read_pieces(file), None)
    if grouped == (first is not None and "group" in first.columns):
        return counts
    if "groups" in required_counts:
        incomplete, complete = (file.name, "the scores") if grouped else ("the scores", file.name)
        raise DataError(
            f"gate.max_leaked_groups is set, and {incomplete} has no column group as {complete} "
            "has; write it in both"
        )
    return {**counts, "groups": None, "checked_groups": None}


def _iter_train_blocks(file: Path) -> Iterator[Block]:
    """Yield the ids of the training examples that the script listed."""
    for piece in read_pieces(file):
        if more := sorted(piece.columns.keys() - {"example", "group"}):
            raise DataError(f"{file.name}: unknown column {more[0]}; expected example, group")
        yield build_id_columns(piece)


def _read_json_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in the file; {} if it does not exist."""
    if not file.exists():
        return {}
    try:
        tree = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name}: is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise DataError(f"{file.name}: is {str(tree)[:60]!r}; expected a JSON object")
    return tree


def _check_number(label: str, value: Any) -> float:
    """Return the value as a float; raise DataError if it is not a finite number."""
    right = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        if right and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise DataError(f"{label}: is {value!r}; expected a finite number")
