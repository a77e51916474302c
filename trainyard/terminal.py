"""Run a command of the command line, and show its output and the errors that the user can fix.

A "verb" is a function that is run as a command, such as ``trainyard run``: typer turns its
parameters into options.
"""

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

# Width of output that is not for a terminal. At rich's default of 80 columns, tables in a log would
# cut names.
LOG_COLUMNS = 160
# With soft wrapping, an ARN stays on one line in a log.
console = Console(soft_wrap=True, emoji=False)
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = LOG_COLUMNS
errors = Console(stderr=True, soft_wrap=True, emoji=False)


Values = Mapping[str, Any]
"""Mapping of an option's parameter name to its value as given on the command line."""


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement of a verb: one of several options must be given."""

    options: tuple[str, ...]
    """Names of the options' parameters."""

    condition: Callable[[Values], bool] = lambda values: True
    exclusive: bool = True
    """True if at most one of the options may be given."""


def needs(*requirements: Need) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a verb with requirements in addition to its required options.

    ``run`` checks them, and reports everything that is missing in one message.
    """

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        command.needs = requirements  # type: ignore[attr-defined]
        return command

    return declare


def extend_verb(
    command: Callable[..., None], extension: Callable[..., Values], *requirements: Need
) -> Callable[..., None]:
    """Return the verb with additional options, which an application that builds on it needs.

    Args:
        command: the verb.
        extension: function whose parameters, apart from ``values``, are the additional options. It
            is called with the values of all options (``values``) and with those of its own. It
            returns arguments that replace the verb's arguments; they may include keyword-only
            ones, which users cannot give.
        requirements: replace the verb's own requirements if there are any.
    """
    options, additions = _list_options(command), _list_options(extension)
    additions.pop("values")

    def main(**values: Any) -> None:
        """Run the verb with the arguments that the extension replaces or adds."""
        replacements = extension(values, **{name: values[name] for name in additions})
        command(**{name: values[name] for name in options} | dict(replacements))

    return _make_verb(
        main,
        {**additions, **options, **additions},
        command,
        requirements or _get_requirements(command),
    )


def run(
    command: Callable[..., None],
    name: str | None = None,
    arguments: Sequence[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Run a verb as the process's command; on a TrainyardError, print its message and exit with 1.

    Args:
        command: the verb. Users cannot give its keyword-only parameters.
        name: program name for the help; that of the process if None.
        arguments: command-line arguments; those of the process if None.
        settings: click's ``context_settings``.
    """
    # Arguments may contain bytes that are not valid text: they are printed with escapes.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if arguments is None else [*arguments]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    verb = make_typer_command(command)
    app.command(context_settings=settings)(verb if "--help" in words else _report_all_missing(verb))
    try:
        app(words, prog_name=name)
    except TrainyardError as error:
        # Without the backslash, rich would read the brackets as markup.
        text = str(error).replace("[", r"\[")
        errors.print(f"[bold red]error:[/] {text}", highlight=False)
        sys.exit(1)


