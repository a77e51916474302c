"""Check the outer form of a definition: JSON, its top level, parameters, and steps' own fields."""

import json
import re
from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import VERSION, Document
from trainyard.language.parameters import DEFAULT_TYPE, TYPES, is_a
from trainyard.language.step_types import STEP_TYPES
from trainyard.language.steps import entries, steps_of
from trainyard.validate.botocore_shapes import service_shapes
from trainyard.validate.expression_checks import odd_member
from trainyard.validate.location import REFUSAL, Finding, Place, brief, suggestion

TOP = ("Version", "Metadata", "Parameters", "PipelineExperimentConfig", "MlflowConfig", "Steps")
"""Top-level members that SDK 3.27's ``Pipeline.definition`` writes."""
SDK_FORM = "SDK 3.27: Pipeline.definition"
PARAMETER_KEYS = ("Name", "Type", "DefaultValue", "EnumValues", "Description")
ROOT = Place(None, "$")


def read(body: str) -> tuple[Document | None, list[Finding]]:
    """Return the definition in ``body``, or None if unreadable, and the findings in its form."""
    findings: list[Finding] = []
    try:
        document = json.loads(
            body, object_pairs_hook=_Pairs(findings), parse_constant=_Constants(findings)
        )
    except (ValueError, RecursionError) as error:
        return None, [*findings, _no_json(str(error))]
    if not isinstance(document, dict):
        return None, [*findings, _no_json(f"it is {brief(document)}, not an object")]
    findings += _top(document)
    findings += _parameters(document.get("Parameters"))
    findings += _steps(document.get("Steps"))
    entries = document.get("Parameters")
    parameters = {
        entry["Name"]: entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("Name"), str)
    }
    steps = tuple(steps_of(document.get("Steps")))
    return Document(document=document, parameters=parameters, steps=steps), findings


class _Pairs:
    """Creates an object of pairs; records keys that occur twice."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = sorted({key for key in keys if keys.count(key) > 1})
            self.findings.append(
                ROOT.error(
                    "duplicate-key",
                    f"the key {twice[0]!r} stands twice in an object with {brief(keys)}",
                    reason="JSON readers keep the last one and drop the others in silence",
                    fix="remove one of them",
                    source="RFC 8259, section 4",
                )
            )
        return members


class _Constants:
    """Records NaN and Infinity, which are not JSON."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def __call__(self, constant: str) -> float:
        self.findings.append(
            ROOT.error(
                "not-json",
                f"{constant} is not a JSON number",
                reason=REFUSAL,
                fix="write a number, or text",
                source="RFC 8259, section 6",
            )
        )
        return float(constant.replace("Infinity", "inf"))


def _no_json(problem: str) -> Finding:
    return ROOT.error(
        "not-json",
        f"the definition is not a JSON object: {problem}",
        reason=REFUSAL,
        fix="write it with json.dumps, or with Pipeline.definition()",
        source="RFC 8259",
    )


def _top(document: dict) -> Iterator[Finding]:
    if document.get("Version") != VERSION:
        yield ROOT.join("Version").error(
            "version",
            f"{brief(document.get('Version'))}, expected {VERSION!r}",
            reason=REFUSAL,
            fix=f'"Version": "{VERSION}"',
            source=SDK_FORM,
        )
    for key in document:
        if key not in TOP:
            free = [k for k in TOP if k not in document]
            yield odd_member(ROOT.join(key), "the definition", key, free, SDK_FORM)
    yield from _kinds(document)


def _kinds(document: dict) -> Iterator[Finding]:
    """Check the types of the top-level members; what SDK 3.27 writes as null may be null."""
    if not isinstance(document.get("Steps"), list) or not document["Steps"]:
        yield _form(ROOT.join("Steps"), document.get("Steps"), "a list with at least one step")
    if not isinstance(document.get("Parameters", []), list):
        yield _form(ROOT.join("Parameters"), document["Parameters"], "a list")
    for key in ("Metadata", "MlflowConfig"):
        if not isinstance(document.get(key), dict | None):
            yield _form(ROOT.join(key), document[key], "an object or null")


def _parameters(entries: Any) -> Iterator[Finding]:
    names: set[str] = set()
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        place = ROOT.join("Parameters", index)
        if not isinstance(entry, dict):
            yield _form(place, entry, "an object with Name and Type")
            continue
        yield from _parameter(entry, place)
        name = entry.get("Name")
        if isinstance(name, str) and name in names:
            yield _duplicate(place.join("Name"), "parameter", name)
        names.add(str(name))


