"""Check the top-level structure of a definition: its JSON, top-level members, parameters, and
steps' names and types; also names in the arguments of Cleanup, Lineage and ForEach steps.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import VERSION, Document, Step, iter_entries, iter_steps
from trainyard.language.expressions import (
    DEFAULT_TYPE,
    TYPES,
    Reference,
    has_parameter_type,
    is_expression,
)
from trainyard.language.step_types import STEP_TYPES, get_step_type
from trainyard.validate.expression_checks import ANY, infer_type, make_unknown_member_finding
from trainyard.validate.location import REFUSAL, Finding, Location, shorten_repr, suggest_name
from trainyard.validate.step_properties import load_service_shapes

TOP = ("Version", "Metadata", "Parameters", "PipelineExperimentConfig", "MlflowConfig", "Steps")
"""Top-level members of a definition that SDK 3.27's ``Pipeline.definition`` writes."""
SDK_FORM = "SDK 3.27: Pipeline.definition"
PARAMETER_KEYS = ("Name", "Type", "DefaultValue", "EnumValues", "Description")
ROOT = Location(None, "$")


def read_definition(body: str) -> tuple[Document | None, list[Finding]]:
    """Return the definition in ``body`` (None if it is not a JSON object) and the findings about
    its structure.
    """
    findings: list[Finding] = []
    try:
        # Without these hooks, json would accept two equal keys (keeping the last), and NaN.
        document = json.loads(
            body,
            object_pairs_hook=_UniqueKeysHook(findings),
            parse_constant=_NonJsonConstantHook(findings),
        )
    except (ValueError, RecursionError) as error:
        return None, [*findings, _make_json_finding(str(error))]
    if not isinstance(document, dict):
        return None, [
            *findings,
            _make_json_finding(f"it is {shorten_repr(document)}, not an object"),
        ]
    findings += _check_top_level(document)
    findings += _check_parameters(document.get("Parameters"))
    findings += _check_steps(document.get("Steps"))
    entries = document.get("Parameters")
    parameters = {
        entry["Name"]: entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("Name"), str)
    }
    steps = tuple(iter_steps(document.get("Steps")))
    return Document(document=document, parameters=parameters, steps=steps), findings


class _UniqueKeysHook:
    """json's ``object_pairs_hook``: creates an object, and adds a finding if a key occurs twice."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = sorted({key for key in keys if keys.count(key) > 1})
            self.findings.append(
                ROOT.make_error(
                    "duplicate-key",
                    f"the key {twice[0]!r} occurs twice in an object with {shorten_repr(keys)}",
                    reason="JSON readers keep the last one and drop the others without an error",
                    fix="remove one of them",
                    source="RFC 8259, section 4",
                )
            )
        return members


class _NonJsonConstantHook:
    """json's ``parse_constant``: adds a finding for NaN and Infinity, which are not JSON."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def __call__(self, constant: str) -> float:
        self.findings.append(
            ROOT.make_error(
                "not-json",
                f"{constant} is not a JSON number",
                reason=REFUSAL,
                fix="write a number, or text",
                source="RFC 8259, section 6",
            )
        )
        return float(constant.replace("Infinity", "inf"))


def _make_json_finding(problem: str) -> Finding:
    """Return a finding that the definition is not a JSON object."""
    return ROOT.make_error(
        "not-json",
        f"the definition is not a JSON object: {problem}",
        reason=REFUSAL,
        fix="write it with json.dumps, or with Pipeline.definition()",
        source="RFC 8259",
    )


