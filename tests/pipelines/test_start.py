"""Starting: what a run may cost, by the budget of the recipe that is deployed."""

import json
from contextlib import suppress

import pytest

from pipelines.compile.provenance_asset import read_recorded_recipe
from pipelines.definition import from_recipe
from pipelines.start import main, start
from pipelines.upsert import upsert
from tests.pipelines.upserting import clean_aws, definition
from tests.trainyard.plan.pictures import HERE
from trainyard.common.errors import PlanError, RecipeError, ServiceError
from trainyard.emulator.sagemaker.jobs.training_job import VARIABLE
from trainyard.runs.selective_rerun import RerunPlan

pytestmark = pytest.mark.long

RECIPE = HERE / "recipe.yaml"
PIPELINE = "trainyard-dev"


def stop(sagemaker, arn: str) -> None:
    with suppress(sagemaker.exceptions.ClientError):  # it may have failed: there are no data
        sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="0" * 32)


@pytest.fixture
def aws(emulator, monkeypatch: pytest.MonkeyPatch):
    return clean_aws(emulator.env, monkeypatch)


@pytest.fixture
def deployed_clients(aws):
    """The recipe's pipeline with its budget of $400 a run, and both clients."""
    upsert(from_recipe(RECIPE))
    return aws


def runs(sagemaker) -> list[str]:
    answer = sagemaker.list_pipeline_executions(PipelineName=PIPELINE)
    return [run["PipelineExecutionArn"] for run in answer["PipelineExecutionSummaries"]]


@pytest.mark.parametrize(
    ("by", "parameter", "told"),
    [
        ("recipe", "TrainInstanceCount=6", r"may cost \$\d+\.\d\d .* the recipe allows \$400\.00"),
        ("pipeline", "TrainInstanceType=ml.p4d.24xlarge", r"may cost \$\d+\.\d\d .* \$400\.00"),
        ("recipe", "TrainInstanceType=ml.none.xlarge", "no price for ml.none.xlarge"),
    ],
)
def test_parameters_beyond_the_budget_start_nothing(
    deployed_clients, by: str, parameter: str, told: str
):
    _, sagemaker = deployed_clients
    before = runs(sagemaker)
    which = {"recipe": RECIPE} if by == "recipe" else {"pipeline": PIPELINE}
    with pytest.raises(PlanError, match=f"budget: .*{told}.*--over-budget REASON") as refused:
        main(**which, parameter=[parameter])
    assert "Nothing was started" in str(refused.value)
    assert runs(sagemaker) == before


def test_a_recipe_that_was_not_upserted_does_not_raise_the_budget(deployed_clients):
    with pytest.raises(PlanError, match=r"the recipe allows \$400\.00"):
        main(RECIPE, ["budget.usd_per_run=1000000"], parameter=["TrainInstanceCount=6"])
    with pytest.raises(RecipeError, match="--parameter TrainInstanceCount=many: is of another"):
        start(PIPELINE, {"TrainInstanceCount": "many"})


def test_a_reason_starts_the_run_and_stands_in_it_if_it_was_needed(deployed_clients, capsys):
    _, sagemaker = deployed_clients
    for count, needed in (("6", True), ("1", False)):
        arn = start(PIPELINE, {"TrainInstanceCount": count}, over_budget="the retraining")
        told = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
        why = told.get("PipelineExecutionDescription", "")
        assert why.startswith("over budget: the retraining (a run may cost $" if needed else "")
        assert bool(why) == ("over budget: a run may cost" in capsys.readouterr().out) == needed
        stop(sagemaker, arn)


def test_a_record_that_is_gone_starts_nothing(deployed_clients):
    """Without the record the budget is unknown, and the gate could not run either."""
    s3, sagemaker = deployed_clients
    body = json.loads(sagemaker.describe_pipeline(PipelineName=PIPELINE)["PipelineDefinition"])
    bucket = "example-trainyard"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    for key in [key for key in keys if key.endswith("recipe.json")]:
        s3.delete_object(Bucket=bucket, Key=key)
    with pytest.raises(ServiceError, match=r"reading the deployed recipe s3://.*recipe\.json"):
        start(PIPELINE, {})
    with pytest.raises(ServiceError, match="NoSuchKey"):
        read_recorded_recipe(s3, body)
    assert read_recorded_recipe(s3, json.loads(definition("1").body)) is None, "of others"


def test_credentials_of_another_account_start_nothing(deployed_clients, tmp_path):
    _, sagemaker = deployed_clients
    recipe = tmp_path / "recipe.yaml"
    role, other = (f"arn:aws:iam::{n}:role/trainyard" for n in ("444455556666", "111122223333"))
    recipe.write_text(f"extends: {RECIPE}\nenvironments: {{prod: {{aws: {{role: '{role}'}}}}}}\n")
    before = runs(sagemaker)
    with pytest.raises(PlanError, match="for account 444455556666, .* to 123456789012"):
        main(recipe, environment="prod")
    with pytest.raises(PlanError, match="for account 111122223333"):
        main(recipe, ["aws.account=111122223333", f"aws.role={other}"], environment="prod")
    assert runs(sagemaker) == before


def test_shards_of_another_run_cannot_be_mounted(aws, monkeypatch):
    _, sagemaker = aws
    monkeypatch.setenv(VARIABLE, "fs-0a1b2c3d=s3://bkt")
    vpc = "aws.vpc={subnets: [subnet-0a1b2c3d], security_groups: [sg-0a1b2c3d]}"
    fsx = "train.fsx={file_system_id: fs-0a1b2c3d, directory_path: /mount/data}"
    upsert(from_recipe(RECIPE, (vpc, fsx, "train.input_mode=FSxLustre")))
    before = runs(sagemaker)
    arn = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/trainyard-dev/execution/000000000000"
    kept = {"runs": {"Train": ""}, "reused_steps": {"Shard": ""}, "unneeded_steps": ()}
    again = RerunPlan(pipeline=PIPELINE, source=arn, parameters={}, fixed_parameters={}, **kept)
    with pytest.raises(RecipeError, match="--from: step Train mounts the shards of its own run"):
        start(PIPELINE, {}, rerun=again)
    assert runs(sagemaker) == before