def _parameter(entry: dict, place: Place) -> Iterator[Finding]:
    yield from _name(entry.get("Name"), place.join("Name"), "PipelineParameterName")
    for key in entry:
        if key not in PARAMETER_KEYS:
            yield odd_member(place.join(key), "a parameter", key, list(PARAMETER_KEYS), SDK_FORM)
    kind = entry.get("Type", DEFAULT_TYPE)
    if kind not in list(TYPES):
        yield place.join("Type").error(
            "parameter-type",
            f"{brief(kind)} is not a parameter type",
            reason=REFUSAL,
            fix=suggestion(kind, list(TYPES)),
            source="SDK 3.27: ParameterTypeEnum",
        )
        return
    yield from _values(entry, kind, place)


def _values(entry: dict, kind: str, place: Place) -> Iterator[Finding]:
    default, values = entry.get("DefaultValue"), entry.get("EnumValues")
    if default is not None and not is_a(default, kind):
        yield _form(
            place.join("DefaultValue"), default, f"a value of Type {kind}", "parameter-default"
        )
    if values is None:
        return
    if not isinstance(values, list) or not values:
        yield _form(place.join("EnumValues"), values, "a list of values", "parameter-enum")
        return
    for index, value in enumerate(values):
        if not is_a(value, kind):
            item_place = place.join("EnumValues", index)
            yield _form(item_place, value, f"a value of Type {kind}", "parameter-enum")
    if default is not None and default not in values:
        yield place.join("DefaultValue").error(
            "parameter-enum",
            f"{brief(default)} is not one of EnumValues {brief(values)}",
            reason=REFUSAL,
            fix=suggestion(default, [str(value) for value in values]),
            source="SDK 3.27: ParameterString(enum_values)",
        )


def _steps(documents: Any) -> Iterator[Finding]:
    paths: dict[str, str] = {}
    for entry in entries(documents):
        document, place = entry.document, Place(None, entry.path)
        if not isinstance(document, dict):
            yield _form(place, document, "a step: an object with Name, Type and Arguments")
            continue
        name = document.get("Name")
        place = Place(name if isinstance(name, str) else None, entry.path)
        yield from _name(name, place.join("Name"), "StepName")
        if isinstance(name, str) and paths.setdefault(name, entry.path) != entry.path:
            yield _duplicate(place.join("Name"), "step", name)
        yield from _step_type(document.get("Type"), document, place)


def _step_type(kind: Any, entry: dict, place: Place) -> Iterator[Finding]:
    if kind not in list(STEP_TYPES):  # a list also compares unhashable values
        yield place.join("Type").error(
            "step-type",
            f"{brief(kind)} is not a type of step",
            reason=REFUSAL,
            fix=suggestion(kind, list(STEP_TYPES)),
            source="SDK 3.27: StepTypeEnum",
        )
    arguments = entry.get("Arguments")
    if arguments is not None and not isinstance(arguments, dict):
        yield _form(place.join("Arguments"), arguments, "an object")


def _name(name: Any, place: Place, shape: str) -> Iterator[Finding]:
    """Check a parameter's or step's name; only the service's shapes would allow an empty one."""
    body = service_shapes("sagemaker")[shape]
    if not isinstance(name, str) or not re.fullmatch(body["pattern"], name) or not name:
        yield _form(
            place, name, "letters, digits, hyphens and underscores", "name", f"botocore: {shape}"
        )
    elif len(name) > body["max"]:
        expectation = f"at most {body['max']} characters"
        yield _form(place, name, expectation, "name", f"botocore: {shape}")


def _form(
    place: Place, value: Any, expectation: str, rule: str = "form", source: str = SDK_FORM
) -> Finding:
    problem = f"{brief(value)}, expected {expectation}"
    return place.error(rule, problem, reason=REFUSAL, fix=f"give {expectation}", source=source)


def _duplicate(place: Place, noun: str, name: str) -> Finding:
    return place.error(
        "duplicate-name",
        f"a second {noun} is called {name!r}",
        reason=f"{REFUSAL}: names of {noun}s are unique in a pipeline",
        fix="rename one of them",
        source="SDK 3.27: PipelineGraph",
    )
