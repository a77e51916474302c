"""Start an execution of a pipeline that was upserted.

python -m pipelines.start --recipe recipes/laptop.yaml [--parameter MaxSteps=100] [--wait]
python -m pipelines.start --pipeline trainyard-laptop --champion none
python -m pipelines.start --recipe recipes/laptop.yaml --from train [--execution ARN]

An execution that may cost more than the deployed recipe's budget does not start. --over-budget
REASON starts it nevertheless, and records the reason in the execution's description.

With --from, a step and all steps that depend on it run; the rest is reused from an earlier
execution.

With --wait, an execution whose training gets no capacity continues on the next of the recipe's
train.fallback_instance_types, from the Train step.

An execution of our pipeline is given the champion: at its start, the group's package that the
recipe's endpoint serves, or the latest Approved one. So it can be repeated with the same champion,
even if another package is approved later.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import typer

from pipelines.approve import approve_after_execution
from pipelines.compile.provenance_asset import read_recorded_recipe
from pipelines.compile.training_inputs import refuse_other_base_model
from pipelines.delivery import budget
from pipelines.delivery.fallback_instance_types import STEP, TYPE, choose_next_type
from pipelines.delivery.recipe_plan import NEW_DATA
from pipelines.recipe.cli_options import (
    NOT_GIVEN,
    ChampionOption,
    EnvOption,
    RecipeChoice,
    SetOption,
    require_recipe_for,
    resolve_pipeline,
)
from pipelines.recipe.environments import refuse_other_caller
from pipelines.registry import ledger
from pipelines.registry.champion import build_champion_parameters
from pipelines.run_report.run_progress import DISPLAY
from trainyard.aws_clients import create_client, service_errors
from trainyard.commands import start as verb
from trainyard.commands.start import FROM_STEP
from trainyard.common.errors import PlanError, RecipeError, suggest_nearest
from trainyard.language.definition_document import iter_steps
from trainyard.language.evaluation import parse_arn_variables
from trainyard.language.expressions import resolve_parameters
from trainyard.plan.pipeline_plan import find_overwritten
from trainyard.runs.execution import LONGEST
from trainyard.runs.live_watch import watch_execution
from trainyard.runs.selective_rerun import RerunPlan, plan_rerun
from trainyard.terminal import Need, console, extend_verb, run

FAILED_STATUS = 1  # exit status of watch if the execution failed


def start(
    pipeline: str,
    parameters: Mapping[str, str],
    *,
    champion: str | None = None,
    region: str | None = None,
    over_budget: str | None = None,
    rerun: RerunPlan | None = None,
    fresh: bool = False,
) -> str:
    """Start an execution and return its ARN; parameters that are left out keep the recipe's values.

    Args:
        champion: ARN of a model package, or ``none``; default: it is looked up.
        over_budget: why the execution may cost more than the deployed recipe's budget; recorded.
        rerun: earlier execution, and the step to start from; parameters that are left out keep the
            earlier execution's values, but champion and look are the current ones, unless a reused
            step was given others.
        fresh: refuse an execution whose training would be the cached result.

    Raises:
        RecipeError: the pipeline has no such parameter, or its value is of another type; or the
            shards of an earlier execution are not where this one would mount them.
        PlanError: the execution may cost more than the budget, or its training would be a cached
            result although ``fresh`` is set.
        ServiceError: the pipeline does not exist, or AWS refused.
    """
    with service_errors(f"starting pipeline {pipeline}"):
        sagemaker = create_client("sagemaker", region)
        pipeline_description = sagemaker.describe_pipeline(PipelineName=pipeline)
        definition = json.loads(pipeline_description["PipelineDefinition"])
        _check_parameters(parameters, definition)
        if rerun and "Shard" in {*rerun.reused_steps, *rerun.unneeded_steps}:
            _refuse_mounted_shards(definition, rerun)
        refuse_other_base_model(definition, sagemaker.meta.region_name)
        reused_parameters = _select_reused_parameters(rerun, parameters)
        champion_values = build_champion_parameters(
            sagemaker, definition, {**reused_parameters, **parameters}, champion
        )
        if champion_values:
            console.print(f"champion {champion_values['ChampionArn']}", highlight=False)
        parameters = {**reused_parameters, **champion_values, **parameters}
        parameter_list = [{"Name": name, "Value": value} for name, value in parameters.items()]
        execution_options: dict[str, Any] = _check_before_start(
            sagemaker, definition, pipeline, parameters, over_budget, fresh
        )
        # Last, when nothing else can prevent the start, because a number counts once it is taken.
        if ledger.PARAMETER not in reused_parameters:
            parameter_list += _record_look(create_client("s3", region), definition, parameters)
        if rerun:
            execution_options["SelectiveExecutionConfig"] = rerun.selective_execution_config
        answer = sagemaker.start_pipeline_execution(
            PipelineName=pipeline, PipelineParameters=parameter_list, **execution_options
        )
    console.print(f"started {answer['PipelineExecutionArn']}", highlight=False)
    return answer["PipelineExecutionArn"]


def _refuse_mounted_shards(definition: Mapping[str, Any], rerun: RerunPlan) -> None:
    """Refuse to train on an earlier execution's shards with ``train.fsx``: the new one's folder is
    empty.
    """
    trains = (s for s in iter_steps(definition["Steps"]) if s.type in ("Training", "Tuning"))
    for step in (train_step for train_step in trains if train_step.name in rerun.runs):
        request = step.arguments.get("TrainingJobDefinition", step.arguments)
        for channel in request.get("InputDataConfig", ()):
            system = channel["DataSource"].get("FileSystemDataSource", {})
            if "Execution.PipelineExecutionId" in json.dumps(system.get("DirectoryPath")):
                raise RecipeError(
                    f"--from: step {step.name} mounts the shards of its own run on file system "
                    f"{system['FileSystemId']} (train.fsx), but those of {rerun.source} are in "
                    "that run's folder; start --from Shard, or set train.input_mode to FastFile"
                )


def _select_reused_parameters(
    rerun: RerunPlan | None, parameters: Mapping[str, str]
) -> dict[str, str]:
    """Return the earlier execution's parameters that the new one keeps; print what is reused."""
    if rerun is None:
        return {}
    for line in rerun.iter_explanations(parameters):
        console.print(line, highlight=False, markup=False)
    return {
        name: value
        for name, value in rerun.parameters.items()
        if name not in ledger.AUTOMATIC_PARAMETERS or name in rerun.fixed_parameters
    }


