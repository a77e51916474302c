"""A pipeline definition, read; ``definition_form`` checks it by CreatePipeline's rules."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.jobs.request_checks import mask_expressions, refusal
from trainyard.emulator.sagemaker.pipelines.parameter_values import Parameter, parse_parameter
from trainyard.emulator.sagemaker.pipelines.steps import NOT_RUN, RUNNERS
from trainyard.language.expressions import (
    ExpressionError,
    references,
)
from trainyard.language.step_types import step_type
from trainyard.language.steps import entries

EXPERIMENT = {
    "ExperimentName": {"Get": "Execution.PipelineName"},
    "TrialName": {"Get": "Execution.PipelineExecutionId"},
}


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
        names = step_type(self.type).fields
        return {name: value for name, value in self.document.items() if name in names}


@dataclass(frozen=True, slots=True)
class Definition:
    parameters: dict[str, Parameter]
    steps: dict[str, Step]
    """Steps in the order of the document, nested steps after their condition."""
    experiment: dict[str, Any] | None = None
    """ExperimentName and TrialName, unresolved; None if no experiment is wanted."""


def parse(text: str) -> Definition:
    """Return a definition that ``definition_form.check`` lets pass. Raises ``ValidationException``
    for what this emulator does not run.
    """
    document = json.loads(text)
    parameters = {
        entry["Name"]: parse_parameter(entry) for entry in document.get("Parameters") or ()
    }
    definition = Definition(parameters, {}, _experiment(document, parameters))
    for entry in entries(document["Steps"]):
        step = _step(entry.document, entry.branch, entry.loop)
        definition.steps[step.name] = step
    _wait_for_bodies(definition.steps)
    return definition


def _experiment(document: dict, parameters: dict[str, Parameter]) -> dict[str, Any] | None:
    """Return the pipeline's experiment, with AWS's default names."""
    if document.get("MlflowConfig") is not None:
        raise invalid("MlflowConfig: this emulator has no MLflow tracking server: leave it out")
    config = document.get("PipelineExperimentConfig")
    if config is None:
        return None
    if not isinstance(config, dict) or (unknown := config.keys() - EXPERIMENT.keys()):
        wrong = sorted(unknown) if isinstance(config, dict) else repr(config)
        raise invalid(f"PipelineExperimentConfig {wrong}: expected ExperimentName and TrialName")
    try:
        for reference in references([config]):
            is_known = reference.kind == "Execution" or reference.name in parameters
            if reference.kind not in ("Execution", "Parameters") or not is_known:
                reference_name = f"{reference.kind}.{reference.name}"
                raise ExpressionError(
                    f"{reference_name} is neither a parameter nor an execution variable"
                )
    except ExpressionError as error:
        raise invalid(f"PipelineExperimentConfig: {error}") from None
    return EXPERIMENT | config


def invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def _step(document: dict[str, Any], branch: tuple[str, bool] | None, loop: str | None) -> Step:
    name, kind = document["Name"], document["Type"]
    if kind not in RUNNERS:
        message = f"step {name!r} has type {kind!r}, which is not run by this emulator"
        raise invalid(f"{message}: {NOT_RUN[kind]}; it runs {', '.join(sorted(RUNNERS))}")
    nested = step_type(kind).nests  # these are steps themselves
    argument_items = (document.get("Arguments") or {}).items()
    arguments = {key: value for key, value in argument_items if key not in nested}
    step = Step(name, kind, arguments, document, {}, branch, loop)
    try:
        RUNNERS[kind].check(arguments)
        for reference in references([arguments, step.fields]):
            if reference.kind in ("Steps", "PropertyFiles"):
                step.depends_on[reference.name] = "Completed"
    except ExpressionError as error:
        raise invalid(f"step {name!r}: {error}") from None
    for entry in document.get("DependsOn") or ():
        of_sdk_3 = isinstance(entry, dict)  # {"Step": name, "Trigger": ...}
        other, trigger = (entry["Step"], entry["Trigger"]) if of_sdk_3 else (entry, "Completed")
        step.depends_on.setdefault(other, trigger)
    return step


def refuse(step: Step, python: Path) -> None:
    """Refuse a step that could never run here, whatever value its expressions will have."""
    arguments = mask_expressions(step.arguments)
    if reason := refusal(RUNNERS[step.type].checks(step.type, arguments, python)):
        raise invalid(f"step {step.name!r}: {reason}")


def _wait_for_bodies(steps: dict[str, Step]) -> None:
    """Make each loop wait for the steps outside it that its body waits for."""
    for step in steps.values():
        for name, trigger in step.depends_on.items():
            if step.loop and not steps[name].loop:
                steps[step.loop].depends_on.setdefault(name, trigger)
        # ``unroll_loop`` gives such names to the steps of a loop.
        body, _, number = step.name.rpartition("-")
        if number.isdecimal() and body in steps and steps[body].loop:
            raise invalid(
                f"step name {step.name!r}: loop {steps[body].loop!r} has a step of this name"
            )
