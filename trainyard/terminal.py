"""Show a command line's output, and errors that the user can act on."""

import ast
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from typer.models import ArgumentInfo

from trainyard.common.errors import RecipeError, TrainyardError

ExecutionArgument = Annotated[
    str | None, typer.Argument(metavar="EXECUTION", help="The execution's ARN; else the newest.")
]
NewestOfPipeline = Annotated[
    str | None,
    typer.Option("--pipeline", metavar="NAME", help="The newest execution of this pipeline."),
]

# A table in a log must not cut names, as it would at 80, the default without a terminal.
LOG_COLUMNS = 160
# Soft wrapping: a log keeps an ARN on one line.
console = Console(soft_wrap=True, emoji=False)
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = LOG_COLUMNS
errors = Console(stderr=True, soft_wrap=True, emoji=False)


Values = Mapping[str, Any]
"""Name of an option's parameter → its value, as it was written."""


@dataclass(frozen=True, slots=True)
class Need:
    """Options of which a verb needs one, by the names of their parameters."""

    options: tuple[str, ...]
    condition: Callable[[Values], bool] = lambda values: True
    exclusive: bool = True
    """True if no two of them go together."""


def needs(*requirements: Need) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare what a verb needs beside its required options; ``run`` reports all that is missing at
    once.
    """

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        command.needs = requirements  # type: ignore[attr-defined]
        return command

    return declare


def extend_verb(
    command: Callable[..., None], extension: Callable[..., Values], *requirements: Need
) -> Callable[..., None]:
    """Return the verb with the further options of ``extension``, for an application's own subjects.

    ``extension`` is called with the values of all options, and its own; it returns arguments that
    take the place of the verb's, also of keyword-only ones, which users cannot give.
    ``requirements`` replace what the verb needs.
    """
    options, additions = _options(command), _options(extension)
    additions.pop("values")

    def main(**values: Any) -> None:
        replacements = extension(values, **{name: values[name] for name in additions})
        command(**{name: values[name] for name in options} | dict(replacements))

    return _with_options(
        main, {**additions, **options, **additions}, command, requirements or _needs(command)
    )


def run(
    command: Callable[..., None],
    name: str | None = None,
    arguments: Sequence[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Run a verb; a Trainyard error is shown as its message alone, with exit status 1.

    Users cannot give keyword-only parameters of ``command``. ``name`` and ``arguments`` are those
    of the process when not given; ``settings`` are click's of the command's context.
    """
    # Arguments may not be valid text: they are shown anyway.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if arguments is None else [*arguments]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    verb = typer_command(command)
    app.command(context_settings=settings)(verb if "--help" in words else _complete(verb))
    try:
        app(words, prog_name=name)
    except TrainyardError as error:
        # Else the terminal's library would read brackets as markup.
        text = str(error).replace("[", r"\[")
        errors.print(f"[bold red]error:[/] {text}", highlight=False)
        sys.exit(1)


