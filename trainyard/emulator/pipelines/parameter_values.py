"""Pipeline parameters and their values in one execution, with the service's checks."""

from dataclasses import dataclass
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.language.expressions import Value
from trainyard.language.parameters import TYPES, UNTYPED, is_a, parse


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str
    default: Value | None = None
    values: tuple[Value, ...] = ()
    """EnumValues; empty when every value is allowed."""


def parse_parameter(entry: Any) -> Parameter:
    """Return the parameter of an entry of Parameters. Raises ``ValidationException``."""
    name = entry.get("Name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise _invalid(f"parameter {entry!r} has no Name")
    kind = entry.get("Type", UNTYPED)
    if kind not in list(TYPES):  # a list, since kind may be unhashable
        raise _invalid(f"parameter {name!r} has Type {kind!r}: expected one of {list(TYPES)}")
    parameter = Parameter(
        name, kind, entry.get("DefaultValue"), tuple(entry.get("EnumValues") or ())
    )
    if parameter.default is not None:
        _check_default(parameter, parameter.default)
    return parameter


def _check_default(parameter: Parameter, default: Value) -> None:
    if not is_a(default, parameter.type):
        raise _invalid(
            f"parameter {parameter.name!r}: DefaultValue {default!r} is not of type "
            f"{parameter.type}"
        )
    if parameter.values and default not in parameter.values:
        raise _invalid(_not_in(parameter, default))


def values(parameters: dict[str, Parameter], given: list[dict]) -> dict[str, Value]:
    """Return the values of an execution started with ``given``: a list of Name and Value, both
    text.

    Raises ``ValidationException`` for an unknown or repeated name, a value that does not fit its
    type, and a parameter with neither value nor default.
    """
    found: dict[str, Value] = {}
    for entry in given:
        name = entry["Name"]
        if name not in parameters:
            raise _invalid(f"unknown pipeline parameter {name!r}; there are {sorted(parameters)}")
        if name in found:
            raise _invalid(f"pipeline parameter {name!r} is given twice")
        if not entry["Value"]:
            raise _invalid('[string "" is too short (length: 0, required minimum: 1)]')
        found[name] = convert(parameters[name], entry["Value"])
    for parameter in parameters.values():
        if parameter.name not in found:
            if parameter.default is None:
                raise _invalid(f"pipeline parameter {parameter.name!r} needs a value")
            found[parameter.name] = parameter.default
    return {name: found[name] for name in parameters}


def convert(parameter: Parameter, text: str) -> Value:
    """Return ``text`` in the parameter's type. Raises ``ValidationException``."""
    try:
        value = parse(text, parameter.type)
    except ValueError as error:
        raise _invalid(f"pipeline parameter {parameter.name!r}: {error}") from None
    if parameter.values and value not in parameter.values:
        raise _invalid(_not_in(parameter, value))
    return value


def _not_in(parameter: Parameter, value: Value) -> str:
    return f"parameter {parameter.name!r}: {value!r} is not one of {list(parameter.values)}"


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
