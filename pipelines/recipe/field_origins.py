"""Say where a recipe's fields were written: the file and line, or ``--set``, which came last."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from pipelines.recipe.extended_recipe import files
from trainyard.common.errors import RecipeError
from trainyard.read_yaml import BoundedLoader

SET = "--set"
Field = tuple[str, ...]
Origins = dict[Field, str]
"""Field → ``recipes/laptop.yaml:47``, or ``--set``."""


class Problem(NamedTuple):
    """What is wrong with a field of a recipe."""

    origin: str
    """``recipes/laptop.yaml:47`` or ``--set``; the file alone where no line can be named."""

    field: str
    """Path of the field, as train.loop.max_steps; empty where it is not about one."""

    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


class RecipeProblems(RecipeError):
    """Everything that is wrong with a recipe, a line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=_line)
        super().__init__("\n".join(map(str, self.problems)))


def _line(problem: Problem) -> tuple[str, int]:
    file, _, line = problem.origin.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (problem.origin, 0)


@contextmanager
def located_problems(
    path: Path, overrides: Sequence[str] = (), environment: str | None = None
) -> Iterator[None]:
    """Say of each line of a RecipeError where its field was written.

    Raises:
        RecipeProblems: in the place of any other RecipeError.
    """
    try:
        yield
    except RecipeProblems:
        raise
    except RecipeError as error:
        origins = field_origins(path, overrides, environment)
        lines = str(error).splitlines()
        raise RecipeProblems([locate(line, origins, path) for line in lines]) from None


def locate(line: str, origins: Origins, path: Path) -> Problem:
    """Return the problem that a line ``field: text`` tells, of a field in ``origins``."""
    name, colon, text = line.partition(": ")
    if not colon or not re.fullmatch(r"[\w-]+(\.[^\s:]+)*", name):
        return Problem(str(path), "", line)
    field = tuple(name.split("."))
    mentions = (origins.get((*field, word)) for word in re.findall(r"\w+", text)[:FIRST_WORDS])
    # Of a check across a section's fields the first that it names; of a missing one its section.
    above = (origins.get(field[:length]) for length in range(len(field), 0, -1))
    origin = origins.get(field) if field in origins and not _is_section(field, origins) else None
    return Problem(origin or next(filter(None, (*mentions, *above)), str(path)), name, text)


FIRST_WORDS = 12


def _is_section(field: Field, origins: Origins) -> bool:
    return any(longer[: len(field)] == field and longer != field for longer in origins)


def field_origins(path: Path, overrides: Sequence[str], environment: str | None) -> Origins:
    """Return where each field of the recipe in ``path`` was written last.

    Raises:
        RecipeError: a file cannot be read any more.
    """
    origins: Origins = {}
    for file in reversed(files(path)):
        try:
            node = yaml.compose(file.read_text(encoding="utf-8"), Loader=BoundedLoader)
        except (OSError, yaml.YAMLError) as error:
            raise RecipeError(f"{file}: cannot be read: {error}") from None
        origins |= {field: f"{file}:{line}" for field, line in _lines(node)}
    if environment is not None:
        section = ("environments", environment)
        origins |= {field[2:]: origin for field, origin in origins.items() if field[:2] == section}
    for text in overrides:
        field = tuple(text.partition("=")[0].split("."))
        origins = {
            name: position for name, position in origins.items() if name[: len(field)] != field
        }
        origins[field] = SET
    return origins


def _lines(node: yaml.Node | None, above: Field = ()) -> Iterator[tuple[Field, int]]:
    """Yield each field of a YAML node with its line, from 1."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                yield from _lines(value, above)
                continue
            field = (*above, str(key.value))
            yield field, key.start_mark.line + 1
            yield from _lines(value, field)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            field = (*above, str(index))
            yield field, value.start_mark.line + 1
            yield from _lines(value, field)
