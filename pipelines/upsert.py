"""Create or update the pipeline, only if something changed; start it, watch it.

python -m pipelines.upsert --recipe recipes/laptop.yaml [--set FIELD.PATH=VALUE] [--start] [--wait]
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer
from botocore.exceptions import ClientError

from errors import DefinitionError
from pipelines.cli import RecipeOption, SetOption, WaitOption, console, run
from pipelines.compiled import Definition
from pipelines.definition import from_recipe
from pipelines.service import client, error_code, service_errors
from pipelines.start import start
from pipelines.storage import ensure_bucket, sync
from pipelines.validate import check
from pipelines.validate.show import line, show
from pipelines.watch import watch


@dataclass(frozen=True, slots=True)
class Upserted:
    """What an upsert did."""

    change: Literal["created", "updated", "unchanged"]
    uploaded_bytes: int


def upsert(definition: Definition) -> Upserted:
    """Upload the code that is missing, then create or update the pipeline where it differs.

    The code goes first: a pipeline never refers to code that is not there.

    Raises:
        DefinitionError: validation finds an error in the definition; nothing is uploaded.
        ServiceError: AWS refused, or could not be reached.
    """
    _validate(definition)
    with service_errors(f"upserting pipeline {definition.name}"):
        uploaded = _upload_code(definition)
        sagemaker = client("sagemaker", definition.region)
        wanted = _request(definition)
        deployed = _describe(sagemaker, definition.name)
        if deployed is None:
            tags = [{"Key": key, "Value": value} for key, value in sorted(definition.tags.items())]
            sagemaker.create_pipeline(**wanted, Tags=tags)
            return Upserted("created", uploaded)
        if all(deployed.get(field) == value for field, value in wanted.items()):
            return Upserted("unchanged", uploaded)
        sagemaker.update_pipeline(**wanted)
        return Upserted("updated", uploaded)


def _validate(definition: Definition) -> None:
    """Refuse what the service would refuse later; show what it would only make expensive."""
    findings = check(definition.body)
    wrong = [line(finding) for finding in findings if finding.severity == "error"]
    if wrong:
        raise DefinitionError(f"pipeline {definition.name}:\n  " + "\n  ".join(wrong))
    if findings:
        show(findings, "nothing that the service refuses")


def _upload_code(definition: Definition) -> int:
    s3 = client("s3", definition.region)
    for bucket in {asset.bucket for asset in definition.assets}:
        if ensure_bucket(s3, bucket, definition.region):
            console.print(f"created bucket {bucket}")
    return sum(
        sync(s3, asset.bucket, asset.key, asset.files, kms_key=definition.kms_key)
        for asset in definition.assets
    )


def _request(definition: Definition) -> dict[str, Any]:
    description = {"PipelineDescription": definition.description} if definition.description else {}
    return {
        "PipelineName": definition.name,
        "PipelineDefinition": definition.body,
        "RoleArn": definition.role,
        "ParallelismConfiguration": {
            "MaxParallelExecutionSteps": definition.max_parallel_steps,
        },
        **description,
    }


def _describe(sagemaker: Any, name: str) -> dict[str, Any] | None:
    try:
        return sagemaker.describe_pipeline(PipelineName=name)
    except ClientError as error:
        if error_code(error) == "ResourceNotFound":
            return None
        raise


def main(
    recipe: RecipeOption,
    overrides: SetOption = (),
    start_it: Annotated[bool, typer.Option("--start", help="Start an execution.")] = False,
    wait: WaitOption = False,
) -> None:
    """Create or update the pipeline of a recipe, only if something changed."""
    definition = from_recipe(recipe, overrides)
    done = upsert(definition)
    console.print(
        f"pipeline [bold]{definition.name}[/]: {done.change} "
        f"(definition {definition.sha256[:12]}, {done.uploaded_bytes} bytes of code uploaded)",
        highlight=False,
    )
    if start_it or wait:
        execution = start(definition.name, {}, region=definition.region)
        if wait:
            raise typer.Exit(watch(execution, region=definition.region))


if __name__ == "__main__":
    run(main)
