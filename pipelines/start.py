"""Start an execution of a pipeline that was upserted.

python -m pipelines.start --recipe recipes/laptop.yaml [--parameter MaxSteps=100] [--wait]
python -m pipelines.start --pipeline trainyard-laptop
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from errors import RecipeError
from pipelines.cli import SetOption, WaitOption, console, pipeline_name, run
from pipelines.config import nearest
from pipelines.service import client, service_errors
from pipelines.watch import watch


def start(pipeline: str, parameters: Mapping[str, str], *, region: str | None = None) -> str:
    """Start an execution and return its ARN; parameters left out keep the recipe's values.

    Raises:
        RecipeError: the pipeline has no such parameter.
        ServiceError: there is no such pipeline, or AWS refused.
    """
    with service_errors(f"starting pipeline {pipeline}"):
        sagemaker = client("sagemaker", region)
        if parameters:
            _check(parameters, sagemaker.describe_pipeline(PipelineName=pipeline))
        given = [{"Name": name, "Value": value} for name, value in parameters.items()]
        answer = sagemaker.start_pipeline_execution(PipelineName=pipeline, PipelineParameters=given)
    console.print(f"started {answer['PipelineExecutionArn']}", highlight=False)
    return answer["PipelineExecutionArn"]


def _check(parameters: Mapping[str, str], described: Mapping[str, Any]) -> None:
    known = [p["Name"] for p in json.loads(described["PipelineDefinition"])["Parameters"]]
    for name in parameters:
        if name not in known:
            raise RecipeError(f"--parameter {name}: unknown parameter; {nearest(name, known)}")


def main(
    recipe: Annotated[Path | None, typer.Option(help="The recipe whose pipeline to start.")] = None,
    overrides: SetOption = (),
    pipeline: Annotated[str | None, typer.Option(help="The pipeline's name instead.")] = None,
    parameter: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A pipeline parameter for this run.")
    ] = (),
    wait: WaitOption = False,
) -> None:
    """Start an execution of a pipeline that was upserted."""
    name, region = pipeline_name(recipe, overrides, pipeline)
    if name is None:
        raise RecipeError("which pipeline? give --recipe FILE or --pipeline NAME")
    pairs = [given.partition("=") for given in parameter]
    for name_, equals, _ in pairs:
        if not equals:
            raise RecipeError(f"--parameter {name_}: must be NAME=VALUE")
    execution = start(name, {key: value for key, _, value in pairs}, region=region)
    if wait:
        raise typer.Exit(watch(execution, region=region))


if __name__ == "__main__":
    run(main)