def _check_top_level(document: dict) -> Iterator[Finding]:
    """Check the top-level members of the definition."""
    if document.get("Version") != VERSION:
        yield ROOT.join("Version").make_error(
            "version",
            f"{shorten_repr(document.get('Version'))}, expected {VERSION!r}",
            reason=REFUSAL,
            fix=f'"Version": "{VERSION}"',
            source=SDK_FORM,
        )
    for key in document:
        if key not in TOP:
            free = [k for k in TOP if k not in document]
            yield make_unknown_member_finding(ROOT.join(key), "the definition", key, free, SDK_FORM)
    if not isinstance(document.get("Steps"), list) or not document["Steps"]:
        yield _make_form_finding(
            ROOT.join("Steps"), document.get("Steps"), "a list with at least one step"
        )
    if not isinstance(document.get("Parameters", []), list):
        yield _make_form_finding(ROOT.join("Parameters"), document["Parameters"], "a list")
    # SDK 3.27 writes these two as null if they are not used.
    for key in ("Metadata", "MlflowConfig"):
        if not isinstance(document.get(key), dict | None):
            yield _make_form_finding(ROOT.join(key), document[key], "an object or null")


def _check_parameters(entries: Any) -> Iterator[Finding]:
    """Check the list of parameters, and that their names are unique."""
    names: set[str] = set()
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        location = ROOT.join("Parameters", index)
        if not isinstance(entry, dict):
            yield _make_form_finding(location, entry, "an object with Name and Type")
            continue
        yield from _check_parameter(entry, location)
        name = entry.get("Name")
        if isinstance(name, str) and name in names:
            yield _make_duplicate_finding(location.join("Name"), "parameter", name)
        names.add(str(name))


def _check_parameter(entry: dict, location: Location) -> Iterator[Finding]:
    """Check the entry of one parameter."""
    yield from _check_name(entry.get("Name"), location.join("Name"), "PipelineParameterName")
    for key in entry:
        if key not in PARAMETER_KEYS:
            yield make_unknown_member_finding(
                location.join(key), "a parameter", key, list(PARAMETER_KEYS), SDK_FORM
            )
    kind = entry.get("Type", DEFAULT_TYPE)
    if kind not in list(TYPES):
        yield location.join("Type").make_error(
            "parameter-type",
            f"{shorten_repr(kind)} is not a parameter type",
            reason=REFUSAL,
            fix=suggest_name(kind, list(TYPES)),
            source="SDK 3.27: ParameterTypeEnum",
        )
        return
    yield from _check_parameter_values(entry, kind, location)


def _check_parameter_values(entry: dict, kind: str, location: Location) -> Iterator[Finding]:
    """Check that a parameter's default and permitted values have its type."""
    default, values = entry.get("DefaultValue"), entry.get("EnumValues")
    if default is not None and not has_parameter_type(default, kind):
        yield _make_form_finding(
            location.join("DefaultValue"), default, f"a value of Type {kind}", "parameter-default"
        )
    if values is None:
        return
    if not isinstance(values, list) or not values:
        yield _make_form_finding(
            location.join("EnumValues"), values, "a list of values", "parameter-enum"
        )
        return
    for index, value in enumerate(values):
        if not has_parameter_type(value, kind):
            item_place = location.join("EnumValues", index)
            yield _make_form_finding(item_place, value, f"a value of Type {kind}", "parameter-enum")
    if default is not None and default not in values:
        yield location.join("DefaultValue").make_error(
            "parameter-enum",
            f"{shorten_repr(default)} is not one of EnumValues {shorten_repr(values)}",
            reason=REFUSAL,
            fix=suggest_name(default, [str(value) for value in values]),
            source="SDK 3.27: ParameterString(enum_values)",
        )


