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

KNOWN = {*Setting.model_fields, *field_aliases.NAMES}
MEANT = 0.8
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
    for found in answers(text.splitlines()):
        out.write(json.dumps(found, ensure_ascii=False) + "\n")
        sound &= "error" not in found
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
        whole = json.loads(line)
    except ValueError as error:
        return {"error": f"is not JSON: {error}"}
    if not isinstance(whole, dict):
        return {"error": f"is {type(whole).__name__}; expected an object with a Setting's fields"}
    nested = whole.get("row")
    row = nested if isinstance(nested, dict) else whole
    known = {name: value for name, value in row.items() if name in KNOWN}
    ignored = [name for name in {**whole, **row} if name not in KNOWN and name not in ("id", "row")]
    named = {"id": whole.get("id", row.get("id"))} if "id" in {**whole, **row} else {}
    try:
        for name in ignored:
            if close := get_close_matches(name, sorted(KNOWN), n=1, cutoff=MEANT):
                raise ValueError(f"{name}: no such field; nearest valid name: {close[0]}")
        setting, assumed = _setting(known)
        return {**named, **foreseen(setting), "ignored": ignored, **assumed}
    except ValidationError as error:
        return {**named, "error": _problem(error, known)}
    except ValueError as error:
        return {**named, "error": str(error)}


def _setting(row: Mapping[str, Any]) -> tuple[Setting, dict[str, str]]:
    """Return the row's setting, and what was assumed about it."""
    setting = Setting.model_validate(row)
    stages, samples = setting.pipeline, setting.micro_batch
    if stages == 1 or samples % stages or "accumulation" in setting.model_fields_set:
        return setting, {}
    cut = {"micro_batch": samples // stages, "accumulation": stages}
    said = f"micro_batch {samples} is cut into {stages} micro-batches: accumulation was left out"
    return setting.model_copy(update=cut), {"assumed": said}


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
        "usable_gib": _rounded(used.usable_gib),
        "peak_in": used.when,
        "mfu": _rounded(step.mfu),
        "seconds": {name: _rounded(part) for name, part in step.parts.items()},
    }


def _figures(spread: Spread) -> dict[str, float]:
    return {name: _rounded(getattr(spread, name)) for name in ("p10", "p50", "p90")}


def _rounded(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0.0
    return round(value, FIGURES - 1 - math.floor(math.log10(abs(value))))
