"""References: what they name exists, may be had there, and nothing waits for itself."""

import re
from collections.abc import Iterator
from typing import Any

from language.expressions import (
    EXECUTION_VARIABLES,
    GET,
    JOIN,
    JSON_GET,
    ExpressionError,
    Reference,
    split_path,
)
from pipelines.validate import names
from pipelines.validate.document import Document, Step
from pipelines.validate.expressions import LOOP_ITEM, LOOP_OUTPUT, parse, walk
from pipelines.validate.findings import Finding
from pipelines.validate.place import Place, brief, suggestion
from pipelines.validate.properties import PropertyError, find

REFUSED = "CreatePipeline refuses the definition"
TRIGGERS = ("Completed", "Failed", "Stopped", "Any")
DEFINITION = "SDK 3.27: Pipeline.definition"
PASSING = "developer guide: Pass Data Between Steps"


def findings(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """What is wrong with expressions and with the order of the steps."""
    used: set[str] = set()
    for expression, place, step in expressions(document):
        yield from _expression(expression, place, step, document, steps, used)
    for step in document.steps:
        yield from _depends_on(step, steps)
        yield from _property_files(step)
        yield from names.findings(step, steps)
    yield from _cycles(document, steps)
    yield from _unused(document, used)


def expressions(document: Document) -> Iterator[tuple[dict, Place, Step | None]]:
    """Every expression of the definition, with its place and the step that it stands in."""
    for key in ("PipelineExperimentConfig", "MlflowConfig"):
        for expression, place in walk(document.document.get(key), Place(None, f"$.{key}")):
            yield expression, place, None
    for step in document.steps:
        place = Place(step.name, step.path)
        fields = {k: v for k, v in step.document.items() if k not in ("Arguments", "Name", "Type")}
        for expression, there in walk(fields, place):
            yield expression, there, step
        for expression, there in walk(step.own_arguments, place.at("Arguments")):
            yield expression, there, step


def _expression(
    expression: dict,
    place: Place,
    step: Step | None,
    document: Document,
    steps: dict[str, Step],
    used: set[str],
) -> Iterator[Finding]:
    if JOIN in expression:
        yield from _join(expression[JOIN], place.at(JOIN))
    elif JSON_GET in expression:
        yield from _json_get(expression[JSON_GET], place.at(JSON_GET))
    else:
        try:
            reference = parse(expression[GET])
        except ExpressionError as error:
            yield _malformed(place, expression[GET], error)
            return
        if reference.kind == "Parameters":
            used.add(reference.name)
        yield from _reference(reference, place, step, document, steps)


def _malformed(place: Place, text: Any, error: ExpressionError) -> Finding:
    prefix, _, rest = str(text).partition(".")
    fix = suggestion(prefix, ["Parameters", "Execution", "Steps"])
    if prefix == "Execution":
        fix = suggestion(rest, list(EXECUTION_VARIABLES))
    return place.error(
        "expression",
        str(error),
        why=REFUSED,
        fix=fix,
        source="SDK 3.27: ExecutionVariables, Parameter, Properties",
    )


def _reference(
    reference: Reference,
    place: Place,
    step: Step | None,
    document: Document,
    steps: dict[str, Step],
) -> Iterator[Finding]:
    if reference.kind == "Parameters":
        if reference.name not in document.parameters:
            yield _missing(place, "parameter", reference.name, list(document.parameters))
    elif reference.kind == LOOP_ITEM:
        yield from _loop_item(place, step)
    elif reference.kind == LOOP_OUTPUT:
        yield from _loop_output(reference, place, step, steps)
    elif reference.kind in ("Steps", "PropertyFiles"):
        yield from _step_reference(reference, place, step, steps)


def _step_reference(
    reference: Reference, place: Place, step: Step | None, steps: dict[str, Step]
) -> Iterator[Finding]:
    target = steps.get(reference.name)
    if target is None:
        yield _missing(place, "step", reference.name, list(steps))
        return
    if step is not None:
        yield from _reachable(step, target, place)
    if reference.kind == "PropertyFiles":
        yield from _declared_file(reference, target, place)
        return
    try:
        find(target, split_path(reference.path), steps)
    except PropertyError as error:
        yield place.error(
            "property",
            f"{brief(reference.path)}: {error}",
            why="CreatePipeline refuses the definition, or the step fails when it starts",
            fix=error.fix,
            source=_property_source(target),
        )


def _property_source(target: Step) -> str:
    return f"{PASSING}; the Describe answer of a {target.type} step in botocore's model"


def _missing(place: Place, what: str, name: str, valid: list[str]) -> Finding:
    return place.error(
        f"unknown-{what}",
        f"there is no {what} {name!r}",
        why=f"{REFUSED}: a reference to nothing",
        fix=suggestion(name, valid),
        source=DEFINITION,
    )


def _reachable(step: Step, target: Step, place: Place) -> Iterator[Finding]:
    """Whether ``target`` has run whenever ``step`` runs."""
    if target.branch is None or step.branch == target.branch:
        return
    condition, outcome = target.branch
    if step.branch and step.branch[0] == condition:
        yield place.error(
            "other-branch",
            f"step {step.name!r} runs when {condition!r} is {not outcome}, "
            f"step {target.name!r} when it is {outcome}: never both",
            why="the step waits for one that is never run",
            fix="refer to a step before the condition, or move one of them to the same branch",
            source="#3565; developer guide: Condition step",
        )
    elif step.name != condition:  # a condition that waits for its own branch: a cycle
        yield place.warning(
            "may-not-run",
            f"step {target.name!r} runs only when {condition!r} is {outcome}, "
            f"step {step.name!r} stands outside that branch",
            why="when the other branch is taken, this step is not run either",
            fix=f"move {step.name!r} into the branch if it belongs there",
            source="#3565",
        )


def _declared_file(reference: Reference, target: Step, place: Place) -> Iterator[Finding]:
    if target.type != "Processing":
        yield place.error(
            "property-file",
            f"step {target.name!r} is of type {target.type}, which has no property files",
            why=f"{REFUSED}: JsonGet reads the outputs of Processing steps",
            fix="refer to a Processing step",
            source="SDK 3.27: Step._validate_json_get_property_file_reference",
        )
        return
    files = [str(file.get("PropertyFileName")) for file in _files(target)]
    if reference.path not in files:
        yield place.error(
            "property-file",
            f"step {target.name!r} declares no property file {reference.path!r}",
            why=REFUSED,
            fix=suggestion(reference.path, files) if files else "declare it in PropertyFiles",
            source="SDK 3.27: Step._validate_json_get_property_file_reference; #3642",
        )


def _files(step: Step) -> list[dict]:
    files = step.document.get("PropertyFiles")
    return [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []


def _property_files(step: Step) -> Iterator[Finding]:
    """Each names an output that the step has, and has a name of its own."""
    config = step.arguments.get("ProcessingOutputConfig")
    outputs = config.get("Outputs") if isinstance(config, dict) else None
    names = (
        [o.get("OutputName") for o in outputs or [] if isinstance(o, dict)]
        if isinstance(outputs, list)
        else []
    )
    seen: set[str] = set()
    for index, file in enumerate(_files(step)):
        place = Place(step.name, step.path).at("PropertyFiles", index)
        output, name = file.get("OutputName"), file.get("PropertyFileName")
        if isinstance(output, str) and output not in names:
            yield place.at("OutputName").error(
                "property-file-output",
                f"step {step.name!r} has no output {output!r}",
                why="the file is never found, and JsonGet fails after the job has run",
                fix=suggestion(output, [str(n) for n in names]),
                source="SDK 3.27: Step._validate_json_get_property_file_reference",
            )
        if isinstance(name, str) and name in seen:
            yield place.at("PropertyFileName").error(
                "duplicate-name",
                f"a second property file is called {name!r}",
                why=f"{REFUSED}, or one of them is never read",
                fix="rename one of them",
                source=PASSING,
            )
        seen.add(str(name))
        yield from _file_path(file.get("FilePath"), place.at("FilePath"))


def _file_path(path: Any, place: Place) -> Iterator[Finding]:
    if isinstance(path, str) and (path.startswith(("/", "s3://")) or ".." in path.split("/")):
        yield place.error(
            "property-file-path",
            f"{path!r}: expected a path relative to the output's folder",
            why="the file is looked for under the output's S3 prefix and is not found",
            fix="write the file's name in the output's folder, such as evaluation.json",
            source=PASSING,
        )


def _join(body: Any, place: Place) -> Iterator[Finding]:
    values = body.get("Values") if isinstance(body, dict) else None
    if not isinstance(values, list):
        yield place.error(
            "expression",
            f"{brief(body)}: expected On and a list of Values",
            why=REFUSED,
            fix='{"Std:Join": {"On": "/", "Values": […]}}',
            source="SDK 3.27: Join",
        )
        return
    for key in body:
        if key not in ("On", "Values"):
            yield _odd_member(place.at(key), JOIN, key, ["On", "Values"])
    if not isinstance(body.get("On", ""), str):
        yield _no_text(place.at("On"), body["On"])
    for index, value in enumerate(values):
        if value is None or isinstance(value, list) or _is_object(value):
            yield place.at("Values", index).error(
                "join-values",
                f"{brief(value)}: expected text, a number, true or false, or an expression",
                why="the step fails when the text is put together",
                fix="join scalar values only",
                source="SDK 3.27: Join",
            )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not (len(value) == 1 and set(value) <= {GET, JOIN, JSON_GET})


def _no_text(place: Place, value: Any) -> Finding:
    return place.error(
        "expression",
        f"{brief(value)} is no text: an expression cannot stand here",
        why=f"{REFUSED}: it is read before any expression has a value",
        fix="write constant text",
        source="#3463 #4418",
    )


def _odd_member(place: Place, what: str, key: str, valid: list[str]) -> Finding:
    return place.error(
        "unknown-member",
        f"{what} has no member {key!r}",
        why=f"{REFUSED}: unknown property",
        fix=suggestion(key, valid),
        source="SDK 3.27: functions; the service's message in #2746",
    )


def _json_get(body: Any, place: Place) -> Iterator[Finding]:
    members = ("PropertyFile", "S3Uri", "Path")
    if not isinstance(body, dict) or ("PropertyFile" in body) == ("S3Uri" in body):
        yield place.error(
            "expression",
            f"{brief(body)}: expected Path, and either PropertyFile or S3Uri",
            why=REFUSED,
            fix='write {"PropertyFile": {"Get": "Steps.X.PropertyFiles.Y"}, "Path": "a.b"}',
            source="SDK 3.27: JsonGet",
        )
        return
    for key in body:
        if key not in members:
            yield _odd_member(place.at(key), JSON_GET, key, list(members))
    yield from _json_path(body.get("Path"), place.at("Path"))
    file = body.get("PropertyFile")
    text = file.get(GET) if isinstance(file, dict) else None
    if "PropertyFile" in body and not re.fullmatch(r"Steps\.[^.]+\.PropertyFiles\..+", str(text)):
        yield place.at("PropertyFile").error(
            "expression",
            f'{brief(file)}: expected {{"Get": "Steps.<step>.PropertyFiles.<name>"}}',
            why=REFUSED,
            fix="name the step and its property file",
            source="SDK 3.27: JsonGet",
        )


def _json_path(path: Any, place: Place) -> Iterator[Finding]:
    if not isinstance(path, str):
        yield _no_text(place, path)
        return
    try:
        split_path(path)
    except ExpressionError as error:
        yield place.error(
            "json-path",
            str(error),
            why="the value is not found, and the step fails after the job has run",
            fix="write members and indices only, such as metrics.accuracy.value or runs[0].loss",
            source=PASSING,
        )


def _loop_item(place: Place, step: Step | None) -> Iterator[Finding]:
    if step is None or step.loop is None:
        yield place.error(
            "loop-item",
            "ForEach.CurrentItem outside the body of a ForEach step",
            why=f"{REFUSED}: there is no current item",
            fix="use it in a step of ForEachBody",
            source="SDK 3.27: CurrentItem",
        )


def _loop_output(
    reference: Reference, place: Place, step: Step | None, steps: dict[str, Step]
) -> Iterator[Finding]:
    inside = [other.name for other in steps.values() if step and other.loop == step.name]
    if reference.name not in inside:
        yield place.error(
            "loop-item",
            f"IterationOutput of {reference.name!r}, which is no body step here",
            why=f"{REFUSED}: a selector compares what the body's steps give",
            fix=suggestion(reference.name, inside),
            source="SDK 3.27: ForEachSelector",
        )


def _depends_on(step: Step, steps: dict[str, Step]) -> Iterator[Finding]:
    entries = step.document.get("DependsOn")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        place = Place(step.name, step.path).at("DependsOn", index)
        name = entry.get("Step") if isinstance(entry, dict) else entry
        yield from _dependency_form(entry, place)
        if not isinstance(name, str):
            continue
        target = steps.get(name)
        if target is None:
            yield _missing(place, "step", name, list(steps))
        elif target.type == "Fail":
            yield place.error(
                "after-fail",
                f"step {name!r} is a Fail step: nothing runs after it",
                why="a Fail step ends the run",
                fix="depend on the step before it",
                source="SDK 3.27: FailStep is a terminal step",
            )
        else:
            yield from _reachable(step, target, place)


def _dependency_form(entry: Any, place: Place) -> Iterator[Finding]:
    if isinstance(entry, str):
        return
    if not isinstance(entry, dict) or not isinstance(entry.get("Step"), str):
        yield place.error(
            "depends-on",
            f"{brief(entry)}: expected a step's name, or Step and Trigger",
            why=REFUSED,
            fix="give the step's name",
            source="SDK 3.27: StepDependency",
        )
        return
    for key in entry:
        if key not in ("Step", "Trigger"):
            yield _odd_member(place.at(key), "DependsOn", key, ["Step", "Trigger"])
    if entry.get("Trigger") not in TRIGGERS:
        yield place.at("Trigger").error(
            "depends-on",
            f"{brief(entry.get('Trigger'))} is no trigger",
            why=REFUSED,
            fix=suggestion(entry.get("Trigger"), list(TRIGGERS)),
            source="SDK 3.27: TriggerCondition",
        )


def waits_for(document: Document) -> dict[str, list[str]]:
    """Step → the steps that must have ended before it starts, its condition among them."""
    waits: dict[str, list[str]] = {step.name: [] for step in document.steps}
    for step in document.steps:
        entries = step.document.get("DependsOn")
        names = (
            [e.get("Step") if isinstance(e, dict) else e for e in entries or []]
            if isinstance(entries, list)
            else []
        )
        holders = [step.branch[0] if step.branch else None, step.loop]
        waits[step.name] += [n for n in (*names, *holders) if isinstance(n, str) and n in waits]
    for expression, _, step in expressions(document):
        name = _referred(expression)
        if step is not None and name in waits:
            waits[step.name].append(name)
    return waits


def _referred(expression: dict) -> str | None:
    try:
        reference = parse(expression[GET]) if GET in expression else None
    except ExpressionError:
        return None
    return reference.name if reference and reference.kind in ("Steps", "PropertyFiles") else None


def _cycles(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    waits = waits_for(document)
    done: set[str] = set()
    for name in waits:
        if cycle := _cycle(name, waits, done):
            step = steps[cycle[0]]
            yield Place(step.name, step.path).error(
                "cycle",
                f"the step waits for itself: {' → '.join(cycle)}",
                why=f"{REFUSED}: steps must have an order",
                fix=f"remove the reference or DependsOn from {cycle[-2]!r} to {cycle[0]!r}",
                source="developer guide: Pipelines overview (a directed acyclic graph)",
            )


def _cycle(start: str, waits: dict[str, list[str]], done: set[str]) -> list[str] | None:
    """The first cycle that is reached from ``start``; without recursion, for long chains."""
    stack = [(start, iter(waits[start]))]
    path = [start]
    if start in done:
        return None
    while stack:
        name, rest = stack[-1]
        other = next((n for n in rest if n not in done), None)
        if other is None:
            done.add(name)
            stack.pop()
            path.pop()
        elif other in path:
            done.update(path)
            return [*path[path.index(other) :], other]
        else:
            stack.append((other, iter(waits[other])))
            path.append(other)
    return None


def _unused(document: Document, used: set[str]) -> Iterator[Finding]:
    entries = document.document.get("Parameters")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = entry.get("Name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name not in used:
            yield Place(None, f"$.Parameters[{index}]").warning(
                "unused-parameter",
                f"nothing refers to parameter {name!r}",
                why="who sets it at a start changes nothing",
                fix="refer to it where it was meant to be used, or remove it",
                source="definition",
            )
