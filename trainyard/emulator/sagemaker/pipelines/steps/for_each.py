"""ForEach step: run its body once for each item, and select one iteration by its output."""

import json
import math
from typing import Any

from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepStopped,
    runs,
)
from trainyard.language.evaluation import evaluate_value
from trainyard.language.expressions import LOOP_OUTPUT, ExpressionError, is_expression, parse_get

MOST = 100
"""Maximum number of items that a definition may list (SDK 3.27: ForEachStep). A JSON list that is
computed at run time may be longer.
"""
PICKS = {"MaxBy": max, "MinBy": min}


@runs("ForEach")
class ForEachRunner(Runner):
    """Evaluate a loop's items and outputs. The execution itself runs the loop's steps.

    When a step of the loop fails, its running steps continue to their end and no others of the loop
    start, as in an execution. AWS does not document this.
    """

    resolves = True

    @staticmethod
    def check(arguments: dict[str, Any]) -> None:
        items, max_concurrency = arguments.get("IterableItems"), arguments.get("MaxConcurrency")
        if not is_expression(items) and not (isinstance(items, list) and 1 <= len(items) <= MOST):
            raise ExpressionError(f"IterableItems: expected an expression or 1 to {MOST} items")
        if (
            not isinstance(max_concurrency, int)
            or isinstance(max_concurrency, bool)
            or not 1 <= max_concurrency <= 50
        ):
            raise ExpressionError(f"MaxConcurrency {max_concurrency!r}: expected 1 to 50")
        selector = arguments.get("Selector")
        if selector is not None:
            _parse_selector_field(selector)

    def run(self, attempt: Attempt) -> None:
        items = _parse_items(evaluate_value(attempt.arguments["IterableItems"], attempt.scope))
        children = attempt.iterate(items)
        statuses = [child.get("StepStatus") for child in children.values()]
        metadata: dict[str, Any] = {
            "InputItemCount": len(items),
            "TotalStepCount": len(children),
            "SucceededStepCount": statuses.count("Succeeded"),
            "FailedStepCount": statuses.count("Failed"),
            "StoppedStepCount": statuses.count("Stopped"),
        }
        try:
            _raise_failure(children, statuses)
            if selector := attempt.arguments.get("Selector"):
                metadata["Selector"] = _select_iteration(selector, len(items), attempt)
        except StepStopped:
            attempt.note({"Status": "Stopped", **metadata})
            raise
        except (StepFailed, ExpressionError):
            attempt.note({"Status": "Failed", **metadata})
            raise
        attempt.note({"Status": "Succeeded", **metadata})


def _parse_items(value: Any) -> list[Any]:
    """Return the items of a list, or of the text of a JSON list. Raises ExpressionError for
    anything else.
    """
    items = value
    if isinstance(value, str):
        try:
            items = json.loads(value)
        except ValueError as error:
            raise ExpressionError(f"IterableItems {value[:80]!r} is not JSON: {error}") from None
    if not isinstance(items, list):
        raise ExpressionError(f"IterableItems {str(value)[:80]!r}: expected a JSON list")
    return items


def _raise_failure(children: dict[str, dict], statuses: list[str | None]) -> None:
    """Raise StepFailed if a step of the loop failed, or StepStopped if one was stopped or did not
    start.
    """
    failures = [name for name, child in children.items() if child.get("StepStatus") == "Failed"]
    if failures:
        reason = children[failures[0]].get("FailureReason", "")
        message = (
            f"{len(failures)} of {len(children)} steps of the loop failed; {failures[0]}: {reason}"
        )
        raise StepFailed(message)
    if "Stopped" in statuses or None in statuses:
        raise StepStopped


def _parse_selector_field(selector: Any) -> tuple[str, str]:
    """Return the body step and the property by which the Selector compares iterations."""
    field = selector.get("Field") if isinstance(selector, dict) else None
    if not isinstance(field, dict) or "Get" not in field or selector.get("Pick") not in PICKS:
        expectation = f"expected Pick, one of {list(PICKS)}, and Field, an IterationOutput"
        raise ExpressionError(f"Selector {selector!r}: {expectation}")
    reference = parse_get(field["Get"])
    if reference.kind != LOOP_OUTPUT:
        raise ExpressionError(f"Selector.Field {field['Get']!r}: expected IterationOutput.<step>.…")
    return reference.name, reference.path


def _select_iteration(selector: dict, count: int, attempt: Attempt) -> dict[str, Any]:
    """Return the selected iteration. Of iterations with equal values, return the first."""
    body, path = _parse_selector_field(selector)
    values = [_parse_number(attempt.scope.property(f"{body}-{i}", path), i) for i in range(count)]
    if not values:
        raise StepFailed("ClientError: the Selector has nothing to pick: the loop has no items")
    best = PICKS[selector["Pick"]](values)
    return {"StepName": body, "Index": values.index(best)}


def _parse_number(value: Any, index: int) -> float:
    """Return the value as a number. Raises StepFailed if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or isinstance(value, bool):
        message = f"the Selector's Field of iteration {index} is {value!r}, which is not a number"
        raise StepFailed(f"ClientError: {message}")
    return number