def _record_look(
    s3: Any, definition: Mapping[str, Any], parameters: Mapping[str, str]
) -> list[dict[str, str]]:
    """Write the number of this comparison on the test split (look) to the ledger, and return it as
    a parameter; return [] if the execution needs no number.
    """
    if ledger.PARAMETER in parameters:
        raise RecipeError(
            f"--parameter {ledger.PARAMETER}: cannot be set, because the ledger counts the looks "
            "at the test split; leave it out"
        )
    test_look = ledger.record_look(s3, definition, parameters)
    if test_look is None:
        return []
    console.print(ledger.describe_look(test_look), highlight=False)
    return [{"Name": ledger.PARAMETER, "Value": str(test_look.number)}]


def _check_parameters(parameters: Mapping[str, str], definition: Mapping[str, Any]) -> None:
    """Raise RecipeError for a parameter that the pipeline does not have, or of another type."""
    parameter_names = [parameter["Name"] for parameter in definition.get("Parameters", ())]
    for name in parameters:
        if name not in parameter_names:
            raise RecipeError(
                f"--parameter {name}: a run of this pipeline cannot change it: parameters that "
                "the recipe's pipeline.overridable does not list are constant; "
                f"{suggest_nearest(name, parameter_names)}"
            )
    for name, value in parameters.items():
        try:
            resolve_parameters(definition, {name: value})
        except ValueError as error:
            raise RecipeError(f"--parameter {name}={value}: is of another type: {error}") from None


