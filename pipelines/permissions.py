r"""Least-privilege policies, derived from a definition; and what a given policy lacks or exceeds.

python -m pipelines.permissions --recipe recipes/prod.yaml --role job
python -m pipelines.permissions --recipe recipes/prod.yaml --template > infra/roles.yaml
python -m pipelines.permissions --recipe recipes/prod.yaml --check infra/roles.yaml
python -m pipelines.permissions --recipe recipes/laptop.yaml --deploy
python -m pipelines.permissions --definition pipeline.json --name demo --region us-east-1 \
    --pipeline-role arn:aws:iam::111122223333:role/demo --role pipeline
"""

from pathlib import Path
from typing import Annotated

import typer

import pipelines.rules  # noqa: F401 - our definitions must also keep our rules
from pipelines.deploy.recipe_subject import from_recipe
from pipelines.deploy.roles_stack import deploy
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, SetOption, needs_recipe
from trainyard.common.errors import DefinitionError
from trainyard.permissions.pipeline_subject import from_file
from trainyard.permissions.policy_answer import (
    CheckOption,
    EndpointsOption,
    JobRoleOption,
    RoleOption,
    TemplateOption,
    answer,
)
from trainyard.terminal import run

HEAD = """\
# The roles around one pipeline, derived from its definition. Do not edit; create it again with
#   python -m pipelines.permissions --recipe {recipe} --template
"""


def main(
    recipe: Annotated[Path | None, typer.Option(help="The recipe's YAML file.")] = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    definition: Annotated[Path | None, typer.Option(help="Any definition JSON instead.")] = None,
    name: Annotated[str, typer.Option(help="With --definition: the pipeline's name.")] = "",
    region: Annotated[str, typer.Option(help="With --definition: its region.")] = "",
    pipeline_role: Annotated[str, typer.Option(help="With --definition: its role's ARN.")] = "",
    root: Annotated[
        str | None, typer.Option(help="With --definition: s3://… under which an upsert writes.")
    ] = None,
    role: RoleOption = None,
    job_role: JobRoleOption = None,
    as_template: TemplateOption = False,
    check: CheckOption = None,
    as_endpoints: EndpointsOption = False,
    to_deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Create or update the stack of all roles, PIPELINE-roles."),
    ] = False,
) -> None:
    """Derive least-privilege policies from a definition; only --deploy needs AWS."""
    needs_recipe(environment, recipe)
    if recipe is not None and definition is None:
        subject = from_recipe(recipe, overrides, environment)
    elif definition is not None and recipe is None:
        subject = from_file(
            definition, name=name, region=region, role=pipeline_role, root=root, asked=role
        )
    else:
        raise DefinitionError("whose permissions? give either --recipe FILE or --definition FILE")
    if to_deploy:
        print(deploy(subject))
        return
    named = f"{recipe} --env {environment}" if environment else recipe
    answer(subject, HEAD.format(recipe=named), role, job_role, as_template, check, as_endpoints)


if __name__ == "__main__":
    run(main)
