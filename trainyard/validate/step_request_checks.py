"""Check every step against the shapes of its type, and against further rules of the API pages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import botocore

from trainyard.language.definition_document import Document, Step, parse_duration
from trainyard.language.expressions import GET, JOIN, JSON_GET, is_expression
from trainyard.language.retries import GUIDE, MAX_ATTEMPTS
from trainyard.language.step_types import STEP_TYPES
from trainyard.language.step_types.step_type import ANYTHING, Choice, make_structure
from trainyard.validate.expression_checks import ANY, ExpressionType, infer_type
from trainyard.validate.location import (
    REFUSAL,
    UNREADABLE,
    Finding,
    Location,
    format_unknown_argument,
    shorten_repr,
    suggest_name,
)
from trainyard.validate.step_properties import Shape, compile_pattern, find_service_shape

PIPELINE = make_structure(
    PipelineExperimentConfig={
        **make_structure(
            ExperimentName={"shape": "ExperimentEntityName"},
            TrialName={"shape": "ExperimentEntityName"},
        ),
        "nullable": True,
    },
    MlflowConfig=ANYTHING,
)
"""Configuration of the pipeline itself, not of its steps. If the definition names no experiment and
no trial, the service names them after the pipeline and the execution."""
UNIQUE = {
    "ChannelName": "Training input channels become folders of these names",
    "InputName": "processing inputs are identified by their names",
    "OutputName": "processing outputs are identified by their names",
    "Key": "a tag has one value",
    "ActionName": "lineage actions are identified by their names",
    "ArtifactName": "lineage artifacts of one step are identified by their names",
    "ContextName": "lineage contexts are identified by their names",
    "InstanceGroupName": "groups of instances are identified by their names",
    "VariantName": "production variants are identified by their names",
}
"""Mapping of a member of a list's items that must be unique to the reason."""
NAMED_LISTS = ("MetricDefinitions", "IntegerParameterRanges", "ContinuousParameterRanges")
"""Lists whose items are identified by their member Name."""


