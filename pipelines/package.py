"""Upload what a pipeline needs: code, wheels, its definition. The pipeline itself is not changed.

python -m pipelines.package --recipe recipes/prod.yaml [--env prod] [--out definition.json]

With packages.wheelhouse, the wheels of each job's requirements are downloaded and uploaded, once
for each text of requirements. CloudFormation, CDK or Terraform can deploy the uploaded definition
(PipelineDefinitionS3Location); pipelines.upsert deploys it from the recipe.
"""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.delivery.pipeline_objects import upload_changed_files
from pipelines.delivery.saved_plan import (
    DEFINITION,
    build_definition_asset,
    create_buckets,
    refuse_invalid_definition,
    upload_code,
)
from pipelines.delivery.wheel_download import is_uploaded, upload_wheels
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.environments import refuse_other_caller, resolve_account
from pipelines.recipe.read_recipe import load_recipe
from trainyard.aws_clients import create_client, service_errors
from trainyard.common import atomic_file
from trainyard.terminal import check_writable, console, run


def main(
    recipe: RecipeOption,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    out: Annotated[Path | None, typer.Option(help="Also write the definition here.")] = None,
) -> None:
    """Upload code, wheels and the definition; the pipeline itself is not changed."""
    if out:
        check_writable(out)
    resolve_account(
        load_recipe(recipe, overrides, environment).aws
    )  # reports a missing field early
    from pipelines.definition import from_recipe

    definition = from_recipe(recipe, overrides, environment)
    refuse_invalid_definition(definition)
    refuse_other_caller(definition.account, definition.region)
    body = build_definition_asset(definition)
    key = definition.kms_key
    with service_errors(f"packaging pipeline {definition.name}"):
        s3 = create_client("s3", definition.region)
        create_buckets(s3, definition)
        for house in definition.wheelhouses:
            outcome = "already there"
            if not is_uploaded(s3, house):
                with console.status(f"downloading wheels for {house.uri}"):
                    number, size = upload_wheels(s3, house, key)
                outcome = f"{number} wheels, {size / 1e6:.1f} MB"
            console.print(f"{house.uri}: {outcome}", highlight=False, soft_wrap=True)
        byte_count = upload_code(s3, definition)
        upload_changed_files(s3, body.bucket, body.key, body.files, kms_key=key)
    if out:
        atomic_file.write_file(out, definition.body)
    console.print(f"{body.uri}{DEFINITION}: definition, {byte_count} bytes of code uploaded",
                  highlight=False, soft_wrap=True)  # fmt: skip


if __name__ == "__main__":
    run(main)
