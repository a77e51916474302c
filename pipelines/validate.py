"""Find what is wrong with a recipe or a definition, offline and before anything is uploaded.

python -m pipelines.validate --recipe recipes/prod.yaml [--set FIELD.PATH=VALUE] [--json]
python -m pipelines.validate definition.json
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, SetOption, needs_recipe
from pipelines.recipe.field_origins import Problem, RecipeProblems, field_origins, locate
from pipelines.recipe.field_relations import warnings
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
        recipe = load(path, overrides, environment)
        from pipelines.definition import from_recipe  # the SDK takes seconds to load

        body = from_recipe(path, overrides, environment).body
    except RecipeProblems as error:
        return "", [_finding("error", one) for one in error.problems]
    except (RecipeError, DefinitionError) as error:
        lines = str(error).removeprefix(f"{path}: ").splitlines()
        return "", [_finding("error", Problem(str(path), "", line)) for line in lines]
    origins = field_origins(path, overrides, environment)
    unlikely = [_finding("warning", locate(line, origins, path)) for line in warnings(recipe)]
    return body, [*check(body), *unlikely]


def _finding(severity: Literal["error", "warning"], problem: Problem) -> Finding:
    """Return the finding of a problem in the recipe, whose text says why and what to do."""
    return Finding(
        rule="recipe",
        severity=severity,
        step=None,
        path=problem.field or problem.origin,
        problem=problem.text,
        why="",
        fix="",
        source=problem.origin if problem.field else "",
    )


if __name__ == "__main__":
    run(main)
