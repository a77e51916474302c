"""The pipeline definition that a command works on: a JSON file, or a pipeline in AWS."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.common.errors import DefinitionError, ServiceError
from trainyard.terminal import Need

if TYPE_CHECKING:
    from trainyard.plan.deployed_pipeline import DeployedPipeline

DefinitionArgument = Annotated[
    Path | None, typer.Argument(metavar="DEFINITION", help="A pipeline definition (JSON file).")
]
PipelineOption = Annotated[
    str | None, typer.Option("--pipeline", metavar="NAME", help="A pipeline in AWS, by name.")
]
ONE_DEFINITION = Need(("definition", "pipeline"))
RegionOption = Annotated[str | None, typer.Option(help="Region; default: the environment's.")]


def read_definition(path: Path) -> str:
    """Return the text of a definition file.

    Raises:
        DefinitionError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: cannot be read: {error}; give a JSON file") from None


def find_deployed_pipeline(name: str, region: str | None) -> "DeployedPipeline":
    """Return the pipeline of that name, as AWS (or the service at AWS_ENDPOINT_URL) describes it.

    Raises:
        ServiceError: the pipeline does not exist, or AWS refused.
    """
    # Imported here because they load boto3, which a command on a definition file does not need.
    from trainyard.aws_clients import create_client, service_errors
    from trainyard.local_state import serve_local_state
    from trainyard.plan.deployed_pipeline import describe_deployed_pipeline

    with serve_local_state(), service_errors(f"reading pipeline {name}"):
        sagemaker = create_client("sagemaker", region)
        description = describe_deployed_pipeline(sagemaker, name)
    if description is None:
        client_region = sagemaker.meta.region_name
        raise ServiceError(
            f"pipeline {name}: does not exist in {client_region}; see --pipeline, --region"
        )
    return description


def read_definition_text(definition: Path | None, pipeline: str | None, region: str | None) -> str:
    """Return the text of the definition that the options name.

    Raises:
        DefinitionError: neither ``definition`` nor ``pipeline`` is given, or both are, or the file
            cannot be read.
        ServiceError: the pipeline does not exist, or AWS refused.
    """
    if definition is not None and pipeline is None:
        return read_definition(definition)
    if pipeline is not None and definition is None:
        return find_deployed_pipeline(pipeline, region).state.definition
    raise DefinitionError("give either a definition's JSON file or --pipeline NAME")
