"""Read a pipeline definition that ``pipeline_versions.require_valid_definition`` has accepted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.emulator.request_scope import make_validation_error
from trainyard.emulator.request_shapes import find_first_refusal, mask_expressions
from trainyard.emulator.sagemaker.pipelines.steps import NOT_RUN, RUNNERS
from trainyard.language.definition_document import iter_entries
from trainyard.language.expressions import DEFAULT_TYPE, ExpressionError, Value, iter_references
from trainyard.language.expressions import parse_parameter_value as parse_literal
from trainyard.language.step_types import get_step_type

# Pipeline parameters and their values in one execution, with the checks that AWS makes.


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a pipeline definition declares."""

    name: str
    type: str
    default: Value | None = None
    values: tuple[Value, ...] = ()
    """EnumValues. Empty if every value is allowed."""


def parse_parameter(entry: Mapping[str, Any]) -> Parameter:
    """Return the parameter that an entry of Parameters declares."""
    values = tuple(entry.get("EnumValues") or ())
    return Parameter(
        entry["Name"], entry.get("Type", DEFAULT_TYPE), entry.get("DefaultValue"), values
    )


def build_parameter_values(
    parameters: dict[str, Parameter], entries: list[dict]
) -> dict[str, Value]:
    """Return the parameter values of an execution that is started with ``entries``, a list of Name
    and Value, both text.

    Raises ``ValidationException`` if a name is unknown or repeated, if a value does not have the
    parameter's type, or if a parameter has neither value nor default.
    """
    result: dict[str, Value] = {}
    for entry in entries:
        name = entry["Name"]
        if name not in parameters:
            raise make_validation_error(
                f"unknown pipeline parameter {name!r}; expected one of {sorted(parameters)}"
            )
        if name in result:
            raise make_validation_error(f"pipeline parameter {name!r} is given twice")
        if not entry["Value"]:
            raise make_validation_error('[string "" is too short (length: 0, required minimum: 1)]')
        result[name] = convert_parameter(parameters[name], entry["Value"])
    for parameter in parameters.values():
        if parameter.name not in result:
            if parameter.default is None:
                raise make_validation_error(f"pipeline parameter {parameter.name!r} needs a value")
            result[parameter.name] = parameter.default
    # Return them in the definition's order, not the request's.
    return {name: result[name] for name in parameters}


def convert_parameter(parameter: Parameter, text: str) -> Value:
    """Convert ``text`` to the parameter's type. Raises ``ValidationException`` if that is not
    possible or if the value is not one of the allowed ones.
    """
    try:
        value = parse_literal(text, parameter.type)
    except ValueError as error:
        raise make_validation_error(f"pipeline parameter {parameter.name!r}: {error}") from None
    if parameter.values and value not in parameter.values:
        raise make_validation_error(
            f"parameter {parameter.name!r}: {value!r} is not one of {list(parameter.values)}"
        )
    return value


EXPERIMENT = {
    "ExperimentName": {"Get": "Execution.PipelineName"},
    "TrialName": {"Get": "Execution.PipelineExecutionId"},
}


@dataclass(frozen=True, slots=True)
class Step:
    """A step. For a step in a branch, ``branch`` is the name of the condition step and the outcome
    for which it runs.
    """

    name: str
    type: str
    arguments: dict[str, Any]
    document: dict[str, Any]
    depends_on: dict[str, str] = field(default_factory=dict)
    """Mapping of each step that it waits for to the trigger, which says how that step must end."""
    branch: tuple[str, bool] | None = None
    loop: str | None = None
    """The ForEach step whose body contains it. It is then run once per item, each time as a step of
    its own.
    """
    iteration: dict[str, Any] | None = None
    """IterationContext, if the step is one that a loop runs for an item."""

    @property
    def fields(self) -> dict[str, Any]:
        """The members that its type has in addition to Arguments, such as a Lambda step's
        FunctionArn.
        """
        names = get_step_type(self.type).fields
        return {name: value for name, value in self.document.items() if name in names}


@dataclass(frozen=True, slots=True)
class Definition:
    """A parsed pipeline definition."""

    parameters: dict[str, Parameter]
    steps: dict[str, Step]
    """Steps in the order of the document; nested steps come after their condition."""
    experiment: dict[str, Any] | None = None
    """ExperimentName and TrialName, unresolved. None if the pipeline has no experiment."""


def parse_definition(text: str) -> Definition:
    """Parse a definition that ``pipeline_versions.require_valid_definition`` has accepted.

    Raises ``ValidationException`` if it contains something that this emulator does not run.
    """
    document = json.loads(text)
    parameters = {
        entry["Name"]: parse_parameter(entry) for entry in document.get("Parameters") or ()
    }
    definition = Definition(parameters, {}, _parse_experiment(document, parameters))
    for entry in iter_entries(document["Steps"]):
        step = _parse_step(entry.document, entry.branch, entry.loop)
        definition.steps[step.name] = step
    _add_body_dependencies(definition.steps)
    return definition


