"""List what a pipeline left in an account; remove it, except what registered models depend on.

python -m pipelines.teardown --recipe recipes/prod.yaml [--env prod]             # changes nothing
python -m pipelines.teardown --recipe recipes/prod.yaml [--env prod] --remove    # asks for the name

Removed are the objects below the pipeline's prefix, the pipeline, its model package group once that
is empty, and what deployments created: the recipe's endpoint, its configurations, models and
alarms. A pipeline is kept as long as one of its models is registered, because its executions, which
are part of the model's evidence, would be deleted with it. What serves a registered model is also
kept, and so are captured requests.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.table import Table

from pipelines.delivery import upsert_lock
from pipelines.endpoint.endpoint_requests import CAPTURE_FOLDER
from pipelines.infrastructure.removal_plan import (
    MISSING,
    Contents,
    EndpointResources,
    list_leftovers,
)
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.environments import refuse_other_caller
from pipelines.recipe.read_recipe import load_recipe
from pipelines.upsert import LOCK_SECONDS
from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.common.errors import PlanError, ServiceError
from trainyard.terminal import console, run

AT_ONCE = 1000
"""Maximum number of keys in one DeleteObjects request (Amazon S3 API reference)."""

ALARMS = 100
"""Maximum number of names in one DeleteAlarms request (CloudWatch API reference)."""

STAYS = """\
Not removed: jobs, which SageMaker keeps, and their logs; raw data; the ledger of looks,
s3://{bucket}/{shared}/looks/, which all pipelines below {shared} share; old versions of objects,
where the bucket keeps them; the stacks of infra/, each with aws cloudformation delete-stack.
"""


def main(
    recipe: RecipeOption,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove this, after you type the pipeline's name.")
    ] = False,
) -> None:
    """List the resources and objects that the pipeline left; with --remove, remove them."""
    from pipelines.definition import from_recipe

    recipe_config = load_recipe(recipe, overrides, environment)
    group = recipe_config.register_.model_package_group
    endpoint = recipe_config.deploy.endpoint if recipe_config.deploy else None
    definition = from_recipe(recipe, overrides, environment)
    refuse_other_caller(definition.account, definition.region)
    location = upsert_lock.locate_records(definition)
    prefix = location.prefix.rpartition("/")[0]
    arguments = (definition.name, group, definition.region, location.bucket, prefix, endpoint)
    with console.status("reading models, executions, objects"):
        leftovers = list_leftovers(*arguments)
    console.print(
        _build_table(leftovers, definition.name, group, f"s3://{location.bucket}/{prefix}/")
    )
    for line in (
        _list_resource_names(leftovers.endpoint_resources) if leftovers.endpoint_resources else ()
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    shared_prefix = prefix.rpartition("/")[0]
    console.print(STAYS.format(bucket=location.bucket, shared=shared_prefix), highlight=False)
    if not remove:
        return
    if typer.prompt(f"Type {definition.name} to remove this") != definition.name:
        raise PlanError("this is not the pipeline's name; nothing was removed")
    s3 = create_client("s3", definition.region)
    with (
        service_errors(f"removing what pipeline {definition.name} left"),
        upsert_lock.hold_lock(s3, location, definition.name, LOCK_SECONDS) as lock,
    ):
        if list_leftovers(*arguments) != leftovers:
            raise PlanError("something changed in the meantime; nothing was removed: list it again")
        # Reading everything a second time may have taken longer than the lock lasts.
        lock.renew()
        if leftovers.endpoint_resources:
            _remove_endpoint(leftovers.endpoint_resources, definition.region)
        _remove_objects(s3, location.bucket, sorted(leftovers.removable_objects))
        _remove_pipeline_and_group(
            create_client("sagemaker", definition.region), leftovers, definition.name, group
        )
    console.print("removed")


def _build_table(leftovers: Contents, name: str, group: str, root: str) -> Table:
    """Return a table of what is removed and what is kept, with reasons."""
    table = Table("what", "how much", "is", "because")
    table.add_row(
        f"objects in {root}",
        _format_size(leftovers.removable_objects),
        "removed",
        "no registered model depends on them",
    )
    if leftovers.kept_objects:
        models = ", ".join(arn.rpartition(":")[2] for arn in leftovers.models)
        table.add_row(
            f"objects in {root}", _format_size(leftovers.kept_objects), "kept", f"of {models}"
        )
    if leftovers.capture_objects:
        table.add_row(
            f"objects in {root}{CAPTURE_FOLDER}/",
            _format_size(leftovers.capture_objects),
            "kept",
            "requests to an endpoint are yours to delete",
        )
    for row in (
        _build_endpoint_rows(leftovers.endpoint_resources) if leftovers.endpoint_resources else ()
    ):
        table.add_row(*row)
    if leftovers.exists:
        runs = f"{len(leftovers.executions)} executions registered models that still exist"
        is_kept = bool(leftovers.executions)
        state = (
            ("kept", runs)
            if is_kept
            else ("removed", "no registered model depends on its executions")
        )
        table.add_row(f"pipeline {name}", "", *state)
    if leftovers.packages or ":" in group:
        reason = (
            f"{leftovers.packages} packages" if leftovers.packages else "another account may use it"
        )
        table.add_row(f"model package group {group}", "", "kept", reason)
    else:
        table.add_row(
            f"model package group {group}", "", "removed", "it is empty, or does not exist"
        )
    return table


def _build_endpoint_rows(resources: EndpointResources) -> Iterator[tuple[str, str, str, str]]:
    """Yield the table's rows about an endpoint and its resources."""
    if resources.status:
        state = "kept" if resources.kept_by else "removed"
        reason = resources.kept_by or "the model that it serves is no longer registered"
        yield f"endpoint {resources.endpoint}", resources.status, state, reason
    label = "its models, configurations, alarms"
    if resources.kept_names:
        yield label, str(len(resources.kept_names)), "kept", "of packages that are registered"
    if resources.removable_names:
        yield label, str(len(resources.removable_names)), "removed", "of packages that are not"


