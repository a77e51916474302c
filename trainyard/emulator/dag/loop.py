"""ForEach: the steps that a loop becomes, one of each body step for each item."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from trainyard.emulator.dag.definition import Definition, Step
from trainyard.language.expressions import (
    GET,
    LOOP_ITEM,
    ExpressionError,
    is_expression,
    lookup,
    parse_get,
)

LONGEST = 12800  # characters of an item (botocore: IterationContext)


def unrolled(definition: Definition, loop: Step, items: Iterable[Any]) -> list[Step]:
    """``<body>-<index>`` for each item and body step, with the item in place of CurrentItem.

    Raises:
        ExpressionError: an item is too long, or has not what a body step takes of it.
    """
    bodies = [step for step in definition.steps.values() if step.loop == loop.name]
    names = {step.name for step in bodies}
    found = []
    for index, item in enumerate(items):
        if len(as_text(item)) > LONGEST:
            raise ExpressionError(f"item {index}: expected at most {LONGEST} characters")
        found += [_instance(body, index, item, names) for body in bodies]
    return found


def as_text(item: Any) -> str:
    """An item as IterationContext shows it."""
    return item if isinstance(item, str) else json.dumps(item)


def _instance(body: Step, index: int, item: Any, siblings: set[str]) -> Step:
    name = f"{body.name}-{index}"
    arguments, document = (
        _replaced(v, index, item, siblings) for v in (body.arguments, body.document)
    )
    own = {f"{n}-{index}" if n in siblings else n: t for n, t in body.depends_on.items()}
    context = {"ParentStepName": body.loop, "Index": index, "Item": as_text(item)}
    document = document | {"Name": name}
    return replace(
        body, name=name, arguments=arguments, document=document, depends_on=own, iteration=context
    )


def _replaced(value: Any, index: int, item: Any, siblings: set[str]) -> Any:
    """``value`` with CurrentItem replaced, and references to siblings led to this iteration's."""
    if isinstance(value, list):
        return [_replaced(each, index, item, siblings) for each in value]
    if not isinstance(value, dict):
        return value
    if is_expression(value) and GET in value:
        return _get(value[GET], index, item, siblings)
    return {key: _replaced(each, index, item, siblings) for key, each in value.items()}


def _get(text: Any, index: int, item: Any, siblings: set[str]) -> Any:
    reference = parse_get(text)
    if reference.kind == LOOP_ITEM:
        return _of_item(reference.path, item)
    if reference.kind in ("Steps", "PropertyFiles") and reference.name in siblings:
        return {GET: f"Steps.{reference.name}-{index}" + text[len(f"Steps.{reference.name}") :]}
    return {GET: text}


def _of_item(path: str, item: Any) -> Any:
    """A scalar: what is an object or a list becomes JSON text, as an item of its own would be."""
    if path != "CurrentItem":
        document = _parsed(item)
        value = lookup({"CurrentItem": document}, path, f"ForEach.{path} of item {as_text(item)}")
    else:
        value = item
    return json.dumps(value) if isinstance(value, dict | list) or value is None else value


def _parsed(item: Any) -> Any:
    if not isinstance(item, str):
        return item
    try:
        return json.loads(item)
    except ValueError:
        return item
