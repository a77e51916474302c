"""Check references: whether their targets exist, and have a value when the reference is used."""

from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import Document, Step
from trainyard.language.expressions import (
    EXECUTION_VARIABLES,
    GET,
    JOIN,
    JSON_GET,
    LOOP_ITEM,
    LOOP_OUTPUT,
    ExpressionError,
    Reference,
    parse_get,
    split_path,
)
from trainyard.validate import top_level_structure
from trainyard.validate.expression_checks import (
    PASSING,
    check_join,
    check_json_get,
    iter_located_expressions,
)
from trainyard.validate.location import REFUSAL, Finding, Location, shorten_repr, suggest_name
from trainyard.validate.step_dependencies import check_reachability, make_missing_finding
from trainyard.validate.step_properties import (
    PropertyError,
    find_property_shape,
    find_unbracketed_name,
)
from trainyard.validate.top_level_structure import check_property_file, check_property_files


def check_references(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """Iterate over the findings in all expressions and property files of the definition, and over
    its unused parameters.
    """
    used: set[str] = set()
    for expression, location, step in iter_located_expressions(document):
        yield from _check_expression(expression, location, step, document, steps, used)
    for step in document.steps:
        yield from check_property_files(step)
        yield from top_level_structure.check_special_step(step, steps, document)
    entries = document.document.get("Parameters")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = entry.get("Name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name not in used:
            yield Location(None, f"$.Parameters[{index}]").make_warning(
                "unused-parameter",
                f"nothing refers to parameter {name!r}",
                reason="setting it has no effect",
                fix="refer to it where it was meant to be used, or remove it",
                source="definition",
            )


def _check_expression(
    expression: dict,
    location: Location,
    step: Step | None,
    document: Document,
    steps: dict[str, Step],
    used: set[str],
) -> Iterator[Finding]:
    """Check one expression; if it refers to a parameter, add the parameter's name to ``used``."""
    if JOIN in expression:
        yield from check_join(expression[JOIN], location.join(JOIN))
    elif JSON_GET in expression:
        yield from check_json_get(expression[JSON_GET], location.join(JSON_GET))
    else:
        try:
            reference = parse_get(expression[GET])
        except ExpressionError as error:
            yield _make_syntax_finding(location, expression[GET], error)
            return
        if reference.kind == "Parameters":
            used.add(reference.name)
            if reference.name not in document.parameters:
                yield make_missing_finding(
                    location, "parameter", reference.name, list(document.parameters)
                )
        elif reference.kind == LOOP_ITEM:
            yield from _check_loop_item(location, step)
        elif reference.kind == LOOP_OUTPUT:
            yield from _check_loop_output(reference, location, step, steps)
        elif reference.kind in ("Steps", "PropertyFiles"):
            yield from _check_step_reference(reference, location, step, steps)


def _make_syntax_finding(location: Location, text: Any, error: ExpressionError) -> Finding:
    """Return a finding about a reference that cannot be parsed."""
    prefix, _, rest = str(text).partition(".")
    fix = suggest_name(prefix, ["Parameters", "Execution", "Steps"])
    if prefix == "Execution":
        fix = suggest_name(rest, list(EXECUTION_VARIABLES))
    return location.make_error(
        "expression",
        str(error),
        reason=REFUSAL,
        fix=fix,
        source="SDK 3.27: ExecutionVariables, Parameter, Properties",
    )


def _check_step_reference(
    reference: Reference, location: Location, step: Step | None, steps: dict[str, Step]
) -> Iterator[Finding]:
    """Check a reference to a step's property or property file."""
    target = steps.get(reference.name)
    if target is None:
        yield make_missing_finding(location, "step", reference.name, list(steps))
        return
    if step is not None:
        yield from check_reachability(step, target, location, steps)
    if reference.kind == "PropertyFiles":
        yield from check_property_file(reference, target, location)
        return
    yield from _check_property(target, reference.path, location, steps)


def _check_property(
    target: Step, path: str, location: Location, steps: dict[str, Step]
) -> Iterator[Finding]:
    """Check that a step has the property at ``path``, and that the path is written correctly."""
    try:
        find_property_shape(target, split_path(path), steps)
        if token := find_unbracketed_name(target, path, steps):
            yield location.make_error(
                "property",
                f"{shorten_repr(path)}: {token!r} is a name in a list or a map, and follows a dot",
                reason="CreatePipeline refuses the definition, or the step fails when it starts",
                fix=f"write ['{token}'] in place of .{token}",
                source=f"SDK 3.27: PropertiesList, PropertiesMap; {PASSING}",
            )
    except PropertyError as error:
        yield location.make_error(
            "property",
            f"{shorten_repr(path)}: {error}",
            reason="CreatePipeline refuses the definition, or the step fails when it starts",
            fix=error.fix,
            source=f"{PASSING}; the Describe answer of a {target.type} step in botocore's model",
        )


def _check_loop_item(location: Location, step: Step | None) -> Iterator[Finding]:
    """Check that a reference to the current item of a loop is in the body of a ForEach step."""
    if step is None or step.loop is None:
        yield location.make_error(
            "loop-item",
            "ForEach.CurrentItem outside the body of a ForEach step",
            reason=f"{REFUSAL}: there is no current item",
            fix="use it in a step of ForEachBody",
            source="SDK 3.27: CurrentItem",
        )


def _check_loop_output(
    reference: Reference, location: Location, step: Step | None, steps: dict[str, Step]
) -> Iterator[Finding]:
    """Check that a selector refers to an output of a step in its own loop's body."""
    inside = [other.name for other in steps.values() if step and other.loop == step.name]
    if reference.name not in inside:
        yield location.make_error(
            "loop-item",
            f"IterationOutput of {reference.name!r}, which is not a body step here",
            reason=f"{REFUSAL}: a selector compares outputs of the body's steps",
            fix=suggest_name(reference.name, inside),
            source="SDK 3.27: ForEachSelector",
        )
    else:
        yield from _check_property(steps[reference.name], reference.path, location, steps)
