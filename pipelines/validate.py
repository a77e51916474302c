"""Find what is wrong with a recipe or a definition, offline and before anything is uploaded.

python -m pipelines.validate --recipe recipes/prod.yaml [--set FIELD.PATH=VALUE] [--json]
python -m pipelines.validate definition.json
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, SetOption, needs_recipe
from pipelines.recipe.read_recipe import load
from pipelines.rules import check
from trainyard.common.errors import DefinitionError, RecipeError
from trainyard.definition_source import DefinitionArgument, read_definition
from trainyard.terminal import run
from trainyard.validate import Finding
from trainyard.validate.finding_display import JsonOption, report

RecipeChoice = Annotated[Path | None, typer.Option("--recipe", help="The recipe's YAML file.")]


def main(
    definition: DefinitionArgument = None,
    recipe: RecipeChoice = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a recipe or a definition. Exit status 0 without errors, else 1."""
    needs_recipe(environment, recipe)
    if recipe is not None and definition is None:
        body, findings = of_recipe(recipe, overrides, environment)
    elif definition is not None and recipe is None:
        body = read_definition(definition)
        findings = check(body)
    else:
        raise RecipeError("give either --recipe R or a definition's JSON file")
    report(findings, body, as_json)


def of_recipe(
    path: Path, overrides: Sequence[str], environment: str | None = None
) -> tuple[str, list[Finding]]:
    """Return the compiled body ("" without one) and the errors in the recipe or in it."""
    try:
        load(path, overrides, environment)
        from pipelines.definition import from_recipe  # the SDK takes seconds to load

        body = from_recipe(path, overrides, environment).body
    except (RecipeError, DefinitionError) as error:
        return "", [_of_recipe(line, path) for line in str(error).splitlines()]
    return body, check(body)


def _of_recipe(line: str, path: Path) -> Finding:
    """Return a finding from one line of a RecipeError: ``file: field: problem``."""
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


if __name__ == "__main__":
    run(main)
