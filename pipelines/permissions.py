r"""Derive least-privilege policies from a definition, or compare a policy with them.

python -m pipelines.permissions --recipe recipes/prod.yaml --role job
python -m pipelines.permissions --recipe recipes/prod.yaml --template > infra/roles.yaml
python -m pipelines.permissions --recipe recipes/prod.yaml --check infra/roles.yaml
python -m pipelines.permissions --recipe recipes/laptop.yaml --deploy
python -m pipelines.permissions pipeline.json --name demo --region us-east-1 \
    --pipeline-role arn:aws:iam::111122223333:role/demo --role pipeline
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

import pipelines.rules  # noqa: F401 - registers our rules, which our definitions must also follow
from pipelines.infrastructure.roles_stack import deploy_roles_stack
from pipelines.infrastructure.serving_roles import build_recipe_subject
from pipelines.recipe.cli_options import (
    NOT_GIVEN,
    ONE_SUBJECT,
    EnvOption,
    RecipeChoice,
    SetOption,
    require_recipe_for,
)
from trainyard.commands import permissions
from trainyard.terminal import extend_verb, run

HEAD = """\
# The roles around one pipeline, derived from its definition. Do not edit; create it again with
#   python -m pipelines.permissions --recipe {recipe} --template
"""


def read_recipe_subject(
    values: Mapping[str, Any],
    recipe: RecipeChoice = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    root: Annotated[
        str | None, typer.Option(help="Without a recipe: the s3://… prefix of upserted objects.")
    ] = None,
    to_deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Create or update the stack of all roles, PIPELINE-roles."),
    ] = False,
) -> Mapping[str, Any]:
    """Return the command's arguments with the recipe as the subject of the policies."""
    arguments: dict[str, Any] = {"root": root}
    if to_deploy:
        arguments["deliver"] = lambda subject: print(deploy_roles_stack(subject))
    if recipe is None:
        return arguments
    recipe_text = f"{recipe} --env {environment}" if environment else recipe
    subject = partial(build_recipe_subject, recipe, overrides, environment)
    return {**arguments, "subject": subject, "head": HEAD.format(recipe=recipe_text)}


main = extend_verb(
    permissions.main,
    read_recipe_subject,
    ONE_SUBJECT,
    require_recipe_for("overrides", "environment"),
)

if __name__ == "__main__":
    run(main)
