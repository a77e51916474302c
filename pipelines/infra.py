"""Print the infrastructure of a recipe's pipeline: roles, pipeline, group, and what these need.

python -m pipelines.infra --recipe recipes/prod.yaml --as cloudformation > pipeline.yaml
python -m pipelines.infra --recipe recipes/prod.yaml --as terraform > pipeline.tf.json
python -m pipelines.infra --recipe recipes/prod.yaml --as terraform --part storage > storage.tf.json
python -m pipelines.infra --recipe recipes/prod.yaml --as cloudformation --ci gitlab > ci.yaml

The stack then owns the pipeline, instead of pipelines.upsert. Run pipelines.package first: it
uploads the code and the definition that the stack refers to. This command needs no AWS.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from pipelines.infrastructure.infra_templates import (
    Facts,
    Infrastructure,
    Part,
    as_terraform,
    build_template,
    render_template,
)
from pipelines.infrastructure.serving_roles import build_subject
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load_recipe
from trainyard.common.errors import RecipeError
from trainyard.permissions.role_template import dump_yaml
from trainyard.terminal import errors, run

Form = StrEnum("Form", ["CLOUDFORMATION", "TERRAFORM"])
"""Template language. Here and below, a member's value is its name in lower case."""
Extra = StrEnum("Extra", ["STORAGE", "MESSAGES", "SERVING"])
"""Further parts that a pipeline needs."""
Ci = StrEnum("Ci", ["CODEPIPELINE", "GITHUB", "GITLAB"])
"""CI system that plans and upserts the pipeline at each commit."""


def main(
    recipe: RecipeOption,
    form: Annotated[Form, typer.Option("--as", help="The template language.")],
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    roles: Annotated[
        bool, typer.Option(help="Create the derived roles; otherwise refer to the recipe's.")
    ] = True,
    group: Annotated[bool, typer.Option(help="Create the model package group.")] = True,
    part: Annotated[
        Extra | None,
        typer.Option(
            help="Instead: bucket and key; messages and schedule; or deployment and monitoring."
        ),
    ] = None,
    ci: Annotated[
        Ci | None, typer.Option(help="Instead: the CI system's roles, and CodePipeline's builds.")
    ] = None,
    key: Annotated[
        bool,
        typer.Option(help="With --part storage: create the key; otherwise refer to the recipe's."),
    ] = True,
) -> None:
    """Print a template that CloudFormation or Terraform can deploy."""
    from pipelines.definition import from_recipe

    if part and ci:
        raise RecipeError("--part and --ci: print one after the other; each is a stack of its own")
    recipe_config = load_recipe(recipe, overrides, environment)
    definition = from_recipe(recipe, overrides, environment)
    if template_part := part or ci:
        facts = Facts(
            definition=definition,
            subject=build_subject(definition, recipe_config),
            aws=recipe_config.aws,
            recipe=str(recipe),
            with_key=key,
        )
        document = render_template(Part[template_part.name], facts)
        _print_template(form, f"{definition.name}-{template_part}", document, definition.tags)
        if ci in (Ci.GITHUB, Ci.GITLAB):
            for name, value in facts.list_variables().items():
                errors.print(f"variable {name}={value}", highlight=False, markup=False)
        return
    name = recipe_config.register_.model_package_group
    infrastructure = Infrastructure(
        definition=definition,
        subject=build_subject(definition, recipe_config),
        with_roles=roles,
        group=name if group and ":" not in name else None,
    )
    _print_template(form, definition.name, build_template(infrastructure), definition.tags)


def _print_template(
    form: Form, name: str, document: dict[str, Any], tags: Mapping[str, str]
) -> None:
    """Print the template as CloudFormation's YAML or as Terraform's JSON."""
    terraform = form is Form.TERRAFORM
    print(as_terraform(name, document, tags) if terraform else dump_yaml(document), end="")


if __name__ == "__main__":
    run(main)
