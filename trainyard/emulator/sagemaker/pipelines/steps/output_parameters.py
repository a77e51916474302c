"""Output parameters of Lambda and Callback steps: declared, noted as text, read in their type."""

import json
from collections.abc import Iterable
from typing import Any

from trainyard.emulator.sagemaker.pipelines.steps.runner import StepFailed
from trainyard.language.expressions import parse

LONGEST = 1024  # characters of a value in a step's Metadata


def read_outputs(declarations: Iterable[dict], outputs: Any, giver: str) -> list[dict[str, str]]:
    """Return the declared parts of ``outputs`` as Metadata have them: ``[{"Name": ..., "Value":
    text}]``.

    Raises:
        StepFailed: ``outputs`` is not an object, lacks an output, or has one of another type.
    """
    if not isinstance(outputs, dict):
        if not declarations:
            return []
        raise StepFailed(f"ClientError: {giver} returned {_short(outputs)}, expected a JSON object")
    return [
        {"Name": declaration["OutputName"], "Value": _value(declaration, outputs, giver)}
        for declaration in declarations
    ]


def describe_outputs(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the step's properties; values are text until :func:`typed` reads them."""
    outputs = metadata.get("OutputParameters", [])
    return metadata | {"OutputParameters": {output["Name"]: output["Value"] for output in outputs}}


def parse_outputs(declarations: Iterable[dict], properties: dict[str, Any]) -> dict[str, Any]:
    """Return ``properties`` with each output parameter in the type that the step declares."""
    types = {
        declaration["OutputName"]: declaration.get("OutputType", "String")
        for declaration in declarations
    }
    outputs = properties["OutputParameters"].items()
    read = {name: parse(text, types.get(name, "String")) for name, text in outputs}
    return properties | {"OutputParameters": read}


def _value(declaration: dict, outputs: dict, giver: str) -> str:
    name, kind = declaration["OutputName"], declaration.get("OutputType", "String")
    if name not in outputs:
        message = f"{giver} returned no output {name!r}; it returned {sorted(outputs)}"
        raise StepFailed(f"ClientError: {message}")
    value = outputs[name]
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