def check_step_requests(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """Iterate over findings: what SageMaker would refuse in each step's fields and Arguments."""
    fit = ShapeChecker(document, steps)
    members = {k: v for k, v in document.document.items() if k in PIPELINE["members"]}
    yield from fit.check_value(
        members, Shape("SDK 3.27", "Pipeline", PIPELINE), Location(None, "$")
    )
    for step in document.steps:
        location = Location(step.name, step.path)
        # The check of the definition's top-level structure reports an unknown type.
        if step.type not in STEP_TYPES:
            continue
        fields = {k: v for k, v in step.document.items() if k not in ("Name", "Type")}
        shape = Shape("SDK 3.27", f"{step.type}Step", STEP_TYPES[step.type].build_shape())
        yield from fit.check_value(fields, shape, location)
        inside = location.join("Arguments")
        request_shape = find_arguments_shape(step)
        yield from _check_request_known(request_shape, step, inside)
        yield from fit.check_value(step.arguments, request_shape, inside)
        yield from _check_refused_members(step, inside)
        for choice in STEP_TYPES[step.type].choices:
            for value, child in _find_values(step.arguments, choice.keys, inside):
                yield from _check_choice(value, choice, child)
        yield from _check_duplicates(step.own_arguments, inside)
        yield from _check_duplicates(
            step.document.get("OutputParameters"), location.join("OutputParameters")
        )
        yield from _check_cache_expiry(step, location.join("CacheConfig"))
        yield from _check_retry_policies(step, location.join("RetryPolicies"))


def find_arguments_shape(step: Step) -> Shape:
    """Return the shape of the Arguments of a step of a known type.

    Arguments that SageMaker passes on are checked against the matching Create… request in
    botocore's model.
    """
    kind = STEP_TYPES[step.type]
    request, _ = kind.find_shape_names(step.arguments)
    if request is None:
        return Shape("SDK 3.27", f"{step.type}Step.Arguments", kind.arguments, kind.service)
    shape = find_service_shape(request, kind.service)
    if shape.body is ANYTHING:
        return shape
    body = shape.body
    required_names = [name for name in body.get("required", ()) if name != kind.made_up]
    return Shape("botocore", request, {**body, "required": required_names})


def _check_request_known(request_shape: Shape, step: Step, location: Location) -> Iterator[Finding]:
    """Warn if the installed botocore does not know the request, so that it is not checked."""
    if request_shape.origin == "botocore" and request_shape.body is ANYTHING:
        version = f"botocore {botocore.__version__}"
        yield location.make_warning(
            "not-checked",
            f"{version} does not know {request_shape.name}",
            reason=f"the Arguments of a {step.type} step are checked against botocore's shapes",
            fix="pip install --upgrade boto3, and validate again",
            source=version,
        )


def _check_refused_members(step: Step, location: Location) -> Iterator[Finding]:
    """Iterate over members that the API has, but that are not accepted in a pipeline's step."""
    for refusal in STEP_TYPES[step.type].refused_members:
        for value, child in _find_values(step.arguments, refusal.keys, location):
            if isinstance(value, dict) and refusal.member in value:
                yield child.join(refusal.member).make_error(
                    "not-in-a-pipeline",
                    f"{refusal.member} is not accepted in a {step.type} step",
                    reason=f"{REFUSAL}: the pipeline service sets it itself, or does not know it",
                    fix=f"remove it; use {refusal.instead} for it"
                    if refusal.instead
                    else "remove it",
                    source=refusal.source,
                    answer=format_unknown_argument(refusal.member),
                )
    experiment = step.arguments.get("ExperimentConfig")
    for name in (
        experiment if isinstance(experiment, dict) and not is_expression(experiment) else ()
    ):
        if name in ("ExperimentName", "TrialName"):
            yield location.join("ExperimentConfig", name).make_error(
                "not-in-a-pipeline",
                f"{name} is set by the pipeline, not by its steps",
                reason="the pipeline's own experiment and trial are used for every step",
                fix="set PipelineExperimentConfig of the pipeline",
                source="SDK 3.27: Step._trim_experiment_config",
                answer=format_unknown_argument(name),
            )


def _check_choice(value: Any, choice: Choice, location: Location) -> Iterator[Finding]:
    """Check that one (or at least one) of the members of a choice is present."""
    if not isinstance(value, dict) or is_expression(value):
        return
    present = [name for name in choice.members if value.get(name) is not None]
    if not present or (len(present) > 1 and not choice.several):
        have = f"there are {' and '.join(present)}" if present else "there is none"
        quantity = "one" if choice.several else "exactly one"
        yield location.make_error(
            "one-of",
            f"{quantity} of {', '.join(choice.members)} is needed, {have}",
            reason=REFUSED_WHY,
            fix=f"add {choice.members[0]}" if not present else f"keep {present[0]} alone",
            source=choice.source,
        )


def _find_values(value: Any, keys: tuple, location: Location) -> Iterator[tuple[Any, Location]]:
    """Iterate over the values at the path ``keys`` that exist; 0 stands for every list item."""
    if not keys:
        yield value, location
    elif keys[0] == 0:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _find_values(item, keys[1:], location.join(index))
    elif isinstance(value, dict) and value.get(keys[0]) is not None:
        yield from _find_values(value[keys[0]], keys[1:], location.join(keys[0]))


def _check_duplicates(value: Any, location: Location) -> Iterator[Finding]:
    """Iterate over items of a list that share a name although names must be unique."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _check_duplicates(item, location.join(key))
            if key in NAMED_LISTS:
                yield from _check_duplicate_names(item, location.join(key))
    elif isinstance(value, list):
        names: set[tuple[str, str]] = set()
        for index, item in enumerate(value):
            yield from _check_duplicates(item, location.join(index))
            for key, reason in UNIQUE.items():
                name = item.get(key) if isinstance(item, dict) else None
                if not isinstance(name, str):
                    continue
                if (key, name) in names:
                    yield (
                        location.join(index)
                        .join(key)
                        .make_error(
                            "duplicate-item",
                            f"a second item has {key} {name!r}",
                            reason=f"{reason}; the request is refused when the step starts",
                            fix="rename or remove one of them",
                            source="SageMaker API reference: names in a list are unique",
                        )
                    )
                names.add((key, name))


def _check_duplicate_names(items: Any, location: Location) -> Iterator[Finding]:
    """Yield a finding for each item of a list whose Name repeats an earlier item's."""
    item_list = items if isinstance(items, list) else []
    names = [item.get("Name") if isinstance(item, dict) else None for item in item_list]
    for index, name in enumerate(names):
        if isinstance(name, str) and name in names[:index]:
            yield location.join(index, "Name").make_error(
                "duplicate-item",
                f"a second item has Name {name!r}",
                reason="they are identified by their names; the request is refused",
                fix="rename or remove one of them",
                source="SageMaker API reference: names in a list are unique",
            )


def _check_cache_expiry(step: Step, location: Location) -> Iterator[Finding]:
    """Check the expiry time of the step's cache."""
    config = step.document.get("CacheConfig")
    if not isinstance(config, dict) or not STEP_TYPES[step.type].is_cached:
        return
    expires = config.get("ExpireAfter")
    if expires is None and config.get("Enabled") is True:
        yield location.make_warning(
            "cache-without-expiry",
            "Enabled without ExpireAfter",
            reason="it does not say how old a reused result may be",
            fix='add "ExpireAfter": "P30D"',
            source="SDK 3.27: CacheConfig; developer guide: Caching pipeline steps",
        )
    elif isinstance(expires, str):
        try:
            if parse_duration(expires) == 0 or not expires.upper().startswith("P"):
                yield location.join("ExpireAfter").make_warning(
                    "cache-duration",
                    f"{expires!r} is a duration of zero"
                    if parse_duration(expires) == 0
                    else f"{expires!r} lacks the P of an ISO 8601 duration",
                    reason="the cache never hits, or the service may refuse the definition",
                    fix="write days as P30D, hours as PT12H",
                    source="AWS's JSON schema of definitions: CacheConfig.ExpireAfter",
                )
        except ValueError as error:
            yield location.join("ExpireAfter").make_error(
                "cache-duration",
                str(error),
                reason="the definition is refused, or the cache never hits",
                fix="write days as P30D, hours as PT12H",
                source="developer guide: Caching pipeline steps",
            )


def _check_retry_policies(step: Step, location: Location) -> Iterator[Finding]:
    """Check that retry policies have exactly one limit, and different causes."""
    policies = step.document.get("RetryPolicies")
    positions: dict[str, int] = {}
    for index, policy in enumerate(policies if isinstance(policies, list) else ()):
        # The check against the shape reports it.
        if not isinstance(policy, dict):
            continue
        limits = [name for name in ("MaxAttempts", "ExpireAfterMin") if name in policy]
        if len(limits) == 2:
            yield location.join(index).make_error(
                "one-of",
                "exactly one of MaxAttempts and ExpireAfterMin is needed, there are both",
                reason="the service refuses a policy with two limits",
                fix="keep MaxAttempts",
                source=f"SDK 3.27: RetryPolicy; {GUIDE}",
            )
        elif not limits:
            yield location.join(index).make_warning(
                "one-of",
                "neither MaxAttempts nor ExpireAfterMin is given",
                reason=f"the service tries {MAX_ATTEMPTS} times; the SDK does not compile it",
                fix=f"set MaxAttempts to {MAX_ATTEMPTS}",
                source=f"SDK 3.27: RetryPolicy; {GUIDE}",
            )
        causes = policy.get("ExceptionType")
        for cause in causes if isinstance(causes, list) else ():
            if isinstance(cause, str) and positions.setdefault(cause, index) != index:
                yield location.join(index, "ExceptionType").make_warning(
                    "retry-twice",
                    f"{shorten_repr(cause)} already has a policy, at "
                    f"{location.path}[{positions[cause]}]",
                    reason="only the first policy that matches an error is used",
                    fix="put each cause into one policy",
                    source=GUIDE,
                )


# Check a value at every depth against a shape: members, types, enums, patterns, limits.

PYTHON = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "timestamp": (str, int, float),
    "blob": (str,),
    "list": (list,),
    "structure": (dict,),
    "map": (dict,),
}
JSON = {"structure": "object", "map": "object", "list": "list", "long": "integer"}
"""Names of botocore's types in JSON, if they differ."""
EXPRESSIONS = {
    "string": {"string"},
    "integer": {"integer"},
    "long": {"integer"},
    "float": {"integer", "float"},
    "double": {"integer", "float"},
    "timestamp": {"string", "integer", "float"},
}
"""Mapping of a field's type to the types of expressions that it accepts; others accept only their
own type."""
REFUSED_WHY = "SageMaker refuses the request when the step starts, after the steps before it ran"