def _check_steps(documents: Any) -> Iterator[Finding]:
    """Check the name, the type and the form of every step; names must be unique."""
    paths: dict[str, str] = {}
    for entry in iter_entries(documents):
        document, location = entry.document, Location(None, entry.path)
        if not isinstance(document, dict):
            yield _make_form_finding(
                location, document, "a step: an object with Name, Type and Arguments"
            )
            continue
        name = document.get("Name")
        location = Location(name if isinstance(name, str) else None, entry.path)
        yield from _check_name(name, location.join("Name"), "StepName")
        if isinstance(name, str) and paths.setdefault(name, entry.path) != entry.path:
            yield _make_duplicate_finding(location.join("Name"), "step", name)
        kind = document.get("Type")
        # A list, because ``in`` on a dict raises TypeError for an unhashable value.
        if kind not in list(STEP_TYPES):
            yield location.join("Type").make_error(
                "step-type",
                f"{shorten_repr(kind)} is not a type of step",
                reason=REFUSAL,
                fix=suggest_name(kind, list(STEP_TYPES)),
                source="SDK 3.27: StepTypeEnum",
            )
        arguments = document.get("Arguments")
        if arguments is not None and not isinstance(arguments, dict):
            yield _make_form_finding(location.join("Arguments"), arguments, "an object")


def _check_name(name: Any, location: Location, shape: str) -> Iterator[Finding]:
    """Check a parameter's or step's name against the pattern and length of botocore's ``shape``."""
    body = load_service_shapes("sagemaker")[shape]
    # The pattern of botocore's shape would allow an empty name.
    if not isinstance(name, str) or not re.fullmatch(body["pattern"], name) or not name:
        yield _make_form_finding(
            location, name, "letters, digits, hyphens and underscores", "name", f"botocore: {shape}"
        )
    elif len(name) > body["max"]:
        expectation = f"at most {body['max']} characters"
        yield _make_form_finding(location, name, expectation, "name", f"botocore: {shape}")


def _make_form_finding(
    location: Location, value: Any, expectation: str, rule: str = "form", source: str = SDK_FORM
) -> Finding:
    """Return a finding that ``value`` is not what was expected."""
    problem = f"{shorten_repr(value)}, expected {expectation}"
    return location.make_error(
        rule, problem, reason=REFUSAL, fix=f"give {expectation}", source=source
    )


def _make_duplicate_finding(location: Location, noun: str, name: str) -> Finding:
    """Return a finding that a parameter's or step's name occurs twice."""
    return location.make_error(
        "duplicate-name",
        f"a second {noun} is called {name!r}",
        reason=f"{REFUSAL}: names of {noun}s are unique in a pipeline",
        fix="rename one of them",
        source="SDK 3.27: PipelineGraph",
    )


# Check names and lists in steps' Arguments: the steps of Cleanup, the entities of Lineage, and the
# items of ForEach.

ITEMS = (ANY, "string", "list")
MOST_ITEMS = 100  # MAX_LITERAL_ITERABLE_ITEMS of SDK 3.27
NOT_IN_A_LOOP = ["Condition", "Fail", "ForEach"]
KINDS = {
    "Action": ("Actions", "ActionName"),
    "Artifact": ("Artifacts", "ArtifactName"),
    "Context": ("Contexts", "ContextName"),
}
"""Mapping of a lineage entity's type to the argument that lists the entities to create, and to the
member of an entity that is its name."""


def check_special_step(step: Step, steps: dict[str, Step], document: Document) -> Iterator[Finding]:
    """Iterate over the findings in the arguments of a Cleanup, Lineage or ForEach step."""
    location = Location(step.name, step.path).join("Arguments")
    if step.type == "Cleanup":
        yield from _check_cleanup(step, steps, location)
    elif step.type == "Lineage":
        for index, association in enumerate(_get_list(step.arguments, "Associations")):
            for key in ("Source", "Destination"):
                end = association.get(key) if isinstance(association, dict) else None
                if isinstance(end, dict):
                    yield from _check_association_end(
                        end, step, location.join("Associations", index, key)
                    )
    elif step.type == "ForEach":
        yield from _check_loop(step, steps, location, document)


