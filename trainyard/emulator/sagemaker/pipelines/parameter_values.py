"""Pipeline parameters and their values in one execution, with the service's checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.request_scope import ApiError
from trainyard.language.expressions import DEFAULT_TYPE, Value, parse


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str
    default: Value | None = None
    values: tuple[Value, ...] = ()
    """EnumValues; empty when every value is allowed."""


def parse_parameter(entry: Mapping[str, Any]) -> Parameter:
    """Return the parameter of an entry of Parameters."""
    values = tuple(entry.get("EnumValues") or ())
    return Parameter(
        entry["Name"], entry.get("Type", DEFAULT_TYPE), entry.get("DefaultValue"), values
    )


def values(parameters: dict[str, Parameter], entries: list[dict]) -> dict[str, Value]:
    """Return the values of an execution started with ``entries``: a list of Name and Value, both
    text.

    Raises ``ValidationException`` for an unknown or repeated name, a value that does not fit its
    type, and a parameter with neither value nor default.
    """
    result: dict[str, Value] = {}
    for entry in entries:
        name = entry["Name"]
        if name not in parameters:
            raise _invalid(f"unknown pipeline parameter {name!r}; there are {sorted(parameters)}")
        if name in result:
            raise _invalid(f"pipeline parameter {name!r} is given twice")
        if not entry["Value"]:
            raise _invalid('[string "" is too short (length: 0, required minimum: 1)]')
        result[name] = convert(parameters[name], entry["Value"])
    for parameter in parameters.values():
        if parameter.name not in result:
            if parameter.default is None:
                raise _invalid(f"pipeline parameter {parameter.name!r} needs a value")
            result[parameter.name] = parameter.default
    # In the definition's order, not the request's.
    return {name: result[name] for name in parameters}


def convert(parameter: Parameter, text: str) -> Value:
    """Return ``text`` in the parameter's type. Raises ``ValidationException``."""
    try:
        value = parse(text, parameter.type)
    except ValueError as error:
        raise _invalid(f"pipeline parameter {parameter.name!r}: {error}") from None
    if parameter.values and value not in parameter.values:
        raise _invalid(
            f"parameter {parameter.name!r}: {value!r} is not one of {list(parameter.values)}"
        )
    return value


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