def _parse_experiment(document: dict, parameters: dict[str, Parameter]) -> dict[str, Any] | None:
    """Return the pipeline's experiment, with AWS's default names. Return None if it has none."""
    if document.get("MlflowConfig") is not None:
        raise make_validation_error(
            "MlflowConfig: this emulator has no MLflow tracking server: leave it out"
        )
    config = document.get("PipelineExperimentConfig")
    if config is None:
        return None
    if not isinstance(config, dict) or (unknown := config.keys() - EXPERIMENT.keys()):
        wrong = sorted(unknown) if isinstance(config, dict) else repr(config)
        raise make_validation_error(
            f"PipelineExperimentConfig {wrong}: expected ExperimentName and TrialName"
        )
    try:
        for reference in iter_references([config]):
            is_known = reference.kind == "Execution" or reference.name in parameters
            if reference.kind not in ("Execution", "Parameters") or not is_known:
                reference_name = f"{reference.kind}.{reference.name}"
                raise ExpressionError(
                    f"{reference_name} is neither a parameter nor an execution variable"
                )
    except ExpressionError as error:
        raise make_validation_error(f"PipelineExperimentConfig: {error}") from None
    return EXPERIMENT | config


def _parse_step(
    document: dict[str, Any], branch: tuple[str, bool] | None, loop: str | None
) -> Step:
    """Return the step that ``document`` defines, with the steps that it waits for. Raises
    ``ValidationException`` if it cannot be run here.
    """
    name, kind = document["Name"], document["Type"]
    if kind not in RUNNERS:
        message = f"step {name!r} has type {kind!r}, which is not run by this emulator"
        raise make_validation_error(
            f"{message}: {NOT_RUN[kind]}; it runs {', '.join(sorted(RUNNERS))}"
        )
    nested = get_step_type(kind).nests  # they contain steps, which are read separately
    argument_items = (document.get("Arguments") or {}).items()
    arguments = {key: value for key, value in argument_items if key not in nested}
    step = Step(name, kind, arguments, document, {}, branch, loop)
    try:
        RUNNERS[kind].check(arguments)
        for reference in iter_references([arguments, step.fields]):
            if reference.kind in ("Steps", "PropertyFiles"):
                step.depends_on[reference.name] = "Completed"
    except ExpressionError as error:
        raise make_validation_error(f"step {name!r}: {error}") from None
    for entry in document.get("DependsOn") or ():
        of_sdk_3 = isinstance(entry, dict)  # {"Step": name, "Trigger": ...}
        other, trigger = (entry["Step"], entry["Trigger"]) if of_sdk_3 else (entry, "Completed")
        step.depends_on.setdefault(other, trigger)
    return step


def refuse_step(step: Step, python: Path) -> None:
    """Raise ``ValidationException`` if a step can never run here, whatever the values of its
    expressions are.
    """
    arguments = mask_expressions(step.arguments)
    if reason := find_first_refusal(RUNNERS[step.type].iter_checks(step.type, arguments, python)):
        raise make_validation_error(f"step {step.name!r}: {reason}")


def _add_body_dependencies(steps: dict[str, Step]) -> None:
    """Make each loop wait for the steps outside it that the steps of its body wait for. Raises
    ``ValidationException`` if a step has a name that a loop would create.
    """
    for step in steps.values():
        for name, trigger in step.depends_on.items():
            if step.loop and not steps[name].loop:
                steps[step.loop].depends_on.setdefault(name, trigger)
        # ``unroll_loop`` names the steps that a loop runs ``<body>-<index>``.
        body, _, number = step.name.rpartition("-")
        if number.isdecimal() and body in steps and steps[body].loop:
            raise make_validation_error(
                f"step name {step.name!r}: loop {steps[body].loop!r} creates a step of this name"
            )


# Members of pipeline requests that this emulator does not support.

_ALIASES = "versions have no aliases here: name one by PipelineVersionId"
NOT_DONE = {
    "PipelineVersionAlias": _ALIASES,
    "PipelineVersionAliases": _ALIASES,
    "MlflowExperimentName": "this emulator has no MLflow tracking server: leave it out",
}
"""Mapping of a member to the reason why it is refused."""


def refuse_members(request: dict[str, Any]) -> None:
    """Raise ``ValidationException`` if the request contains an unsupported member (NOT_DONE)."""
    for name, reason in NOT_DONE.items():
        if name in request:
            raise make_validation_error(f"{name} {request[name]!r}: {reason}")
