"""Print the infrastructure of a recipe's pipeline: roles, pipeline, model package group.

python -m pipelines.infra --recipe recipes/prod.yaml --as cloudformation > pipeline.yaml
python -m pipelines.infra --recipe recipes/prod.yaml --as terraform > pipeline.tf.json

Who deploys it owns the pipeline, in the place of pipelines.upsert: run pipelines.package before,
which uploads the code and the definition that it names. It needs no AWS.
"""

from enum import StrEnum
from typing import Annotated

import typer

from pipelines.deploy.infrastructure import Infrastructure, cloudformation, terraform
from pipelines.deploy.pipeline_roles import subject
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load
from trainyard.terminal import run


class Form(StrEnum):
    """A language of infrastructure."""

    CLOUDFORMATION = "cloudformation"
    TERRAFORM = "terraform"


RENDERED = {Form.CLOUDFORMATION: cloudformation, Form.TERRAFORM: terraform}


def main(
    recipe: RecipeOption,
    form: Annotated[Form, typer.Option("--as", help="The language.")],
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    roles: Annotated[
        bool, typer.Option(help="The derived roles, too; else the recipe's are referred to.")
    ] = True,
    group: Annotated[bool, typer.Option(help="The model package group, too.")] = True,
) -> None:
    """Print what CloudFormation or Terraform is to deploy."""
    from pipelines.definition import from_recipe

    loaded = load(recipe, overrides, environment)
    definition = from_recipe(recipe, overrides, environment)
    name = loaded.register_.model_package_group
    what = Infrastructure(
        definition=definition,
        subject=subject(definition, loaded.aws),
        with_roles=roles,
        group=name if group and ":" not in name else None,
    )
    print(RENDERED[form](what), end="")


if __name__ == "__main__":
    run(main)
