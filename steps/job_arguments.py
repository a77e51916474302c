"""Pass a job's settings on its command line: the step writes them, the job reads them.

Both are derived from the fields of one model, in a module that is sent with the job, so that a new
field of a recipe is declared only once. (The gate, whose image has no pydantic, does the same with
``conditions.check_table``.)
"""

import argparse
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """Settings from outside: unknown fields are errors, and the values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Kind = TypeVar("Kind", bound=BaseModel)


def format_arguments(settings: BaseModel, kind: type[BaseModel]) -> list[str]:
    """Return the words ``--name value …`` for each field of ``kind``, with values of ``settings``.

    None, False and an empty tuple are left out if they are the default.
    """
    result: list[str] = []
    for name, field in kind.model_fields.items():
        value = getattr(settings, name)
        if value == field.default and value in (None, False, ()):
            continue
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        result += [f"--{name}", *map(str, values)]
    return result


def add_options(parser: argparse.ArgumentParser, kind: type[BaseModel]) -> None:
    """Add an option to the parser for each field of ``kind``; its values are parsed as strings."""
    for name, field in kind.model_fields.items():
        options: dict[str, Any] = {"help": (field.description or "").replace("%", "%%")}
        if field.annotation is bool:
            options |= {"nargs": "?", "const": "true"}
        elif _may_be_tuple(field.annotation):
            options |= {"nargs": "*"}
        parser.add_argument(f"--{name}", **options)


def parse_typed_arguments(
    parser: argparse.ArgumentParser, arguments: list[str], kind: type[BaseModel]
) -> argparse.Namespace:
    """Parse the arguments, including the fields of ``kind``, which are typed as in JSON.

    A wrong argument ends the process, as in argparse.
    """
    add_options(parser, kind)
    options = parser.parse_args(arguments)
    try:
        vars(options).update(read_typed_settings(options, kind).model_dump(mode="json"))
    except ValueError as error:
        parser.error(str(error))
    return options


def read_typed_settings(
    options: argparse.Namespace, kind: type[Kind], label: str = "argument"
) -> Kind:
    """Return the options that are fields of ``kind`` as an instance of it, with their types.

    ``label``: word for a setting in messages.

    Raises:
        ValueError: a setting is wrong or missing; names it, its value and what was expected.
    """
    values = {name: getattr(options, name) for name in kind.model_fields}
    try:
        return kind.model_validate({n: value for n, value in values.items() if value is not None})
    except ValidationError as error:
        raise ValueError(
            "\n".join(_describe_problem(problem, label) for problem in error.errors())
        ) from None


def _may_be_tuple(annotation: Any) -> bool:
    """Return whether values of this type may be tuples."""
    return any(get_origin(t) is tuple for t in (annotation, *getattr(annotation, "__args__", ())))


def _describe_problem(problem: Any, label: str) -> str:
    """Return the message for one of pydantic's errors; ``label``: word for a setting in it."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return f"{label}s: {message}"
    name = problem["loc"][0]
    if problem["type"] == "missing":
        return f"{label} {name}: is missing; add --{name}"
    return f"{label} {name}: is {problem['input']!r}; expected: {message}"
