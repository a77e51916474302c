"""A pipeline definition, parsed and checked by CreatePipeline's rules."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.request_checks import refusal, unevaluated
from trainyard.emulator.pipelines.parameter_values import Parameter, parse_parameter
from trainyard.emulator.pipelines.steps import NOT_RUN, RUNNERS
from trainyard.language.definition_document import VERSION
from trainyard.language.expressions import (
    LOOP_ITEM,
    LOOP_OUTPUT,
    ExpressionError,
    references,
)
from trainyard.language.statuses import TRIGGERS
from trainyard.language.step_types import step_type
from trainyard.language.steps import entries

EXPERIMENT = {
    "ExperimentName": {"Get": "Execution.PipelineName"},
    "TrialName": {"Get": "Execution.PipelineExecutionId"},
}
_NAME = re.compile(r"[A-Za-z0-9\-_]{1,64}")


@dataclass(frozen=True, slots=True)
class Step:
    """A step. ``branch``: for nested steps, (condition step, outcome) under which it runs."""

    name: str
    type: str
    arguments: dict[str, Any]
    document: dict[str, Any]
    depends_on: dict[str, str] = field(default_factory=dict)
    """Name of each step that it waits for -> trigger."""
    branch: tuple[str, bool] | None = None
    loop: str | None = None
    """The ForEach step whose body contains it; it then runs as one step per item."""
    iteration: dict[str, Any] | None = None
    """IterationContext of a step that a loop runs."""

    @property
    def fields(self) -> dict[str, Any]:
        """The type's fields beside Arguments, such as a Lambda step's FunctionArn."""
        own = step_type(self.type).fields
        return {name: value for name, value in self.document.items() if name in own}


@dataclass(frozen=True, slots=True)
class Definition:
    parameters: dict[str, Parameter]
    steps: dict[str, Step]
    """Steps in the order of the document, nested steps after their condition."""
    experiment: dict[str, Any] | None = None
    """ExperimentName and TrialName, unresolved; None if no experiment is wanted."""


def parse(text: str) -> Definition:
    """Return the checked definition. Raises ``ValidationException`` naming the wrong step or
    parameter.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise invalid(
            f"Unable to parse pipeline definition. It is not valid JSON: {error}"
        ) from None
    if not isinstance(document, dict) or document.get("Version") != VERSION:
        message = "Unable to parse pipeline definition. Expecting start of Json Object"
        raise invalid(f"{message} with Version {VERSION!r}.")
    parameters: dict[str, Parameter] = {}
    for entry in document.get("Parameters") or []:
        parameter = parse_parameter(entry)
        if parameter.name in parameters:
            raise invalid(f"duplicate parameter name {parameter.name!r}")
        parameters[parameter.name] = parameter
    definition = Definition(parameters, {}, _experiment(document, parameters))
    if not isinstance(document.get("Steps"), list) or not document["Steps"]:
        raise invalid("PipelineDefinition: Steps must be a list with at least one step")
    for entry in entries(document["Steps"]):
        step = _step(entry.document, entry.branch, entry.loop)
        if step.name in definition.steps:
            raise invalid(f"duplicate step name {step.name!r}")
        definition.steps[step.name] = step
    _check(definition)
    return definition


def _experiment(document: dict, parameters: dict[str, Parameter]) -> dict[str, Any] | None:
    """Return the pipeline's experiment, with AWS's default names."""
    if document.get("MlflowConfig") is not None:
        raise invalid("MlflowConfig: this emulator has no MLflow tracking server: leave it out")
    given = document.get("PipelineExperimentConfig")
    if given is None:
        return None
    if not isinstance(given, dict) or (unknown := given.keys() - EXPERIMENT.keys()):
        wrong = sorted(unknown) if isinstance(given, dict) else repr(given)
        raise invalid(f"PipelineExperimentConfig {wrong}: expected ExperimentName and TrialName")
    try:
        for reference in references([given]):
            known = reference.kind == "Execution" or reference.name in parameters
            if reference.kind not in ("Execution", "Parameters") or not known:
                what = f"{reference.kind}.{reference.name}"
                raise ExpressionError(f"{what} is neither a parameter nor an execution variable")
    except ExpressionError as error:
        raise invalid(f"PipelineExperimentConfig: {error}") from None
    return EXPERIMENT | given


def invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def _step(document: Any, branch: tuple[str, bool] | None, loop: str | None) -> Step:
    name, kind = _name_and_type(document)
    arguments = dict(document.get("Arguments") or {})
    for key in step_type(kind).nests:
        if not isinstance(arguments.pop(key, None) or [], list):  # these are steps themselves
            raise invalid(f"step {name!r}: {key} must be a list of steps")
    step = Step(name, kind, arguments, document, {}, branch, loop)
    known = {"Parameters", "Execution"}
    known |= {LOOP_ITEM} if loop else set()
    known |= {LOOP_OUTPUT} if kind == "ForEach" else set()
    try:
        RUNNERS[kind].check(arguments)
        for reference in references([arguments, step.fields]):
            if reference.kind in ("Steps", "PropertyFiles"):
                step.depends_on[reference.name] = "Completed"
            elif reference.kind not in known:
                raise ExpressionError(f"{reference.kind} is not run by this emulator")
    except ExpressionError as error:
        raise invalid(f"step {name!r}: {error}") from None
    for entry in document.get("DependsOn") or []:
        _depend(step, entry)
    return step


