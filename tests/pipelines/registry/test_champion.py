"""Tests of the champion, which is looked up in the registry when a run starts."""

import json
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from pipelines.definition import build
from pipelines.recipe.environments import resolve
from pipelines.recipe.read_recipe import load
from pipelines.registry.champion import champion_parameters, group_of
from pipelines.registry.verification import comparable
from trainyard.common.errors import RecipeError, ServiceError
from trainyard.language.definition_document import key_arguments
from trainyard.language.expressions import values
from trainyard.plan.pipeline_plan import started_with

pytestmark = pytest.mark.long

GROUP = "trainyard-laptop"


@pytest.fixture(scope="module")
def compiled():
    recipe = load(Path("recipes/laptop.yaml"), ["evaluate.slices=[source]", "shard.by_folder=true"])
    return build(recipe, resolve(recipe.aws), commit="0" * 40, source=None)


@pytest.fixture(scope="module")
def definition(compiled) -> dict:
    return json.loads(compiled.body)


@pytest.fixture(scope="module")
def clients(emulator):
    session = boto3.Session(
        aws_access_key_id=emulator.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=emulator.env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    sagemaker, s3 = (session.client(n, endpoint_url=emulator.url) for n in ("sagemaker", "s3"))
    s3.create_bucket(Bucket="models")
    return sagemaker, s3


@pytest.fixture
def registry(clients, emulator, monkeypatch):
    """The registry, empty."""
    for name, value in emulator.env.items():
        monkeypatch.setenv(name, value)
    sagemaker, s3 = clients
    yield Registry(sagemaker, s3)
    try:
        found = sagemaker.list_model_packages(ModelPackageGroupName=GROUP)
    except ClientError:
        return
    for package in found["ModelPackageSummaryList"]:
        sagemaker.delete_model_package(ModelPackageName=package["ModelPackageArn"])
    sagemaker.delete_model_package_group(ModelPackageGroupName=GROUP)


def test_the_base_is_the_champion_of_a_group_that_has_none(registry):
    arn = registry.register("Rejected")
    recipe = load(
        Path("recipes/laptop.yaml"),
        [f"train.start_from={{model_package: '{arn}', model: s3://models/Rejected/model.tar.gz}}"],
    )
    begun = json.loads(build(recipe, resolve(recipe.aws), commit="0" * 40, source=None).body)
    found = champion_parameters(registry.sagemaker, begun, {}, None)
    expected = {"ChampionArn": arn, "ChampionModelUri": "s3://models/Rejected/model.tar.gz"}
    assert found == expected
    assert champion_parameters(registry.sagemaker, begun, {}, "none") == {"ChampionArn": "none"}
    newer = registry.register("Approved")
    assert champion_parameters(registry.sagemaker, begun, {}, None)["ChampionArn"] == newer


class Registry:
    def __init__(self, sagemaker, s3) -> None:
        self.sagemaker, self.s3 = sagemaker, s3

    def register(self, status: str, models: int = 1, **container) -> str:
        groups = self.sagemaker.list_model_package_groups()["ModelPackageGroupSummaryList"]
        if not groups:
            self.sagemaker.create_model_package_group(ModelPackageGroupName=GROUP)
        self.s3.put_object(Bucket="models", Key=f"{status}/model.tar.gz", Body=b"x")
        image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
        container = container or {"ModelDataUrl": f"s3://models/{status}/model.tar.gz"}
        return self.sagemaker.create_model_package(
            ModelPackageGroupName=GROUP,
            ModelApprovalStatus=status,
            InferenceSpecification={
                "Containers": [{"Image": image, **container}] * models,
                "SupportedContentTypes": ["application/json"],
                "SupportedResponseMIMETypes": ["application/json"],
            },
        )["ModelPackageArn"]


def test_before_the_first_registration_there_is_none(registry, definition):
    assert champion_parameters(registry.sagemaker, definition, {}, None) == {"ChampionArn": "none"}


def test_what_nobody_approved_is_no_champion(registry, definition):
    registry.register("PendingManualApproval")
    registry.register("Rejected")
    assert champion_parameters(registry.sagemaker, definition, {}, None) == {"ChampionArn": "none"}


def test_the_champion_is_the_newest_approved_package(registry, definition):
    older, newer = registry.register("Approved"), registry.register("Approved")
    registry.register("PendingManualApproval")
    expected = {"ChampionArn": newer, "ChampionModelUri": "s3://models/Approved/model.tar.gz"}
    assert champion_parameters(registry.sagemaker, definition, {}, None) == expected
    registry.sagemaker.update_model_package(ModelPackageArn=newer, ModelApprovalStatus="Rejected")
    found = champion_parameters(registry.sagemaker, definition, {}, None)
    assert found["ChampionArn"] == older  # rolled back


def test_a_champion_may_be_files_below_a_prefix(registry, definition):
    source = {"S3DataType": "S3Prefix", "CompressionType": "None", "S3Uri": "s3://models/folder"}
    arn = registry.register("Approved", ModelDataSource={"S3DataSource": source})
    with pytest.raises(ServiceError, match="its model s3://models/folder/ is not there"):
        champion_parameters(registry.sagemaker, definition, {}, None)
    registry.s3.put_object(Bucket="models", Key="folder/config.json", Body=b"{}")
    expected = {"ChampionArn": arn, "ChampionModelUri": "s3://models/folder/"}
    assert champion_parameters(registry.sagemaker, definition, {}, None) == expected
    registry.s3.delete_object(Bucket="models", Key="folder/config.json")


def test_who_says_who_it_is_decides(registry, definition):
    registry.register("Approved")
    pending = registry.register("PendingManualApproval")
    find = champion_parameters
    assert find(registry.sagemaker, definition, {}, "none") == {"ChampionArn": "none"}
    assert find(registry.sagemaker, definition, {}, pending) == {
        "ChampionArn": pending,
        "ChampionModelUri": "s3://models/PendingManualApproval/model.tar.gz",
    }
    assert find(registry.sagemaker, definition, {"ChampionArn": "x"}, None) == {}


def test_another_pipeline_is_told_nothing(registry):
    other = {"Parameters": [], "Steps": []}
    assert champion_parameters(registry.sagemaker, other, {}, None) == {}
    with pytest.raises(RecipeError, match="this pipeline takes none; upsert it"):
        champion_parameters(registry.sagemaker, other, {}, "none")


def test_a_champion_whose_model_is_gone_stops_the_start(registry, definition):
    arn = registry.register("Approved")
    registry.s3.delete_object(Bucket="models", Key="Approved/model.tar.gz")
    with pytest.raises(ServiceError, match="model.tar.gz is not there.*--champion") as error:
        champion_parameters(registry.sagemaker, definition, {}, None)
    assert arn in str(error.value)


def test_a_champion_of_several_models_is_refused(registry, definition):
    registry.register("Approved", models=2)
    with pytest.raises(ServiceError, match="names 2 models"):
        champion_parameters(registry.sagemaker, definition, {}, None)


def test_an_arn_that_nobody_registered_is_refused(registry, definition):
    arn = "arn:aws:sagemaker:us-east-1:123456789012:model-package/nobody/1"
    with pytest.raises(ServiceError, match="nobody/1"):
        champion_parameters(registry.sagemaker, definition, {}, arn)


def test_untold_nobody_has_looked_and_the_input_is_there(compiled, definition):
    defaults = {p["Name"]: p.get("DefaultValue") for p in definition["Parameters"]}
    assert defaults["ChampionArn"] == "unresolved"
    [marker] = [a for a in compiled.assets if a.uri == defaults["ChampionModelUri"]]
    assert list(marker.files) == ["no-champion.json"]


def test_evaluate_is_told_and_understands(definition):
    from steps.evaluate.workload_evaluation import parse

    steps = {step["Name"]: step["Arguments"] for step in definition["Steps"]}
    arguments = steps["Evaluate"]["AppSpecification"]["ContainerArguments"]
    assert arguments[arguments.index("--champion") + 1] == {"Get": "Parameters.ChampionArn"}
    options = parse([a if isinstance(a, str) else "none" for a in arguments])
    assert (options.champion, options.slices) == ("none", ["source"])
    uris = {i["InputName"]: i["S3Input"]["S3Uri"] for i in steps["Evaluate"]["ProcessingInputs"]}
    assert uris["champion"] == {"Get": "Parameters.ChampionModelUri"}
    outputs = steps["Evaluate"]["ProcessingOutputConfig"]["Outputs"]
    assert [output["OutputName"] for output in outputs] == ["evaluation", "scores"]


def test_another_champion_evaluates_and_judges_again_and_trains_nothing(definition):
    """Compared by the step cache's keys; a reference to another step's output changes nothing."""
    steps = {step["Name"]: step for step in definition["Steps"]}
    keys = {
        name: json.dumps(key_arguments(step, step["Arguments"])) for name, step in steps.items()
    }
    told = {name for name, key in keys.items() if "Champion" in key}
    assert {"Evaluate"} <= told <= {"Evaluate", "Gate"}  # a gate that compares nothing needs none


def test_a_plan_looks_at_the_run_that_start_would_start(definition):
    told = {"ChampionArn": "none"}
    expected = values(definition, told)
    assert values(started_with(definition, told), {}) == expected
    assert values(definition, {}) != expected


@pytest.mark.parametrize(
    ("recipe", "slices", "expected"),
    [
        ("laptop", "[sources]", "'sources' is not a slice of workload language_model; nearest"),
        ("laptop", "[source]", "'source' is the folder .*; set shard.by_folder to true"),
        ("flights", "[carier]", "nearest valid name: carrier"),
        ("flights", "[temp]", "'temp' is not a slice of workload tabular"),
    ],
)
def test_a_slice_that_the_workload_does_not_know_is_named(recipe, slices, expected):
    with pytest.raises(RecipeError, match=f"evaluate.slices: .*{expected}"):
        load(Path(f"recipes/{recipe}.yaml"), [f"evaluate.slices={slices}"])
    assert load(Path("recipes/flights.yaml"), ["evaluate.slices=[carrier, origin]"])


SHARED = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/trainyard-laptop"


def test_a_group_given_by_its_arn_has_the_same_champion(registry):
    recipe = load(Path("recipes/laptop.yaml"), [f"register.model_package_group={SHARED}"])
    body = json.loads(build(recipe, resolve(recipe.aws), commit="0" * 40, source=None).body)
    arn = registry.register("Approved")
    assert champion_parameters(registry.sagemaker, body, {}, None)["ChampionArn"] == arn


def test_a_package_in_another_account_than_its_run_names_its_group_by_arn():
    package = {
        "ModelPackageArn": f"{SHARED.replace('-group', '')}/3",
        "ModelPackageGroupName": GROUP,
    }
    run = "arn:aws:sagemaker:us-east-1:{}:pipeline/p/execution/e"
    for account, group in (("123456789012", GROUP), ("111122223333", SHARED)):
        metadata = {"CustomerMetadataProperties": {"execution": run.format(account)}}
        assert group_of(package | metadata) == group
    assert group_of(package) == GROUP  # not of our pipeline


def test_a_package_is_described_by_the_name_of_a_group_that_was_asked_for_by_arn():
    assert comparable({"ModelPackageGroupName": SHARED}) == comparable(
        {"ModelPackageGroupName": GROUP}
    )
