"""Find what is wrong with a recipe or a definition, offline and before anything is uploaded.

Only for ``data.shards`` are manifests read from S3; if they cannot be read, a warning says so.

python -m pipelines.validate --recipe recipes/prod.yaml [--set FIELD.PATH=VALUE] [--json]
python -m pipelines.validate definition.json      # also by the rules on our own jobs
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pipelines.recipe.cli_options import (
    NOT_GIVEN,
    ONE_SUBJECT,
    EnvOption,
    RecipeChoice,
    SetOption,
    require_recipe_for,
)
from pipelines.recipe.config import Recipe
from pipelines.recipe.extended_recipe import (
    Problem,
    RecipeProblems,
    find_field_origins,
    locate_problem,
)
from pipelines.recipe.field_relations import list_warnings
from pipelines.recipe.read_recipe import load_recipe
from pipelines.rules import check_definition
from trainyard.aws_clients import create_client
from trainyard.commands import validate
from trainyard.common.errors import DefinitionError, RecipeError, ServiceError
from trainyard.terminal import extend_verb, run
from trainyard.validate import Finding


def validate_recipe(
    path: Path, overrides: Sequence[str], environment: str | None = None
) -> tuple[str, list[Finding]]:
    """Return (compiled definition, findings); the definition is "" if the recipe has errors."""
    try:
        recipe = load_recipe(path, overrides, environment)
        from pipelines.definition import from_recipe  # the SDK takes seconds to load

        body = from_recipe(path, overrides, environment).body
    except RecipeProblems as error:
        return "", [_make_finding("error", problem) for problem in error.problems]
    except (RecipeError, DefinitionError) as error:
        lines = str(error).removeprefix(f"{path}: ").splitlines()
        return "", [_make_finding("error", Problem(str(path), "", line)) for line in lines]
    origins = find_field_origins(path, overrides, environment)
    unlikely = [
        _make_finding("warning", locate_problem(line, origins, path))
        for line in list_warnings(recipe)
    ]
    return body, [*check_definition(body), *unlikely, *_check_shards(recipe)]


def _check_shards(recipe: Recipe) -> Iterator[Finding]:
    """Yield the problems of the dataset ``data.shards``, if set; a warning if S3 cannot be read."""
    if recipe.data is None or recipe.data.shards is None:
        return
    from pipelines.registry.package_evidence import Absent, Evidence
    from pipelines.registry.verification import find_dataset_faults  # imports numpy

    field = partial(Problem, f"data.shards {recipe.data.shards}", "data.shards")
    try:
        s3 = create_client("s3", recipe.aws.region)
        for fault in find_dataset_faults(Evidence("", sagemaker=s3, s3=s3), recipe.data.shards):
            yield _make_finding("error", field(fault))
    except (Absent, ServiceError) as error:
        yield _make_finding("warning", field(f"was not checked: {error}"))


def _make_finding(severity: Literal["error", "warning"], problem: Problem) -> Finding:
    """Return a problem in the recipe as a finding; its text already says why and what to do."""
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


def read_recipe_subject(
    values: Mapping[str, Any],
    recipe: RecipeChoice = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
) -> Mapping[str, Any]:
    """Return the command's arguments with the recipe as the subject of the validation."""
    return {"subject": partial(validate_recipe, recipe, overrides, environment)} if recipe else {}


main = extend_verb(
    validate.main, read_recipe_subject, ONE_SUBJECT, require_recipe_for("overrides", "environment")
)

if __name__ == "__main__":
    run(main)