def _check_before_start(
    sagemaker: Any,
    definition: Mapping[str, Any],
    pipeline: str,
    parameters: Mapping[str, str],
    over_budget: str | None,
    fresh: bool,
) -> dict[str, str]:
    """Print warnings about overwritten input data, and check the budget.

    Return the execution's description as an argument of the start request, if it exceeds the budget
    for a reason; otherwise {}.

    Raises:
        PlanError: the execution may exceed the budget and no reason is given, or ``fresh`` is set
            and the training would be a cached result.
    """
    s3 = create_client("s3", sagemaker.meta.region_name)
    recipe = read_recorded_recipe(s3, definition)
    if recipe is None:  # not a pipeline of ours
        return {}
    upcoming_run = budget.predict_run(sagemaker, definition, pipeline, parameters, s3=s3)
    for outcome in upcoming_run.outcomes if fresh else ():
        if outcome.type == "Training" and outcome.answer == "cached":
            run = f" of run {outcome.source.id}" if outcome.source else ""
            raise PlanError(
                f"pipeline {pipeline}: {outcome.step} would be the cached result{run}: the cache "
                f"compares the data's URI, not the data; {NEW_DATA}. Nothing was started"
            )
    for remark in find_overwritten(s3, upcoming_run.document, upcoming_run.outcomes, NEW_DATA):
        console.print(f"! {remark}", style="bold magenta", highlight=False, markup=False)
    verdict = budget.judge_upcoming_run(upcoming_run, budget.read_budget(recipe))
    if verdict.holds:
        return {}
    if not over_budget:
        raise PlanError(
            f"pipeline {pipeline}: budget: {verdict.text}, and upsert it; or start only this run "
            "with --over-budget REASON, which is recorded. Nothing was started"
        )
    console.print(f"over budget: {verdict.text.partition(';')[0]}", highlight=False)
    description = f"over budget: {over_budget} ({verdict.text.partition(';')[0]})"
    return {"PipelineExecutionDescription": description[:LONGEST]}


StartFunction = Callable[[Mapping[str, str], RerunPlan | None, str | None], str]


def follow_execution(
    arn: str,
    parameters: Mapping[str, str],
    *,
    start_again: StartFunction,
    region: str | None,
    stop_on_interrupt: bool = False,
) -> int:
    """Watch an execution to its end; if its training gets no capacity, start another one on the
    next instance type. Return the exit status.

    At the end, the model is approved if the recipe says so.

    ``start_again`` starts that other execution, with parameters, from the Train step.
    """
    types, parameters = set[str](), dict(parameters)
    pipeline = str(parse_arn_variables(arn)["PipelineName"])
    while True:
        status = watch_execution(
            arn, region=region, stop_on_interrupt=stop_on_interrupt, display=DISPLAY
        )
        instance_type = choose_next_type(arn, types, region) if status == FAILED_STATUS else None
        if instance_type is None:
            break
        types.add(instance_type)
        console.print(f"no capacity: training again on {instance_type}", highlight=False)
        rerun, parameters[TYPE] = plan_rerun(STEP, arn, pipeline, region), instance_type
        arn = start_again(parameters, rerun, region)
    if status == 0:
        approve_after_execution(arn, region)
    return status


def read_recipe_pipeline(
    values: Mapping[str, Any],
    recipe: RecipeChoice = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    champion: ChampionOption = None,
    over_budget: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Exceed the recipe's budget; the reason is recorded."),
    ] = None,
) -> Mapping[str, Any]:
    """Return the command's arguments: pipeline, region, functions to start and to follow a run."""
    name, region, account = resolve_pipeline(recipe, overrides, values["pipeline"], environment)
    assert name is not None  # noqa: S101 (the command requires --recipe or --pipeline)
    region = region or values["region"]

    def start_pipeline(
        parameters: Mapping[str, str], rerun: RerunPlan | None, region: str | None
    ) -> str:
        """Start the pipeline after checking the caller's account; return the execution's ARN."""
        refuse_other_caller(account, region)
        options = {"champion": champion, "over_budget": over_budget, "region": region}
        return start(name, parameters, rerun=rerun, **options)

    following = partial(follow_execution, start_again=start_pipeline)
    return {"pipeline": name, "region": region, "start": start_pipeline, "follow": following}


main = extend_verb(
    verb.main,
    read_recipe_pipeline,
    Need(("recipe", "pipeline")),
    require_recipe_for("overrides", "environment"),
    FROM_STEP,
)

if __name__ == "__main__":
    run(main)