@dataclass(frozen=True, slots=True)
class ShapeChecker:
    """Checks values of a definition against shapes; ``steps``, by name, resolve references."""

    document: Document
    steps: dict[str, Step]

    def check_value(self, value: Any, shape: Shape, location: Location) -> Iterator[Finding]:
        """Iterate over the findings in ``value``, given its shape."""
        if shape.type == "any" or (value is None and shape.body.get("nullable")):
            return
        if is_expression(value):
            yield from self._check_expression(value, shape, location)
        elif not _has_type(value, shape.type):
            type_name = JSON.get(shape.type, shape.type)
            yield location.make_error(
                "type",
                f"{shorten_repr(value)} is not of type {type_name}",
                reason=REFUSED_WHY,
                fix=_suggest_converted_value(value, type_name),
                source=shape.source,
                answer=_format_form_refusal(type_name),
            )
        else:
            checks: dict[str, Callable[[Any, Shape, Location], Iterator[Finding]]]
            checks = {
                "structure": self._check_structure,
                "list": self._check_list,
                "map": self._check_map,
            }
            yield from checks.get(shape.type, check_scalar)(value, shape, location)

    def _check_structure(self, value: dict, shape: Shape, location: Location) -> Iterator[Finding]:
        """Check a structure: required and unknown members, unions, and each member's value."""
        for name in shape.body.get("required", ()):
            if value.get(name) is None:
                yield location.make_error(
                    "missing-member",
                    f"{name} is missing",
                    reason=REFUSED_WHY,
                    fix=f"add {name}",
                    source=f"{shape.source}.{name}",
                )
        if shape.body.get("union") and len(value) != 1:
            yield location.make_error(
                "one-of",
                f"exactly one member is needed, there are {len(value)}: "
                f"{shorten_repr(list(value))}",
                reason=REFUSED_WHY,
                fix=f"keep one of {', '.join(list(shape.members)[:8])}",
                source=shape.source,
            )
        for name, item in value.items():
            if name not in shape.members:
                free = [member for member in shape.members if member not in value]
                yield location.join(name).make_error(
                    "unknown-member",
                    f"{shape.name} has no member {name!r}",
                    reason="the service refuses the definition, or the request when the step "
                    "starts",
                    fix=suggest_name(name, free),
                    source=shape.source,
                    answer=format_unknown_argument(name),
                )
            # A required member that is null was already reported as missing.
            elif item is not None or name not in shape.body.get("required", ()):
                yield from self.check_value(item, shape.find_member(name), location.join(name))

    def _check_list(self, value: list, shape: Shape, location: Location) -> Iterator[Finding]:
        """Check a list's length and its items."""
        yield from _check_length(value, shape, location, "items")
        for index, item in enumerate(value):
            yield from self.check_value(item, shape.find_item(), location.join(index))

    def _check_map(self, value: dict, shape: Shape, location: Location) -> Iterator[Finding]:
        """Check a map's number of entries, and its keys and values."""
        yield from _check_length(value, shape, location, "entries")
        for name, item in value.items():
            yield from check_scalar(name, shape.find_key(), location.join(name))
            yield from self.check_value(item, shape.find_value(), location.join(name))

    def _check_expression(self, value: dict, shape: Shape, location: Location) -> Iterator[Finding]:
        """Check the type of an expression, and the values that it may have."""
        value_type = infer_type(value, self.document, self.steps)
        if value_type.type == ANY:
            return
        if value_type.type not in EXPRESSIONS.get(shape.type, {shape.type}):
            yield _make_expression_finding(value, value_type, shape, location)
            return
        # An S3 URI starts with constant text. Other patterns need text that is known only in an
        # execution.
        if value_type.outline and "s3" in str(shape.body.get("pattern"))[:12]:
            yield from _check_pattern(value_type.outline, shape, location)
        for candidate in value_type.values:
            if _has_type(candidate, shape.type):
                yield from _relabel_findings(
                    value, candidate, check_scalar(candidate, shape, location)
                )


