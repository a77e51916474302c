"""The order of an execution's steps: decide which steps may start and how the execution ends."""

import json
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from trainyard.emulator.sagemaker.pipelines.checked_definition import Definition, Step
from trainyard.language.definition_document import TRIGGERS
from trainyard.language.expressions import (
    GET,
    LOOP_ITEM,
    ExpressionError,
    is_expression,
    look_up_path,
    parse_get,
)


class Order:
    """The order of the steps. It reads the execution's record at each call; the caller must hold
    the execution's lock.
    """

    def __init__(self, definition: Definition, record: dict) -> None:
        self._definition, self._record = definition, record
        self.children: dict[str, Step] = {}
        """The steps of running loops by name, one for each body step and item."""

    def list_ready_steps(self, running: Collection[str]) -> list[Step]:
        """Return the steps that may start while ``running`` run, within
        MaxParallelExecutionSteps.
        """
        limit = self._record["answer"].get("ParallelismConfiguration", {})
        free = limit.get("MaxParallelExecutionSteps", sys.maxsize)
        free -= len([name for name in running if not self._is_loop(name)])
        steps: list[Step] = []
        outside = [step for step in self._definition.steps.values() if not step.loop]
        for step in [*outside, *self.children.values()]:
            if not self.may_start(step):
                continue
            if self._is_loop(step.name):
                steps.append(step)
            elif free > 0 and self._has_free_slot(
                step, [*running, *(other.name for other in steps)]
            ):
                free -= 1
                steps.append(step)
        return steps

    def may_start(self, step: Step) -> bool:
        """Return whether the step may start: it has not started, all steps that it waits for have
        ended as its triggers require, and no failure prevents it.
        """
        top = step.loop or step.name
        if step.name in self._step_records or top not in self._record.get("selected", [top]):
            return False
        waits = step.depends_on.items()
        if not all(self._get_status(name) in TRIGGERS[trigger] for name, trigger in waits):
            return False
        if step.branch and not self._is_branch_taken(*step.branch):
            return False
        handles = any(
            trigger != "Completed" and self._get_status(name) != "Succeeded"
            for name, trigger in waits
        )
        return handles or not self._list_failures(step.loop)

    def compute_outcome(self) -> tuple[str, str | None]:
        """Return the status of an execution whose steps have all ended, and the reason if it
        failed.
        """
        failures = self._list_failures()
        handlers = {
            name
            for step in self._definition.steps.values()
            if step.name in self._step_records
            for name, trigger in step.depends_on.items()
            if trigger != "Completed"
        }
        if failures and set(failures) <= handlers:
            return "CompletedWithFailures", None
        if failures:
            causes = [
                f"{name}: {self._step_records[name].get('FailureReason', '')}" for name in failures
            ]
            return "Failed", f"Step failure: One or multiple steps failed. {'; '.join(causes)}"
        has_stopped = "Stopped" in [record["StepStatus"] for record in self._step_records.values()]
        return ("Stopped" if has_stopped else "Succeeded"), None

    @property
    def _step_records(self) -> dict[str, dict]:
        return self._record["steps"]

    def _is_loop(self, name: str) -> bool:
        """Return whether the step is a loop. Loops do not count as steps that run in parallel."""
        step = self._definition.steps.get(name)
        return step is not None and step.type == "ForEach"

    def _has_free_slot(self, step: Step, running: list[str]) -> bool:
        """Return whether the MaxConcurrency of the step's loop, if any, allows another step."""
        if not step.loop:
            return True
        siblings = [self.children[name] for name in running if name in self.children]
        limit = self._definition.steps[step.loop].arguments["MaxConcurrency"]
        return len([other for other in siblings if other.loop == step.loop]) < limit

    def _get_status(self, name: str) -> str | None:
        return self._step_records.get(name, {}).get("StepStatus")

    def _is_branch_taken(self, condition: str, outcome: bool) -> bool:
        metadata = self._step_records.get(condition, {}).get("Metadata", {})
        return metadata.get("Condition", {}).get("Outcome") == str(outcome)

    def _list_failures(self, loop: str | None = None) -> list[str]:
        """Return the failed steps of the loop. If ``loop`` is None, return the failed steps outside
        of loops.
        """
        return [
            name
            for name, record in self._step_records.items()
            if record["StepStatus"] == "Failed"
            and record.get("IterationContext", {}).get("ParentStepName") == loop
        ]


