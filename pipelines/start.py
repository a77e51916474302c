"""Start an execution of a pipeline that was upserted.

python -m pipelines.start --recipe recipes/laptop.yaml [--parameter MaxSteps=100] [--wait]
python -m pipelines.start --pipeline trainyard-laptop --champion none

A run of a pipeline of ours is told who the champion is: the latest Approved package of its model
package group, as it is now. So the run can be repeated, whatever is approved afterwards.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from errors import RecipeError
from pipelines.champion import champion_parameters
from pipelines.cli import ChampionOption, SetOption, WaitOption, console, pipeline_name, run
from pipelines.config import nearest
from pipelines.service import client, service_errors
from pipelines.watch import watch


def start(
    pipeline: str,
    parameters: Mapping[str, str],
    *,
    champion: str | None = None,
    region: str | None = None,
) -> str:
    """Start an execution and return its ARN; parameters left out keep the recipe's values.

    ``champion``: ARN of a model package, or ``none``; else it is looked up.

    Raises:
        RecipeError: the pipeline has no such parameter.
        ServiceError: there is no such pipeline, or AWS refused.
    """
    with service_errors(f"starting pipeline {pipeline}"):
        sagemaker = client("sagemaker", region)
        described = sagemaker.describe_pipeline(PipelineName=pipeline)
        definition = json.loads(described["PipelineDefinition"])
        _check(parameters, definition)
        if told := champion_parameters(sagemaker, definition, parameters, champion):
            console.print(f"champion {told['ChampionArn']}", highlight=False)
        parameters = {**told, **parameters}
        given = [{"Name": name, "Value": value} for name, value in parameters.items()]
        answer = sagemaker.start_pipeline_execution(PipelineName=pipeline, PipelineParameters=given)
    console.print(f"started {answer['PipelineExecutionArn']}", highlight=False)
    return answer["PipelineExecutionArn"]


def _check(parameters: Mapping[str, str], definition: Mapping[str, Any]) -> None:
    known = [parameter["Name"] for parameter in definition.get("Parameters", ())]
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
    champion: ChampionOption = None,
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
    given = {key: value for key, _, value in pairs}
    execution = start(name, given, champion=champion, region=region)
    if wait:
        raise typer.Exit(watch(execution, region=region))


if __name__ == "__main__":
    run(main)
