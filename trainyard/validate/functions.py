"""The form of ``Std:Join`` and ``Std:JsonGet``."""

import re
from collections.abc import Iterator
from typing import Any

from trainyard.language.expressions import GET, JOIN, JSON_GET, ExpressionError, split_path
from trainyard.validate.findings import Finding
from trainyard.validate.location import REFUSED, Place, brief, suggestion

PASSING = "developer guide: Pass Data Between Steps"


def join(body: Any, place: Place) -> Iterator[Finding]:
    """What is wrong with the body of a ``Std:Join``."""
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
            yield odd_member(place.at(key), JOIN, key, ["On", "Values"])
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


def odd_member(
    place: Place, what: str, key: str, valid: list[str], known_from: str = "SDK 3.27: functions"
) -> Finding:
    """``what``, such as a function or a dependency, has a member that nobody knows."""
    return place.error(
        "unknown-member",
        f"{what} has no member {key!r}",
        why=f"{REFUSED}: unknown property",
        fix=suggestion(key, valid),
        source=f"{known_from}; the service's message in #2746",
    )


def json_get(body: Any, place: Place) -> Iterator[Finding]:
    """What is wrong with the body of a ``Std:JsonGet``."""
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
            yield odd_member(place.at(key), JSON_GET, key, list(members))
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
