"""List what a pipeline left in an account; remove it, but nothing that a registered model rests on.

python -m pipelines.teardown --recipe recipes/prod.yaml [--env prod]             # changes nothing
python -m pipelines.teardown --recipe recipes/prod.yaml [--env prod] --remove    # asks for the name

Removed are the objects below the pipeline's prefix, the pipeline, its model package group once that
is empty, and what deployments made: the recipe's endpoint, its configurations, models and alarms. A
pipeline stays as long as a registered model does: its executions, which are a part of the model's
evidence, would end with it. So does what serves a registered model. Captured requests stay.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.table import Table

from pipelines.deploy import upsert_lock, upsert_records
from pipelines.deploy.removal_plan import MISSING, Contents, Deployed, contents
from pipelines.recipe.aws_account import refuse_other_caller
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load
from pipelines.serving.endpoint_requests import CAPTURED
from pipelines.upsert import LOCK_SECONDS
from trainyard.aws_clients import client, error_code, service_errors
from trainyard.common.errors import PlanError, ServiceError
from trainyard.terminal import console, run

AT_ONCE = 1000
"""Most keys of one DeleteObjects request (Amazon S3 API reference)."""

ALARMS = 100
"""Most names of one DeleteAlarms request (CloudWatch API reference)."""

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
        bool, typer.Option("--remove", help="Remove it, after the pipeline's name was typed.")
    ] = False,
) -> None:
    """List what the pipeline left, and remove it."""
    from pipelines.definition import from_recipe

    loaded = load(recipe, overrides, environment)
    group = loaded.register_.model_package_group
    endpoint = loaded.deploy.endpoint if loaded.deploy else None
    definition = from_recipe(recipe, overrides, environment)
    refuse_other_caller(definition.account, definition.region)
    place = upsert_records.place(definition)
    prefix = place.prefix.rpartition("/")[0]
    what = (definition.name, group, definition.region, place.bucket, prefix, endpoint)
    with console.status("reading models, executions, objects"):
        left = contents(*what)
    console.print(_table(left, definition.name, group, f"s3://{place.bucket}/{prefix}/"))
    for line in _names_of(left.deployed) if left.deployed else ():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    shared = prefix.rpartition("/")[0]
    console.print(STAYS.format(bucket=place.bucket, shared=shared), highlight=False)
    if not remove:
        return
    if typer.prompt(f"Type {definition.name} to remove this") != definition.name:
        raise PlanError("that is not the pipeline's name: nothing was removed")
    s3 = client("s3", definition.region)
    with (
        service_errors(f"removing what pipeline {definition.name} left"),
        upsert_lock.locked(s3, place, definition.name, LOCK_SECONDS) as lock,
    ):
        if contents(*what) != left:
            raise PlanError("something changed meanwhile: nothing was removed; list it again")
        lock.renew()
        if left.deployed:
            _remove_deployed(left.deployed, definition.region)
        _remove_objects(s3, place.bucket, sorted(left.removed))
        _remove_records(client("sagemaker", definition.region), left, definition.name, group)
    console.print("removed")


def _table(left: Contents, name: str, group: str, root: str) -> Table:
    table = Table("what", "how much", "is", "because")
    table.add_row(f"objects in {root}", _size(left.removed), "removed", "no model rests on them")
    if left.kept:
        models = ", ".join(arn.rpartition(":")[2] for arn in left.models)
        table.add_row(f"objects in {root}", _size(left.kept), "kept", f"of {models}")
    if left.captured:
        table.add_row(f"objects in {root}{CAPTURED}/", _size(left.captured), "kept",
                      "requests to an endpoint are yours to delete")  # fmt: skip
    for row in _rows_of(left.deployed) if left.deployed else ():
        table.add_row(*row)
    if left.exists:
        runs = f"{len(left.executions)} executions registered models that are there"
        kept = bool(left.executions)
        state = ("kept", runs) if kept else ("removed", "no model rests on its executions")
        table.add_row(f"pipeline {name}", "", *state)
    if left.packages or ":" in group:
        why = f"{left.packages} packages" if left.packages else "another account may use it"
        table.add_row(f"model package group {group}", "", "kept", why)
    else:
        table.add_row(f"model package group {group}", "", "removed", "it is empty, if it is there")
    return table


def _rows_of(left: Deployed) -> Iterator[tuple[str, str, str, str]]:
    gone = "what it serves is not registered any more"
    if left.status:
        is_ = "kept" if left.kept_by else "removed"
        yield f"endpoint {left.endpoint}", left.status, is_, left.kept_by or gone
    what = "its models, configurations, alarms"
    if left.kept:
        yield what, str(len(left.kept)), "kept", "of packages that are registered"
    if left.removed:
        yield what, str(len(left.removed)), "removed", "of packages that are not"


def _names_of(left: Deployed) -> Iterator[str]:
    """Iterate over a line for each name: a table would break them."""
    if left.kept_by:
        name = left.endpoint
        yield f"kept: endpoint {name}: aws sagemaker delete-endpoint --endpoint-name {name}"
    for is_, names in (("kept", left.kept), ("removed", left.removed)):
        yield from (f"{is_}: {name}" for name in names)


def _remove_deployed(left: Deployed, region: str) -> None:
    """Remove the endpoint first: what it serves cannot go before."""
    sagemaker = client("sagemaker", region)
    if left.status and not left.kept_by:
        sagemaker.delete_endpoint(EndpointName=left.endpoint)
        sagemaker.get_waiter("endpoint_deleted").wait(EndpointName=left.endpoint)
    for name in left.configs:
        sagemaker.delete_endpoint_config(EndpointConfigName=name)
    for name in left.models:
        sagemaker.delete_model(ModelName=name)
    for start in range(0, len(left.alarms), ALARMS):
        names = [*left.alarms[start : start + ALARMS]]
        client("cloudwatch", region).delete_alarms(AlarmNames=names)


def _size(objects: dict[str, int]) -> str:
    return f"{len(objects):,} objects, {sum(objects.values()) / 1e6:,.1f} MB"


def _remove_objects(s3: Any, bucket: str, keys: Sequence[str]) -> None:
    for start in range(0, len(keys), AT_ONCE):
        batch = keys[start : start + AT_ONCE]
        answer = s3.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
        )
        if refused := answer.get("Errors"):
            first = refused[0]
            raise ServiceError(
                f"s3://{bucket}/{first['Key']}: {first['Code']}: {first['Message']}; "
                f"{len(refused)} objects of this request are still there: list again"
            )


def _remove_records(sagemaker: Any, left: Contents, name: str, group: str) -> None:
    if left.exists and not left.executions:
        sagemaker.delete_pipeline(PipelineName=name)
    if not left.packages and ":" not in group:
        try:
            sagemaker.delete_model_package_group(ModelPackageGroupName=group)
        except ClientError as error:
            if error_code(error) not in MISSING:
                raise


if __name__ == "__main__":
    run(main)
