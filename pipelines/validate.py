"""Find what is wrong with a recipe or a definition, offline and before anything is uploaded.

python -m pipelines.validate --recipe recipes/prod.yaml [--set FIELD.PATH=VALUE] [--json]
python -m pipelines.validate definition.json
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli import SetOption
from pipelines.recipe.reading import load
from pipelines.rules import check
from trainyard.common.errors import DefinitionError, RecipeError
from trainyard.terminal import run
from trainyard.validate import Finding
from trainyard.validate.form import read
from trainyard.validate.show import count, show

FileArgument = Annotated[
    Path | None, typer.Argument(metavar="DEFINITION", help="A pipeline definition, JSON.")
]
RecipeChoice = Annotated[Path | None, typer.Option("--recipe", help="The recipe's YAML file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the findings as a JSON list.")]


def main(
    definition: FileArgument = None,
    recipe: RecipeChoice = None,
    overrides: SetOption = (),
    as_json: JsonOption = False,
) -> None:
    """Check a recipe or a definition. Exit 0 when there is no error, 1 when there is one."""
    if (definition is None) == (recipe is None):
        raise RecipeError("give either --recipe R or a definition's JSON file")
    if recipe is not None:
        body, findings = of_recipe(recipe, overrides)
    else:
        body, findings = _of_file(definition)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        show(findings, _checked(body))
    raise typer.Exit(any(finding.severity == "error" for finding in findings))


def of_recipe(path: Path, overrides: Sequence[str]) -> tuple[str, list[Finding]]:
    """The compiled body ("" when there is none) and what is wrong with the recipe or with it."""
    try:
        load(path, overrides)
        from pipelines.definition import from_recipe  # the SDK: seconds, so only when it is needed

        body = from_recipe(path, overrides).body
    except (RecipeError, DefinitionError) as error:
        return "", [_of_recipe(line, path) for line in str(error).splitlines()]
    return body, check(body)


def _of_recipe(line: str, path: Path) -> Finding:
    """One line of a RecipeError: ``file: field: problem``."""
    text = line.removeprefix(f"{path}: ")
    field, colon, problem = text.partition(": ")
    named = colon and " " not in field
    return Finding(
        rule="recipe",
        severity="error",
        step=None,
        path=field if named else str(path),
        problem=problem if named else text,
        why="the recipe cannot be compiled into a definition",
        fix="change the field in the recipe, or with --set",
        source="pipelines/recipe/config.py, steps/*/config.py",
    )


def _of_file(path: Path) -> tuple[str, list[Finding]]:
    try:
        body = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: cannot be read: {error}; give a JSON file") from None
    return body, check(body)


def _checked(body: str) -> str:
    """What a run looked at."""
    document, _ = read(body) if body else (None, [])
    if document is None:
        return "no definition to check"
    types = ", ".join(dict.fromkeys(step.type for step in document.steps))
    steps, parameters = count(len(document.steps), "step"), len(document.parameters)
    return f"{steps} ({types}) and {count(parameters, 'parameter')} checked"


if __name__ == "__main__":
    run(main)