def check_scalar(value: Any, shape: Shape, location: Location) -> Iterator[Finding]:
    """Check the enum, pattern and length of a string, or the range of a number."""
    enum = shape.body.get("enum")
    if enum and value not in enum:
        yield location.make_error(
            "enum",
            f"{shorten_repr(value)} is not one of the {len(enum)} values of {shape.name}",
            reason=REFUSED_WHY,
            fix=suggest_name(value, enum),
            source=shape.source,
        )
    elif isinstance(value, str):
        unlike = list(_check_pattern(value, shape, location))
        # One finding is enough: text with the wrong form often has the wrong length, too.
        yield from unlike or _check_length(value, shape, location, "characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        minimum, maximum = shape.body.get("min", float("-inf")), shape.body.get("max", float("inf"))
        if not minimum <= value <= maximum:
            bound = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            yield location.make_error(
                "range",
                f"{value} is out of range: {bound}",
                reason=REFUSED_WHY,
                fix=f"use a number that is {bound}",
                source=shape.source,
            )


def _has_type(value: Any, type_: str) -> bool:
    # In Python True is an int, but JSON's true is not accepted as a number.
    fits = isinstance(value, PYTHON.get(type_, (object,)))
    return fits and (type_ == "boolean" or not isinstance(value, bool))


def _check_pattern(value: str, shape: Shape, location: Location) -> Iterator[Finding]:
    """Check that a string matches the pattern of its shape, if Python can express the pattern."""
    text = shape.body.get("pattern")
    regex = compile_pattern(text) if text else None
    if regex and not regex.fullmatch(value):
        yield location.make_error(
            "pattern",
            f"{shorten_repr(value)} does not match {text}",
            reason=REFUSED_WHY,
            fix="write it in the form that the pattern requires",
            source=shape.source,
        )


CITATIONS = {"ProcessingInputs": "#2554, "}
"""Mapping of a shape to an issue in which users reported its limit."""


def _check_length(
    value: str | list | dict, shape: Shape, location: Location, unit: str
) -> Iterator[Finding]:
    """Check the length of a value; ``unit`` says what is counted, such as ``items``."""
    minimum, maximum = shape.body.get("min", 0), shape.body.get("max", float("inf"))
    if not minimum <= len(value) <= maximum:
        too_few = len(value) < minimum
        limits = f"at least {minimum} are required" if too_few else f"at most {maximum} are allowed"
        yield location.make_error(
            "length",
            f"{len(value)} {unit}, {limits}",
            reason=REFUSED_WHY,
            fix=f"shorten it to {maximum}" if len(value) > maximum else f"give at least {minimum}",
            source=CITATIONS.get(shape.name, "") + shape.source,
        )


def _format_form_refusal(type_name: str) -> str:
    """Return CreatePipeline's message about a value that is not a list or object (#2345, #3908);
    empty for other types.
    """
    form = {"list": "Array", "object": "Object"}.get(type_name)
    return f"{UNREADABLE} Expecting start of Json {form}." if form else ""


def _suggest_converted_value(value: Any, type_name: str) -> str:
    """Return a suggestion of how to correct a value of the wrong type."""
    if isinstance(value, dict) and len(value) == 1:
        return (
            suggest_name(next(iter(value)), [GET, JOIN, JSON_GET]) + " (an expression has one key)"
        )
    if type_name == "string" and isinstance(value, int | float | bool):
        return f'write it as text: "{str(value).lower() if isinstance(value, bool) else value}"'
    return f"give a value of type {type_name}"


def _make_expression_finding(
    value: dict, value_type: ExpressionType, shape: Shape, location: Location
) -> Finding:
    """Return the finding about an expression whose type is not the one that the shape needs."""
    type_name = JSON.get(shape.type, shape.type)
    answer = _format_form_refusal(type_name)
    if GET in value and not answer:
        target = f"to argument of type [{type_name.capitalize()}]"
        answer = f"Cannot assign property reference [{value[GET]}] {target}."
    text = value.get(GET, JOIN)
    if type_name == "string" and value_type.type in ("integer", "float", "boolean"):
        return location.make_error(
            "number-in-string",
            f"{text} is of type {value_type.type}, but a string is needed here",
            reason=REFUSAL,
            fix='write .to_string(), in JSON {"Std:Join": {"On": "", "Values": [{"Get": …}]}}',
            source=f"#4867 #2631, {shape.source}",
            answer=answer,
        )
    source = (
        f"#2345, {shape.source}" if type_name in ("list", "object") else f"#4867, {shape.source}"
    )
    return location.make_error(
        "expression-type",
        f"{text} is of type {JSON.get(value_type.type, value_type.type)}, but {type_name} is "
        "needed here",
        reason=REFUSAL,
        fix=f"put the expression inside a {type_name}"
        if type_name in ("list", "object")
        else f"refer to something of type {type_name}, or change the parameter's Type",
        source=source,
        answer=answer,
    )


def _relabel_findings(
    value: dict, candidate: Any, findings: Iterator[Finding]
) -> Iterator[Finding]:
    """Iterate over the findings about ``candidate``, reported for the expression ``value``."""
    for finding in findings:
        text = value.get(GET, JOIN)
        yield Finding(
            rule=finding.rule,
            severity="error",
            step=finding.step,
            path=finding.path,
            problem=f"{text} is {shorten_repr(candidate)}: {finding.problem}",
            why=finding.why,
            fix=finding.fix,
            source=finding.source,
        )