def _list_resource_names(resources: EndpointResources) -> Iterator[str]:
    """Yield one line for each resource that is kept or removed: a table would break long names."""
    if resources.kept_by:
        name = resources.endpoint
        yield f"kept: endpoint {name}: aws sagemaker delete-endpoint --endpoint-name {name}"
    for state, names in (("kept", resources.kept_names), ("removed", resources.removable_names)):
        yield from (f"{state}: {name}" for name in names)


def _remove_endpoint(resources: EndpointResources, region: str) -> None:
    """Remove the endpoint, and then its configurations, models and alarms: these cannot be removed
    while the endpoint uses them.
    """
    sagemaker = create_client("sagemaker", region)
    if resources.status and not resources.kept_by:
        sagemaker.delete_endpoint(EndpointName=resources.endpoint)
        sagemaker.get_waiter("endpoint_deleted").wait(EndpointName=resources.endpoint)
    for name in resources.configs:
        sagemaker.delete_endpoint_config(EndpointConfigName=name)
    for name in resources.models:
        sagemaker.delete_model(ModelName=name)
    for start in range(0, len(resources.alarms), ALARMS):
        names = [*resources.alarms[start : start + ALARMS]]
        create_client("cloudwatch", region).delete_alarms(AlarmNames=names)


def _format_size(objects: dict[str, int]) -> str:
    return f"{len(objects):,} objects, {sum(objects.values()) / 1e6:,.1f} MB"


def _remove_objects(s3: Any, bucket: str, keys: Sequence[str]) -> None:
    """Delete the objects, AT_ONCE per request; raise ServiceError if one was not deleted."""
    for start in range(0, len(keys), AT_ONCE):
        batch = keys[start : start + AT_ONCE]
        answer = s3.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
        )
        if failures := answer.get("Errors"):
            first = failures[0]
            raise ServiceError(
                f"s3://{bucket}/{first['Key']}: {first['Code']}: {first['Message']}; "
                f"{len(failures)} objects of this request still exist: list again"
            )


def _remove_pipeline_and_group(sagemaker: Any, leftovers: Contents, name: str, group: str) -> None:
    """Delete the pipeline and its model package group, unless they are to be kept."""
    if leftovers.exists and not leftovers.executions:
        sagemaker.delete_pipeline(PipelineName=name)
    # A group that is given by its ARN may be in another account.
    if not leftovers.packages and ":" not in group:
        try:
            sagemaker.delete_model_package_group(ModelPackageGroupName=group)
        except ClientError as error:
            if read_error_code(error) not in MISSING:
                raise


if __name__ == "__main__":
    run(main)