LONGEST = 12800  # maximum characters of an item (botocore: IterationContext)


def unroll_loop(definition: Definition, loop: Step, items: Iterable[Any]) -> list[Step]:
    """Return, for each item, the steps ``<body>-<index>``, with the item in place of CurrentItem.

    Raises:
        ExpressionError: an item is too long, or lacks a value that a body step uses.
    """
    bodies = [step for step in definition.steps.values() if step.loop == loop.name]
    names = {step.name for step in bodies}
    steps = []
    for index, item in enumerate(items):
        if len(format_item(item)) > LONGEST:
            raise ExpressionError(f"item {index}: expected at most {LONGEST} characters")
        steps += [_instantiate_step(body, index, item, names) for body in bodies]
    return steps


def format_item(item: Any) -> str:
    """Return an item as IterationContext shows it."""
    return item if isinstance(item, str) else json.dumps(item)


def _instantiate_step(body: Step, index: int, item: Any, siblings: set[str]) -> Step:
    """Return the copy of the step ``body`` that runs for the item with that index."""
    name = f"{body.name}-{index}"
    arguments, document = (
        _replace_item(v, index, item, siblings) for v in (body.arguments, body.document)
    )
    dependencies = {f"{n}-{index}" if n in siblings else n: t for n, t in body.depends_on.items()}
    context = {"ParentStepName": body.loop, "Index": index, "Item": format_item(item)}
    document = document | {"Name": name}
    return replace(
        body,
        name=name,
        arguments=arguments,
        document=document,
        depends_on=dependencies,
        iteration=context,
    )


def _replace_item(value: Any, index: int, item: Any, siblings: set[str]) -> Any:
    """Return ``value`` with CurrentItem replaced, and with references to other steps of the body
    changed to those of this iteration.
    """
    if isinstance(value, list):
        return [_replace_item(element, index, item, siblings) for element in value]
    if not isinstance(value, dict):
        return value
    if is_expression(value) and GET in value:
        return _instantiate_reference(value[GET], index, item, siblings)
    return {key: _replace_item(element, index, item, siblings) for key, element in value.items()}


def _instantiate_reference(text: Any, index: int, item: Any, siblings: set[str]) -> Any:
    """Return the value or reference that replaces a Get expression in this iteration."""
    reference = parse_get(text)
    if reference.kind == LOOP_ITEM:
        return _resolve_item_path(reference.path, item)
    if reference.kind in ("Steps", "PropertyFiles") and reference.name in siblings:
        return {GET: f"Steps.{reference.name}-{index}" + text[len(f"Steps.{reference.name}") :]}
    return {GET: text}


def _resolve_item_path(path: str, item: Any) -> Any:
    """Return the value at ``path`` of the item. An object, a list or null becomes JSON text, as
    when it is an item itself.
    """
    if path != "CurrentItem":
        document = _parse_item(item)
        value = look_up_path(
            {"CurrentItem": document}, path, f"ForEach.{path} of item {format_item(item)}"
        )
    else:
        value = item
    return json.dumps(value) if isinstance(value, dict | list) or value is None else value


def _parse_item(item: Any) -> Any:
    """Return the item as JSON if it is the text of a JSON value; otherwise unchanged."""
    if not isinstance(item, str):
        return item
    try:
        return json.loads(item)
    except ValueError:
        return item


Observe = Callable[[dict, str | None], None]
"""Function called with an execution's record when its status changes or that of the named step. It
must return quickly, because the execution waits for it.
"""


def ignore_change(record: dict, step: str | None) -> None:
    """Do nothing: the default observer of an execution."""
