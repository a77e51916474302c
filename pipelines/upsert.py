"""Create or update the pipeline, only if something changed; optionally start and watch it.

python -m pipelines.upsert --recipe recipes/laptop.yaml [--set FIELD.PATH=VALUE] [--start] [--wait]
python -m pipelines.upsert --plan plan.json       # exactly what python -m pipelines.plan showed

An upsert that changes something holds the pipeline's lock, uploads the code first, records the
whole request, and then changes the pipeline in one call. Tags, which need calls of their own, come
last. If it is killed at any point, the old pipeline or the new one is left, and the next upsert
continues.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.training_inputs import refuse_other_base_model
from pipelines.delivery import budget, saved_plan, upsert_lock
from pipelines.delivery.saved_plan import create_buckets, refuse_invalid_definition, upload_code
from pipelines.delivery.wheel_download import refuse_missing_wheels
from pipelines.recipe.cli_options import NOT_GIVEN, ChampionOption, EnvOption, SetOption
from pipelines.recipe.environments import refuse_other_caller
from pipelines.registry.champion import build_champion_parameters
from pipelines.start import follow_execution, start
from trainyard.aws_clients import create_client, service_errors
from trainyard.commands.start import StopOption, WaitOption
from trainyard.common.errors import PlanError
from trainyard.plan import deployed_pipeline
from trainyard.plan.deployed_pipeline import DeployedPipeline, State
from trainyard.terminal import Need, console, needs, run

LOCK_SECONDS = 600.0  # time after which others may take over the lock of an upsert that died
SETTLES = 5  # seconds within which DescribePipeline must show the update


@dataclass(frozen=True, slots=True)
class UpsertResult:
    """What an upsert did."""

    change: Literal["created", "updated", "unchanged"]
    uploaded_bytes: int


def upsert(
    definition: CompiledPipeline,
    *,
    plan: saved_plan.SavedPlan | None = None,
    lock_seconds: float = LOCK_SECONDS,
) -> UpsertResult:
    """Upload missing code, then create or update the pipeline if it differs.

    If the pipeline is unchanged, no lock is taken, and only missing code is uploaded. ``plan``:
    apply exactly this plan, or nothing.

    Raises:
        PlanError: the credentials are of another account than the recipe's; the recipe's budget is
            exceeded; another upsert is running, or changed the pipeline since this one started; or
            ``plan`` is for another state.
        DefinitionError: validation finds an error in the definition, or a wheelhouse is missing;
            nothing is uploaded.
        ServiceError: AWS refused, or could not be reached.
    """
    refuse_invalid_definition(definition)
    refuse_other_caller(definition.account, definition.region)
    refuse_other_base_model(definition.state.document, definition.region)
    with service_errors(f"upserting pipeline {definition.name}"):
        sagemaker = create_client("sagemaker", definition.region)
        s3 = create_client("s3", definition.region)
        earlier = deployed_pipeline.describe_deployed_pipeline(sagemaker, definition.name)
        target_state = definition.state
        if earlier and earlier.state.fingerprint == target_state.fingerprint:
            return UpsertResult("unchanged", upload_code(s3, definition))
        if plan:
            plan.refuse_changed_pipeline(earlier)
        _refuse_over_budget(sagemaker, definition, target_state, exists=earlier is not None)
        refuse_missing_wheels(s3, definition.wheelhouses)
        create_buckets(s3, definition)
        location = upsert_lock.locate_records(definition)
        with upsert_lock.hold_lock(s3, location, definition.name, lock_seconds) as lock:
            current = deployed_pipeline.describe_deployed_pipeline(sagemaker, definition.name)
            # Another upsert made the same change.
            if current and current.state.fingerprint == target_state.fingerprint:
                return UpsertResult("unchanged", upload_code(s3, definition))
            _refuse_if_changed(earlier, current)
            byte_count = upload_code(s3, definition)
            # Written before the pipeline changes: a deployed state without a record would count as
            # drift.
            upsert_lock.write_record(s3, location, target_state)
            # The upload may have taken longer than the lock lasts.
            lock.renew()
            _write_pipeline(sagemaker, current, target_state)
            _verify_pipeline(sagemaker, target_state)
        return UpsertResult("updated" if current else "created", byte_count)


def _refuse_over_budget(
    sagemaker: Any, definition: CompiledPipeline, target_state: State, *, exists: bool
) -> None:
    """Raise PlanError if the next execution would exceed the recipe's budget, as a plan predicts
    it.
    """
    if definition.budget.usd_per_run is None:
        return
    parameters = build_champion_parameters(sagemaker, target_state.document, {}, None)
    s3 = create_client("s3", sagemaker.meta.region_name)
    run = budget.predict_run(
        sagemaker, target_state.document, target_state.name, parameters, exists=exists, s3=s3
    )
    verdict = budget.judge_upcoming_run(run, definition.budget)
    if not verdict.holds:
        raise PlanError(
            f"pipeline {target_state.name}: budget: {verdict.text}. Nothing was changed"
        )


def _refuse_if_changed(earlier: DeployedPipeline | None, current: DeployedPipeline | None) -> None:
    """Raise PlanError if another upsert changed the pipeline after we read it and before we held
    the lock, because what we showed would be wrong.
    """
    if current and (earlier is None or earlier.state.fingerprint != current.state.fingerprint):
        raise PlanError(
            f"pipeline {current.state.name}: {current.by} changed it at "
            f"{current.changed_at:%H:%M:%S}, while this upsert was starting; nothing was changed: "
            "check "
            "python -m pipelines.plan, and try again"
        )
    if earlier and current is None:
        raise PlanError(f"pipeline {earlier.state.name}: it was deleted in the meantime; try again")


def _write_pipeline(sagemaker: Any, current: DeployedPipeline | None, target_state: State) -> None:
    """Create or update the pipeline, then its tags."""
    if current is None:
        sagemaker.create_pipeline(
            **target_state.build_request(), Tags=_format_aws_tags(target_state.tags)
        )
        return
    if current.state.build_request() != target_state.build_request():
        sagemaker.update_pipeline(**target_state.build_request())
    new_tags = {k: v for k, v in target_state.tags.items() if current.state.tags.get(k) != v}
    # Tags need calls of their own; if an upsert is killed before these, the next one finds the
    # difference.
    if new_tags:
        sagemaker.add_tags(ResourceArn=current.arn, Tags=_format_aws_tags(new_tags))
    if removed_tags := sorted(current.state.tags.keys() - target_state.tags.keys()):
        sagemaker.delete_tags(ResourceArn=current.arn, TagKeys=removed_tags)


def _format_aws_tags(tags: Any) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _verify_pipeline(sagemaker: Any, target_state: State) -> None:
    """Raise PlanError if the pipeline is not as requested: other tools may not respect the lock."""
    for attempt in range(SETTLES + 1):
        deployment = deployed_pipeline.describe_deployed_pipeline(sagemaker, target_state.name)
        if deployment and deployment.state.fingerprint == target_state.fingerprint:
            return
        if attempt < SETTLES:
            time.sleep(1)
    raise PlanError(
        f"pipeline {target_state.name}: was upserted, but is not what was asked for: it was "
        "changed at the same time without the lock, or the service keeps it in another form; "
        "python -m pipelines.plan shows how it differs"
    )


@needs(Need(("recipe", "plan"), exclusive=False))
def main(
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="The recipe's YAML file; default: the plan's.")
    ] = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Apply this plan.json exactly, or nothing.")
    ] = None,
    lock_seconds: Annotated[
        float, typer.Option(help="Seconds after which others may take over the lock.", min=1)
    ] = LOCK_SECONDS,
    start_it: Annotated[bool, typer.Option("--start", help="Start an execution.")] = False,
    champion: ChampionOption = None,
    wait: WaitOption = False,
    stop_on_interrupt: StopOption = False,
) -> None:
    """Create or update the pipeline of a recipe, only if something changed."""
    definition, approved_plan = _compile_definition(recipe, overrides, environment, plan)
    result = upsert(definition, plan=approved_plan, lock_seconds=lock_seconds)
    console.print(
        f"pipeline [bold]{definition.name}[/]: {result.change} "
        f"(definition {definition.sha256[:12]}, {result.uploaded_bytes} bytes of code uploaded)",
        highlight=False,
    )
    if start_it or wait:

        def start_pipeline(parameters: Any, rerun: Any, region: str | None) -> str:
            """Start an execution and return its ARN; ``follow`` calls it for a rerun."""
            options = {"champion": champion, "region": region}
            return start(definition.name, parameters, rerun=rerun, **options)

        execution = start_pipeline({}, None, definition.region)
        if wait:
            status = follow_execution(
                execution,
                {},
                start_again=start_pipeline,
                region=definition.region,
                stop_on_interrupt=stop_on_interrupt,
            )
            raise typer.Exit(status)


def _compile_definition(
    recipe: Path | None, overrides: Any, environment: str | None, plan: Path | None
) -> tuple[CompiledPipeline, saved_plan.SavedPlan | None]:
    """Return the compiled definition, and the plan if one is given."""
    # First, so that a damaged plan is reported before the SDK is loaded.
    approved_plan = saved_plan.read_plan(plan) if plan else None
    if approved_plan and recipe is None:
        recipe, overrides = approved_plan.recipe, approved_plan.overrides
    environment = environment or (approved_plan.environment if approved_plan else None)
    assert recipe is not None  # noqa: S101 (--recipe or --plan is required)
    from pipelines.definition import from_recipe  # loads the SDK, which takes seconds

    definition = from_recipe(recipe, overrides, environment)
    if approved_plan:
        approved_plan.refuse_other_recipe(definition)
    return definition, approved_plan


if __name__ == "__main__":
    run(main)
