"""Output parameters of Lambda and Callback steps: declared, noted as text, read in their type."""

import json
from collections.abc import Iterable
from typing import Any

from trainyard.emulator.pipelines.steps.runner import StepFailed
from trainyard.language.parameters import parse

LONGEST = 1024  # characters of a value in a step's Metadata


def noted(declared: Iterable[dict], given: Any, giver: str) -> list[dict[str, str]]:
    """Return the declared parts of ``given`` as Metadata have them: ``[{"Name": ..., "Value":
    text}]``.

    Raises:
        StepFailed: ``given`` is not an object, lacks an output, or has one of another type.
    """
    if not isinstance(given, dict):
        if not declared:
            return []
        raise StepFailed(f"ClientError: {giver} returned {_short(given)}, expected a JSON object")
    return [{"Name": each["OutputName"], "Value": _value(each, given, giver)} for each in declared]


def described(made: dict[str, Any]) -> dict[str, Any]:
    """Return the step's properties; values are text until :func:`typed` reads them."""
    outputs = made.get("OutputParameters", [])
    return made | {"OutputParameters": {each["Name"]: each["Value"] for each in outputs}}


def typed(declared: Iterable[dict], properties: dict[str, Any]) -> dict[str, Any]:
    """Return ``properties`` with each output parameter in the type that the step declares."""
    types = {each["OutputName"]: each.get("OutputType", "String") for each in declared}
    outputs = properties["OutputParameters"].items()
    read = {name: parse(text, types.get(name, "String")) for name, text in outputs}
    return properties | {"OutputParameters": read}


def _value(declared: dict, given: dict, giver: str) -> str:
    name, kind = declared["OutputName"], declared.get("OutputType", "String")
    if name not in given:
        message = f"{giver} returned no output {name!r}; it returned {sorted(given)}"
        raise StepFailed(f"ClientError: {message}")
    value = given[name]
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        parse(text, kind)
    except ValueError:
        message = (
            f"{giver} returned {_short(value)} as output {name!r}, which is not of type {kind}"
        )
        raise StepFailed(f"ClientError: {message}") from None
    if len(text) > LONGEST:
        message = f"output {name!r} of {giver} has {len(text)} characters; {LONGEST} are allowed"
        raise StepFailed(f"ClientError: {message}")
    return text


def _short(value: Any) -> str:
    return json.dumps(value)[:80]