def _check_cleanup(step: Step, steps: dict[str, Step], location: Location) -> Iterator[Finding]:
    """Check that each step whose outputs a Cleanup step deletes exists and is in DependsOn."""
    resources = step.arguments.get("Resources")
    sources = resources.get("S3") if isinstance(resources, dict) else None
    waits = [
        entry.get("Step") if isinstance(entry, dict) else entry
        for entry in _get_list(step.document, "DependsOn")
    ]
    for index, source in enumerate(sources if isinstance(sources, list) else ()):
        name = source.get("StepName") if isinstance(source, dict) else None
        child = location.join("Resources", "S3", index, "StepName")
        if isinstance(name, str) and name not in steps:
            yield child.make_error(
                "unknown-step",
                f"there is no step {name!r}",
                reason="CreatePipeline refuses the definition: nothing to clean up",
                fix=suggest_name(name, list(steps)),
                source="SDK 3.27: S3CleanupSource",
            )
        elif isinstance(name, str) and name not in waits:
            yield child.make_error(
                "cleanup-order",
                f"the step does not wait for {name!r}, whose outputs it deletes",
                reason="only outputs of steps that have run can be deleted",
                fix=f"add {name!r} to DependsOn",
                source="SDK 3.27: CleanupStep",
            )


def _check_loop(
    step: Step, steps: dict[str, Step], location: Location, document: Document
) -> Iterator[Finding]:
    """Check a ForEach step: its items, the types of its body's steps, and its selector.

    The items must be a list, or an expression whose known values are JSON lists.
    """
    items = step.arguments.get("IterableItems")
    items_type = (
        infer_type(items, document, steps)
        if isinstance(items, dict) and is_expression(items)
        else None
    )
    fits = items_type.type in ITEMS if items_type else _has_permitted_length(items)
    # Every value that the parameter is known to take must be a JSON list of items.
    lists = all(
        _has_permitted_length(_parse_json(text))
        for text in (items_type.values if items_type else ())
    )
    if items is not None and not (fits and lists):
        subject = f"{shorten_repr(items)}{f' of type {items_type.type}' if items_type else ''}"
        yield location.join("IterableItems").make_error(
            "loop-items",
            f"{subject}: expected a String with a JSON list, or a list, of 1 to {MOST_ITEMS} items",
            reason=f"{REFUSAL}: there is nothing to iterate over",
            fix="refer to a String parameter with a JSON list, or write the items",
            source="SDK 3.27: ForEachStep._validate_iterable_items",
        )
    for index, body in enumerate(_get_list(step.arguments, "ForEachBody")):
        kind = body.get("Type") if isinstance(body, dict) else None
        if kind in NOT_IN_A_LOOP:
            yield location.join("ForEachBody", index, "Type").make_error(
                "loop-body",
                f"a {kind} step is not allowed in a loop's body",
                reason=REFUSAL,
                fix="move it after the loop",
                source="SDK 3.27: ForEachStep._validate_for_each_body",
            )
    selector = step.arguments.get("Selector")
    field = selector.get("Field") if isinstance(selector, dict) else None
    is_output = (
        isinstance(field, dict)
        and is_expression(field)
        and str(field.get("Get")).startswith("IterationOutput.")
    )
    if field is not None and not is_output:
        yield location.join("Selector", "Field").make_error(
            "loop-item",
            f"{shorten_repr(field)}: expected the output of a body step",
            reason=f"{REFUSAL}: other values are the same for every item",
            fix='write {"Get": "IterationOutput.<body step>.<property>"}',
            source="SDK 3.27: ForEachSelector",
        )


def _has_permitted_length(items: Any) -> bool:
    """Return whether ``items`` is a list with a permitted number of items."""
    return isinstance(items, list) and 1 <= len(items) <= MOST_ITEMS