def typer_command(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb as typer takes it: without keyword-only parameters, required ones first."""
    return _with_options(command, _options(command), command, _needs(command))


def _needs(command: Callable[..., None]) -> Sequence[Need]:
    return getattr(command, "needs", ())


def _options(command: Callable[..., Any]) -> dict[str, Parameter]:
    parameters = signature(command).parameters.items()
    return {
        name: parameter
        for name, parameter in parameters
        if parameter.kind is not Parameter.KEYWORD_ONLY
    }


def _with_options(
    call: Callable[..., None],
    options: Mapping[str, Parameter],
    command: Callable[..., None],
    requirements: Sequence[Need],
) -> Callable[..., None]:
    """Return ``call`` as a function of these options, described as ``command`` is."""
    order = sorted(options.values(), key=lambda option: option.default is not Parameter.empty)
    form = Signature([option.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for option in order])

    @wraps(command)
    def main(*positional: Any, **keywords: Any) -> None:
        arguments = form.bind(*positional, **keywords)
        arguments.apply_defaults()
        call(**arguments.arguments)

    main.__signature__ = form  # type: ignore[attr-defined]
    main.__annotations__ = {option.name: option.annotation for option in order}
    main.needs = requirements  # type: ignore[attr-defined]
    return main


def _complete(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with nothing required: it names all that is missing, where click stops at the
    first.
    """
    options = _options(command)

    def check_and_call(**values: Any) -> None:
        if lines := missing_lines(command, values):
            fault = "missing" if all(" is missing" in line for line in lines) else "wrong"
            head = [f"{len(lines)} things are {fault}:"] if len(lines) > 1 else []
            raise RecipeError("\n  ".join([*head, *lines]))
        command(**values)

    optional = {
        name: option.replace(default=None) if option.default is Parameter.empty else option
        for name, option in options.items()
    }
    return _with_options(check_and_call, optional, command, ())


def has_value(value: Any) -> bool:
    """Return whether an option stands on the command line: a number is a value, also 0."""
    return value is not None and value is not False and value not in ("", (), [])


def missing_lines(command: Callable[..., None], values: Values) -> list[str]:
    """Return a line about each thing that a verb needs and these values of its options lack."""
    options = _options(command)
    required_options = [
        name for name, option in options.items() if option.default is Parameter.empty
    ]
    requirements = [*(Need((name,)) for name in required_options), *_needs(command)]
    return [line for need in requirements if (line := _missing_line(need, values, options))]


def _missing_line(need: Need, values: Values, options: Mapping[str, Parameter]) -> str | None:
    """Return a line about what is missing; None if the command line has what is needed."""
    entries = [name for name in need.options if has_value(values[name])]
    if not need.condition(values) or len(entries) == 1 or (entries and not need.exclusive):
        return None
    forms = [_option_form(options[name]) for name in need.options]
    if entries:
        return f"only one of {', '.join(forms)} can be given"
    purpose = (_declaration(options[need.options[0]]).help or "") if len(forms) == 1 else ""
    return f"{' or '.join(forms)} is missing{purpose and f' ({purpose})'}"


def _declaration(option: Parameter) -> Any:
    """Return typer's declaration of an option or argument."""
    return option.annotation.__metadata__[0]


def _option_form(option: Parameter) -> str:
    """Return an option or argument as a command line has it: ``--as cloudformation|terraform``."""
    declaration, kind = _declaration(option), option.annotation.__origin__
    kinds = [part for part in get_args(kind) if part is not type(None)] or [kind]
    enum = kinds[0] if isinstance(kinds[0], type) and issubclass(kinds[0], Enum) else None
    choices = "|".join(str(member.value) for member in enum) if enum else ""
    value = choices or declaration.metavar or KINDS.get(kinds[0], "VALUE")
    if isinstance(declaration, ArgumentInfo):
        return value if declaration.metavar else option.name.upper()
    words = [declaration.default, *(declaration.param_decls or ())]
    flags = [word for word in words if isinstance(word, str) and word.startswith("--")]
    flag = flags[0] if flags else "--" + option.name.replace("_", "-")
    if kinds[0] is bool:
        return flag
    return f"{flag} {value}"


KINDS: Mapping[Any, str] = {Path: "FILE", int: "NUMBER", float: "NUMBER", str: "TEXT"}
"""Type of an option's value → the word for it where none is declared."""


def pairs(option: str, assignments: Sequence[str]) -> dict[str, str]:
    """Parse a repeated option ``NAME=VALUE``.

    Raises:
        RecipeError: one is not of that form.
    """
    values = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RecipeError(f"{option} {text}: must be NAME=VALUE")
        values[name] = value
    return values


def list_verbs(call: str, files: Mapping[str, Path]) -> None:
    """Print each verb with the first line of its module, without importing the module.

    ``call`` is how a verb is run; ``files`` are the verbs' modules.
    """
    console.print(f"{call} ...; {call} --help says more\n", markup=False, highlight=False)
    width = max(map(len, files))
    for verb, file in files.items():
        source = file.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        console.print(f"  {verb:<{width}}  {about}", markup=False, highlight=False)


def refuse_place(out: Path) -> None:
    """Check that a file can be written there, before the work that takes time.

    Raises:
        RecipeError: it cannot be written.
    """
    try:
        wrong = "it is a folder" if out.is_dir() else ""
        if not out.parent.is_dir():
            wrong = f"there is no folder {out.parent}"
    except (OSError, ValueError) as error:
        # The name is too long, or invalid.
        wrong = str(error)
    if wrong:
        raise RecipeError(f"--out {out}: {wrong}; name a file in a folder that exists")
