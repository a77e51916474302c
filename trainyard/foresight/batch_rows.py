"""Answer a file of trainings line by line, as JSON.

A row is a JSON object with fields of a Setting; missing fields have their default. Rows of
``benchmarks/foresight/rows/`` work, too: their fields are under ``row``.

If a pipeline's row does not give ``accumulation``, it does not mean a single micro-batch: its
``micro_batch`` is cut into as many micro-batches as there are stages' ranks, as torchtitan cuts a
local batch, where that divides it; the answer says so under ``assumed``.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from trainyard.common.errors import RecipeError
from trainyard.foresight import field_aliases, memory, step_time
from trainyard.foresight.interval import Spread
from trainyard.foresight.setting import Setting

KNOWN_FIELDS = {*Setting.model_fields, *field_aliases.NAMES}
CLOSENESS = 0.8
"""How alike a name must be to one of ours to count as a misspelling (difflib's ratio)."""

FIGURES = 4
"""Significant digits of an answer."""


def answer_file(path: Path, out: TextIO) -> bool:
    """Write an answer line for each row of the file; return whether all could be answered.

    Raises:
        RecipeError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"--rows {path}: cannot be read: {error}; give a file with a JSON object per line"
        ) from None
    sound = True
    for answer in answers(text.splitlines()):
        out.write(json.dumps(answer, ensure_ascii=False) + "\n")
        sound &= "error" not in answer
    return sound


def answers(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Iterate over the answers, one for each line that is not empty: ``line``, the row's ``id``
    where it has one, and the predictions, or an ``error``.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield {"line": number, **_answer(line)}


def _answer(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        return {"error": f"is not JSON: {error}"}
    if not isinstance(record, dict):
        return {"error": f"is {type(record).__name__}; expected an object with a Setting's fields"}
    nested_row = record.get("row")
    row = nested_row if isinstance(nested_row, dict) else record
    known_fields = {name: value for name, value in row.items() if name in KNOWN_FIELDS}
    ignored_names = [
        name for name in {**record, **row} if name not in KNOWN_FIELDS and name not in ("id", "row")
    ]
    identity = {"id": record.get("id", row.get("id"))} if "id" in {**record, **row} else {}
    try:
        for name in ignored_names:
            if close := get_close_matches(name, sorted(KNOWN_FIELDS), n=1, cutoff=CLOSENESS):
                raise ValueError(f"{name}: no such field; nearest valid name: {close[0]}")
        setting, assumption = _setting(known_fields)
        return {**identity, **foreseen(setting), "ignored": ignored_names, **assumption}
    except ValidationError as error:
        return {**identity, "error": _problem(error, known_fields)}
    except ValueError as error:
        return {**identity, "error": str(error)}


def _setting(row: Mapping[str, Any]) -> tuple[Setting, dict[str, str]]:
    """Return the row's setting, and what was assumed about it."""
    setting = Setting.model_validate(row)
    stages, samples = setting.pipeline, setting.micro_batch
    if stages == 1 or samples % stages or "accumulation" in setting.model_fields_set:
        return setting, {}
    cut = {"micro_batch": samples // stages, "accumulation": stages}
    note = f"micro_batch {samples} is cut into {stages} micro-batches: accumulation was left out"
    return setting.model_copy(update=cut), {"assumed": note}


def _problem(error: ValidationError, row: Mapping[str, Any]) -> str:
    """Return a message about the first problem: field, value, what was expected."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    field = str(first["loc"][0])
    value = json.dumps(row[field], ensure_ascii=False) if field in row else "left out"
    return f"{field}: {value}: {message}"


def foreseen(setting: Setting) -> dict[str, Any]:
    """Return time, rate and memory of a step, each with p10, p50 and p90."""
    step, used = step_time.foresee(setting), memory.foresee(setting)
    return {
        "step_seconds": _figures(step.step_seconds),
        "tokens_per_second_per_gpu": _figures(step.tokens_per_second_per_gpu),
        "memory_gib": {
            "total": _figures(used.peak),
            **{name: _figures(part) for name, part in used.categories.items()},
        },
        "fits": used.fits,
        "usable_gib": _round_value(used.usable_gib),
        "peak_in": used.when,
        "mfu": _round_value(step.mfu),
        "seconds": {name: _round_value(part) for name, part in step.parts.items()},
    }


def _figures(spread: Spread) -> dict[str, float]:
    return {name: _round_value(getattr(spread, name)) for name in ("p10", "p50", "p90")}


def _round_value(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0.0
    return round(value, FIGURES - 1 - math.floor(math.log10(abs(value))))
