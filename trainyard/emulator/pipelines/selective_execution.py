"""Selective execution: which steps of a pipeline run, and which results of an earlier run they
reuse.

The rules are SelectiveExecutionConfig's (API reference, developer guide "Selective execution"): all
steps on a path between two selected steps must be selected; a selected step that depends on an
unselected step takes that step's results from the source execution.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.pipelines import step_cache
from trainyard.emulator.pipelines.checked_definition import Definition, Step, invalid
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.language.statuses import END_STATUSES
from trainyard.language.step_types import step_type

MOST = 50


def select_steps(definition: Definition, config: Mapping[str, Any]) -> list[str]:
    """Return the names of the selected steps. Raises ``ValidationException`` by the rules."""
    names = [entry["StepName"] for entry in config["SelectedSteps"]]
    unknown = [name for name in names if name not in definition.steps]
    if unknown:
        raise invalid(f"Invalid SelectedSteps: the pipeline has no steps [{', '.join(unknown)}]")
    if not 1 <= len(names) <= MOST:
        raise invalid(f"Invalid SelectedSteps: {len(names)} steps, expected 1 to {MOST}")
    below = _below(definition, names)
    between = [n for n in _above(definition, names) if n in below and n not in names]
    if between:
        message = f"Invalid SelectedSteps: the steps [{', '.join(between)}] are on a path between"
        raise invalid(f"{message} selected steps [{', '.join(names)}]; select them, too")
    return names


def reuse_records(
    definition: Definition,
    names: list[str],
    source: Mapping[str, Any] | None,
    objects: ObjectStore,
) -> dict[str, dict]:
    """Return the records of the steps whose results the selected steps take from ``source``, by
    name.

    ``source`` is the record of an execution of the same pipeline. Raises ``ValidationException`` if
    it is needed and missing, or lacks a needed result.
    """
    dependencies = [n for name in names for n in _waits(definition.steps[name]) if n not in names]
    dependencies = list(dict.fromkeys(dependencies))
    if dependencies and source is None:
        raise invalid(
            f"Invalid SourcePipelineExecutionArn: null. The selected steps [{', '.join(names)}] "
            f"have dependencies on [{', '.join(dependencies)}]"
        )
    if source is None:
        return {}
    _check_ended(source)
    arn = source["answer"]["PipelineExecutionArn"]
    for name in dependencies:
        _check_step(definition.steps[name], source["steps"].get(name), arn)
    for name in names:
        _check_branch(definition.steps[name], names, source)
    above = _above(definition, names)
    records = {
        name: _copy_record(record, arn)
        for name, record in source["steps"].items()
        if name in above and name not in names and record["StepStatus"] == "Succeeded"
    }
    records |= {
        name: _copy_record(record, arn)
        for name, record in source["steps"].items()
        if record.get("IterationContext", {}).get("ParentStepName") in records
    }
    _check_outputs({name: records[name] for name in dependencies}, arn, objects)
    return records


def _waits(step: Step) -> list[str]:
    return [*step.depends_on, *([step.branch[0]] if step.branch else [])]


def _above(definition: Definition, names: Iterable[str]) -> set[str]:
    """Return all steps that ``names`` depend on, directly or not."""
    ancestors: set[str] = set()
    todo = list(names)
    while todo:
        new = set(_waits(definition.steps[todo.pop()])) - ancestors
        ancestors |= new
        todo += new
    return ancestors


def _below(definition: Definition, names: Iterable[str]) -> set[str]:
    """Return all steps that depend on ``names``, directly or not."""
    descendants: set[str] = set()
    while True:
        last = {*names, *descendants}
        new = {n for n, step in definition.steps.items() if last & set(_waits(step))} - descendants
        if not new:
            return descendants
        descendants |= new


def _check_ended(source: Mapping[str, Any]) -> None:
    status = source["answer"]["PipelineExecutionStatus"]
    if status not in END_STATUSES:
        arn = source["answer"]["PipelineExecutionArn"]
        raise invalid(f"Invalid SourcePipelineExecutionArn: {arn} is in status {status}")


def _check_step(step: Step, record: dict | None, arn: str) -> None:
    status = record["StepStatus"] if record else "not run"
    if record is None or status != "Succeeded":
        raise invalid(
            f"Invalid SourcePipelineExecutionArn: {arn}. The selected steps depend on step "
            f"{step.name!r}, which has not succeeded there ({status})"
        )
    kind = step_type(step.type).metadata_key
    if kind not in record["Metadata"]:
        message = f"Invalid SourcePipelineExecutionArn: {arn}. Step {step.name!r} is of type"
        raise invalid(f"{message} {step.type} now, and had another type there")


def _check_branch(step: Step, names: list[str], source: Mapping[str, Any]) -> None:
    """Refuse a step in a branch that never runs, since its condition had the other outcome."""
    if not step.branch or step.branch[0] in names:
        return
    condition, outcome = step.branch
    earlier = source["steps"][condition]["Metadata"]["Condition"]["Outcome"]
    if earlier != str(outcome):
        raise invalid(
            f"Invalid SelectedSteps: step {step.name!r} runs when {condition!r} is {outcome}, and "
            f"it was {earlier} in the source execution; select {condition!r}, too"
        )


def _check_outputs(records: dict[str, dict], arn: str, objects: ObjectStore) -> None:
    for name, record in records.items():
        gone = [uri for uri in record.get("outputs", ()) if not step_cache.exists(objects, uri)]
        if gone:
            message = f"Invalid SourcePipelineExecutionArn: {arn}. Of the outputs of step {name!r}"
            raise invalid(f"{message} {gone[0]} is gone; select that step, too")


def _copy_record(record: dict, arn: str) -> dict:
    """Return a copy without the signature, so that the step cache does not count the reuse as a
    run.
    """
    keys = (
        "StepName",
        "StepDisplayName",
        "StepDescription",
        "Metadata",
        "outputs",
        "IterationContext",
    )
    now = time.time()
    return {key: record[key] for key in keys if key in record} | {
        "StartTime": now,
        "EndTime": now,
        "StepStatus": "Succeeded",
        "SelectiveExecutionResult": {"SourcePipelineExecutionArn": arn},
    }


def check_retry(steps: Mapping[str, dict], arn: str) -> None:
    """Raise ``ValidationException`` for an execution that a Fail step ended."""
    failures = [n for n, record in steps.items() if "Fail" in record["Metadata"]]
    if failures:
        raise ApiError(
            "ValidationException",
            f"Pipeline execution {arn} cannot be retried: it was ended by Fail step "
            f"{failures[0]!r}",
        )