def make_typer_command(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb in the form that typer expects: without keyword-only parameters, required
    ones first.
    """
    return _make_verb(command, _list_options(command), command, _get_requirements(command))


def _get_requirements(command: Callable[..., None]) -> Sequence[Need]:
    """Return the requirements that the decorator ``needs`` attached to a verb."""
    return getattr(command, "needs", ())


def _list_options(command: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a command that are options: all but keyword-only ones."""
    parameters = signature(command).parameters.items()
    return {
        name: parameter
        for name, parameter in parameters
        if parameter.kind is not Parameter.KEYWORD_ONLY
    }


def _make_verb(
    call: Callable[..., None],
    options: Mapping[str, Parameter],
    command: Callable[..., None],
    requirements: Sequence[Need],
) -> Callable[..., None]:
    """Return a function that has ``options`` as parameters and passes their values to ``call``.

    It has the name and docstring of ``command``, and ``requirements`` as its needs.
    """
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


def _report_all_missing(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with all options optional; when called, it checks what is missing itself.

    This way one RecipeError reports everything that is missing; click would stop at the first.
    """
    options = _list_options(command)

    def check_and_call(**values: Any) -> None:
        """Raise a RecipeError that lists what is missing, or call the verb."""
        if lines := list_missing_lines(command, values):
            fault = "missing" if all(" is missing" in line for line in lines) else "wrong"
            head = [f"{len(lines)} things are {fault}:"] if len(lines) > 1 else []
            raise RecipeError("\n  ".join([*head, *lines]))
        command(**values)

    optional = {
        name: option.replace(default=None) if option.default is Parameter.empty else option
        for name, option in options.items()
    }
    return _make_verb(check_and_call, optional, command, ())


def has_value(value: Any) -> bool:
    """Return whether an option was given on the command line; 0 counts as a value."""
    return value is not None and value is not False and value not in ("", (), [])


def list_missing_lines(command: Callable[..., None], values: Values) -> list[str]:
    """Return one line about each requirement of the verb that ``values`` do not meet."""
    options = _list_options(command)
    required_options = [
        name for name, option in options.items() if option.default is Parameter.empty
    ]
    requirements = [*(Need((name,)) for name in required_options), *_get_requirements(command)]
    return [line for need in requirements if (line := _format_missing_line(need, values, options))]


def _format_missing_line(
    need: Need, values: Values, options: Mapping[str, Parameter]
) -> str | None:
    """Return a line that says what is missing, or which options exclude each other.

    Return None if the requirement is met or does not apply.
    """
    entries = [name for name in need.options if has_value(values[name])]
    if not need.condition(values) or len(entries) == 1 or (entries and not need.exclusive):
        return None
    forms = [_format_option(options[name]) for name in need.options]
    if entries:
        return f"only one of {', '.join(forms)} can be given"
    purpose = (_find_declaration(options[need.options[0]]).help or "") if len(forms) == 1 else ""
    return f"{' or '.join(forms)} is missing{purpose and f' ({purpose})'}"


def _find_declaration(option: Parameter) -> Any:
    """Return typer's declaration of an option or argument."""
    return option.annotation.__metadata__[0]


def _format_option(option: Parameter) -> str:
    """Return how an option or argument is written on the command line, such as
    ``--as cloudformation|terraform``.
    """
    declaration, kind = _find_declaration(option), option.annotation.__origin__
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
"""Mapping of the type of an option's value to the word for it in messages if no metavar is
declared."""


def parse_pairs(option: str, assignments: Sequence[str]) -> dict[str, str]:
    """Parse the values of a repeated option ``NAME=VALUE`` into a mapping of name to value.

    Raises:
        RecipeError: an assignment is not of that form.
    """
    values = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RecipeError(f"{option} {text}: must be NAME=VALUE")
        values[name] = value
    return values


def list_verbs(call: str, files: Mapping[str, Path]) -> None:
    """Print each verb with the first line of its module's docstring, without importing the module.

    Args:
        call: how a verb is run, such as ``trainyard VERB``.
        files: mapping of a verb to the file of its module.
    """
    console.print(f"{call} ...; details: {call} --help\n", markup=False, highlight=False)
    width = max(map(len, files))
    for verb, file in files.items():
        source = file.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        console.print(f"  {verb:<{width}}  {about}", markup=False, highlight=False)


def check_writable(out: Path) -> None:
    """Check that the file ``out`` can be written, so that a command fails before it does long work.

    Raises:
        RecipeError: ``out`` is a folder, or its parent folder does not exist, or it is not a valid
            path.
    """
    try:
        wrong = "it is a folder" if out.is_dir() else ""
        if not out.parent.is_dir():
            wrong = f"there is no folder {out.parent}"
    except (OSError, ValueError) as error:
        # The path is too long, or it contains a null character.
        wrong = str(error)
    if wrong:
        raise RecipeError(f"--out {out}: {wrong}; name a file in a folder that exists")