def _name_and_type(document: Any) -> tuple[str, str]:
    name = document.get("Name") if isinstance(document, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"step name {name!r}: expected 1 to 64 letters, digits, hyphens and underscores"
        raise invalid(message)
    kind = document.get("Type")
    if kind not in list(RUNNERS):  # a list, since kind may be unhashable
        why = f": {NOT_RUN[kind]}" if kind in list(NOT_RUN) else ""
        message = f"step {name!r} has type {kind!r}, which is not run by this emulator{why}"
        raise invalid(f"{message}; it runs {', '.join(sorted(RUNNERS))}")
    if not isinstance(document.get("Arguments") or {}, dict):
        raise invalid(f"step {name!r}: Arguments must be an object")
    return name, kind


def _depend(step: Step, entry: Any) -> None:
    """Add an entry of DependsOn: a name, or ``{"Step": name, "Trigger": ...}`` of SDK v3.27."""
    name, trigger = (
        (entry.get("Step"), entry.get("Trigger", "Completed"))
        if isinstance(entry, dict)
        else (entry, "Completed")
    )
    if not isinstance(name, str) or trigger not in list(TRIGGERS):
        message = f"step {step.name!r}: DependsOn {entry!r}: expected a step name, or Step and"
        raise invalid(f"{message} Trigger, one of {list(TRIGGERS)}")
    step.depends_on.setdefault(name, trigger)


def _check(definition: Definition) -> None:
    for step in definition.steps.values():
        for name in step.depends_on:
            if name not in definition.steps:
                raise invalid(f"step {step.name!r} refers to step {name!r}, which does not exist")
        _check_references(definition, step)
        _check_property_files(step)
    _check_loops(definition)
    _check_cycles(definition)


def _check_references(definition: Definition, step: Step) -> None:
    for reference in references([step.arguments, step.fields]):
        if reference.kind == "Parameters" and reference.name not in definition.parameters:
            raise invalid(
                f"step {step.name!r} refers to parameter {reference.name!r}, which does not exist; "
                f"there are {sorted(definition.parameters)}"
            )
        if reference.kind == "PropertyFiles":
            target = definition.steps[reference.name]
            if reference.path not in [name for name, _ in _property_files(target)]:
                message = f"step {step.name!r} refers to property file {reference.path!r}"
                raise invalid(f"{message}, which step {target.name!r} does not declare")


def _check_property_files(step: Step) -> None:
    outputs = (step.arguments.get("ProcessingOutputConfig") or {}).get("Outputs") or []
    names = [output.get("OutputName") for output in outputs if isinstance(output, dict)]
    seen = set()
    for name, output in _property_files(step):
        if name in seen:
            raise invalid(f"step {step.name!r}: duplicate property file name {name!r}")
        seen.add(name)
        if output not in names:
            message = f"step {step.name!r}: property file {name!r} names output {output!r}"
            raise invalid(f"{message}, expected one of {names}")


def _property_files(step: Step) -> list[tuple[str, str]]:
    """Return (name, output) of each property file; both must be text, before anything has run."""
    files = step.document.get("PropertyFiles") or []
    found = []
    for file in files if isinstance(files, list) else [files]:
        named = file if isinstance(file, dict) else {}
        name, output = named.get("PropertyFileName"), named.get("OutputName")
        if not isinstance(name, str) or not isinstance(output, str):
            message = f"step {step.name!r}: PropertyFiles {file!r}: expected PropertyFileName and"
            raise invalid(f"{message} OutputName as text")
        found.append((name, output))
    return found


def refuse(step: Step, python: Path) -> None:
    """Refuse a step that could never run here, whatever value its expressions will have."""
    arguments = unevaluated(step.arguments)
    if why := refusal(RUNNERS[step.type].checks(step.type, arguments, python)):
        raise invalid(f"step {step.name!r}: {why}")


def _check_loops(definition: Definition) -> None:
    """Make each loop wait for the steps outside it that its body waits for."""
    steps = definition.steps
    for step in list(steps.values()):
        if step.loop and step.type in ("Condition", "Fail", "ForEach"):
            message = f"step {step.name!r}: a {step.type} step is not allowed in a loop's body"
            raise invalid(message)
        for name, trigger in step.depends_on.items():
            inside = steps[name].loop
            if inside and inside != step.loop:
                message = f"step {step.name!r} refers to step {name!r}, which runs once per item of"
                raise invalid(
                    f"{message} {inside!r}; refer to {inside}.IterationOutputs or Selected"
                )
            if step.loop and not inside:
                steps[step.loop].depends_on.setdefault(name, trigger)
        body, _, number = step.name.rpartition("-")
        if number.isdecimal() and body in steps and steps[body].loop:
            raise invalid(
                f"step name {step.name!r}: loop {steps[body].loop!r} has a step of this name"
            )


def _check_cycles(definition: Definition) -> None:
    """Refuse steps that wait for themselves. A nested step also waits for its condition."""
    waits = {
        step.name: [*step.depends_on, *([step.branch[0]] if step.branch else [])]
        for step in definition.steps.values()
    }
    done: set[str] = set()
    for name in waits:
        _visit(name, waits, done, [])


def _visit(name: str, waits: dict[str, list[str]], done: set[str], path: list[str]) -> None:
    if name in path:
        cycle = " -> ".join([*path[path.index(name) :], name])
        raise invalid(f"step {name!r} waits for itself: {cycle}")
    if name not in done:
        for other in waits[name]:
            _visit(other, waits, done, [*path, name])
        done.add(name)