def _parse_json(text: Any) -> Any:
    """Return the value of the JSON text; None if it is not JSON."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _check_association_end(end: dict, step: Step, location: Location) -> Iterator[Finding]:
    """Check one end of a Lineage association: either an ARN, or the name and type of an entity that
    the same step creates.
    """
    name, kind = end.get("Name"), end.get("Type")
    if ("Arn" in end) == ("Name" in end):
        yield location.make_error(
            "one-of",
            f"{shorten_repr(end)}: expected either Arn, or Name and Type",
            reason="the association cannot be created",
            fix="give Name and Type for an entity of this step, Arn for any other",
            source="SDK 3.27: LineageEntityReference",
        )
    elif isinstance(name, str) and isinstance(kind, str) and kind in KINDS:
        key, member = KINDS[kind]
        values = [e.get(member) for e in _get_list(step.arguments, key) if isinstance(e, dict)]
        names = [value for value in values if isinstance(value, str)]
        if name not in values and len(names) == len(values):
            yield location.make_error(
                "lineage-entity",
                f"this step creates no {kind} {name!r}",
                reason="the step fails: a name is looked up among the entities of the same step",
                fix=suggest_name(name, names),
                source="SDK 3.27: LineageStep._validate_sibling_references",
            )


def _get_list(holder: Any, key: str) -> list:
    value = holder.get(key)
    return value if isinstance(value, list) else []


PASSING = "developer guide: Pass Data Between Steps"


def check_property_files(step: Step) -> Iterator[Finding]:
    """Check that each property file has an output of the step, a unique name, a relative path."""
    config = step.arguments.get("ProcessingOutputConfig")
    outputs = config.get("Outputs") if isinstance(config, dict) else None
    names = (
        [o.get("OutputName") for o in outputs or [] if isinstance(o, dict)]
        if isinstance(outputs, list)
        else []
    )
    seen_names: set[str] = set()
    for index, file in enumerate(_list_property_files(step)):
        location = Location(step.name, step.path).join("PropertyFiles", index)
        output, name = file.get("OutputName"), file.get("PropertyFileName")
        if isinstance(output, str) and output not in names:
            yield location.join("OutputName").make_error(
                "property-file-output",
                f"step {step.name!r} has no output {output!r}",
                reason="the file is never found, and JsonGet fails after the job has run",
                fix=suggest_name(output, [str(n) for n in names]),
                source="SDK 3.27: Step._validate_json_get_property_file_reference",
            )
        if isinstance(name, str) and name in seen_names:
            yield location.join("PropertyFileName").make_error(
                "duplicate-name",
                f"a second property file is called {name!r}",
                reason=f"{REFUSAL}, or one of them is never read",
                fix="rename one of them",
                source=PASSING,
            )
        seen_names.add(str(name))
        path = file.get("FilePath")
        if isinstance(path, str) and (path.startswith(("/", "s3://")) or ".." in path.split("/")):
            yield location.join("FilePath").make_error(
                "property-file-path",
                f"{path!r}: expected a path relative to the output's folder",
                reason="the file is looked for under the output's S3 prefix and is not found",
                fix="write the file's name in the output's folder, such as evaluation.json",
                source=PASSING,
            )


def check_property_file(
    reference: Reference, target: Step, location: Location
) -> Iterator[Finding]:
    """Check that ``target`` has the property file that ``reference`` names."""
    if "PropertyFiles" not in get_step_type(target.type).fields:
        yield location.make_error(
            "property-file",
            f"step {target.name!r} is of type {target.type}, which has no property files",
            reason=f"{REFUSAL}: JsonGet reads the outputs of Processing steps",
            fix="refer to a Processing step",
            source="SDK 3.27: Step._validate_json_get_property_file_reference",
        )
        return
    files = [str(file.get("PropertyFileName")) for file in _list_property_files(target)]
    if reference.path not in files:
        yield location.make_error(
            "property-file",
            f"step {target.name!r} declares no property file {reference.path!r}",
            reason=REFUSAL,
            fix=suggest_name(reference.path, files) if files else "declare it in PropertyFiles",
            source="SDK 3.27: Step._validate_json_get_property_file_reference; #3642",
        )


def _list_property_files(step: Step) -> list[dict]:
    files = step.document.get("PropertyFiles")
    return [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
