"""Tests of the champion, which is looked up in the registry when a run starts."""

import json

import pytest
from botocore.exceptions import ClientError

from pipelines.registry.champion import build_champion_parameters, get_package_group
from pipelines.registry.verification import select_comparable_fields
from steps.evaluate.workload_evaluation import parse_arguments
from tests.pipelines.test_definition import compile_recipe, document
from trainyard.common.errors import RecipeError, ServiceError
from trainyard.language.definition_document import select_cache_key_arguments
from trainyard.language.expressions import resolve_parameters
from trainyard.plan.pipeline_plan import apply_parameters

pytestmark = pytest.mark.long

GROUP = "trainyard-laptop"
LAPTOP = "recipes/laptop.yaml"
SLICED = (LAPTOP, "evaluate.slices=[source]", "shard.by_folder=true")


@pytest.fixture(scope="module")
def definition() -> dict:
    return document(*SLICED)


@pytest.fixture(scope="module")
def clients(aws):
    sagemaker, s3 = aws("sagemaker"), aws("s3")
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


def test_the_base_is_the_champion_of_a_group_that_has_none_also_if_given_by_its_arn(registry):
    arn = registry.register("Rejected")
    given = f"train.start_from={{model_package: '{arn}', model: s3://models/Rejected/model.tar.gz}}"
    begun = document(LAPTOP, given)
    found = build_champion_parameters(registry.sagemaker, begun, {}, None)
    expected = {"ChampionArn": arn, "ChampionModelUri": "s3://models/Rejected/model.tar.gz"}
    assert found == expected
    assert build_champion_parameters(registry.sagemaker, begun, {}, "none") == {
        "ChampionArn": "none"
    }
    newer = registry.register("Approved")
    assert build_champion_parameters(registry.sagemaker, begun, {}, None)["ChampionArn"] == newer
    body = document(LAPTOP, f"register.model_package_group={SHARED}")
    assert build_champion_parameters(registry.sagemaker, body, {}, None)["ChampionArn"] == newer


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


def test_the_champion_is_the_newest_approved_package(registry, definition):
    none = {"ChampionArn": "none"}
    assert build_champion_parameters(registry.sagemaker, definition, {}, None) == none
    registry.register("PendingManualApproval")
    registry.register("Rejected")
    assert build_champion_parameters(registry.sagemaker, definition, {}, None) == none
    older, newer = registry.register("Approved"), registry.register("Approved")
    pending = registry.register("PendingManualApproval")
    expected = {"ChampionArn": newer, "ChampionModelUri": "s3://models/Approved/model.tar.gz"}
    assert build_champion_parameters(registry.sagemaker, definition, {}, None) == expected
    assert build_champion_parameters(registry.sagemaker, definition, {}, "none") == none
    assert build_champion_parameters(registry.sagemaker, definition, {}, pending) == {
        "ChampionArn": pending,
        "ChampionModelUri": "s3://models/PendingManualApproval/model.tar.gz",
    }
    assert (
        build_champion_parameters(registry.sagemaker, definition, {"ChampionArn": "x"}, None) == {}
    )
    registry.sagemaker.update_model_package(ModelPackageArn=newer, ModelApprovalStatus="Rejected")
    found = build_champion_parameters(registry.sagemaker, definition, {}, None)
    assert found["ChampionArn"] == older  # rolled back


def test_a_champion_may_be_files_below_a_prefix(registry, definition):
    source = {"S3DataType": "S3Prefix", "CompressionType": "None", "S3Uri": "s3://models/folder"}
    arn = registry.register("Approved", ModelDataSource={"S3DataSource": source})
    with pytest.raises(ServiceError, match="its model s3://models/folder/ does not exist"):
        build_champion_parameters(registry.sagemaker, definition, {}, None)
    registry.s3.put_object(Bucket="models", Key="folder/config.json", Body=b"{}")
    expected = {"ChampionArn": arn, "ChampionModelUri": "s3://models/folder/"}
    assert build_champion_parameters(registry.sagemaker, definition, {}, None) == expected
    registry.s3.delete_object(Bucket="models", Key="folder/config.json")


def test_another_pipeline_is_told_nothing(registry):
    other = {"Parameters": [], "Steps": []}
    assert build_champion_parameters(registry.sagemaker, other, {}, None) == {}
    with pytest.raises(RecipeError, match="no parameter ChampionArn; upsert it"):
        build_champion_parameters(registry.sagemaker, other, {}, "none")


def test_a_champion_that_is_not_there_or_is_several_models_stops_the_start(registry, definition):
    arn = registry.register("Approved")
    registry.s3.delete_object(Bucket="models", Key="Approved/model.tar.gz")
    with pytest.raises(ServiceError, match="model.tar.gz does not exist.*--champion") as error:
        build_champion_parameters(registry.sagemaker, definition, {}, None)
    assert arn in str(error.value)
    registry.register("Approved", models=2)
    with pytest.raises(ServiceError, match="names 2 models"):
        build_champion_parameters(registry.sagemaker, definition, {}, None)
    nobody = "arn:aws:sagemaker:us-east-1:123456789012:model-package/nobody/1"
    with pytest.raises(ServiceError, match="nobody/1"):
        build_champion_parameters(registry.sagemaker, definition, {}, nobody)


def test_evaluate_is_told_and_understands(definition):
    """Untold, nobody has looked, and the input is there."""
    defaults = {p["Name"]: p.get("DefaultValue") for p in definition["Parameters"]}
    assert defaults["ChampionArn"] == "unresolved"
    [marker] = [a for a in compile_recipe(*SLICED).assets if a.uri == defaults["ChampionModelUri"]]
    assert list(marker.files) == ["no-champion.json"]
    steps = {step["Name"]: step["Arguments"] for step in definition["Steps"]}
    arguments = steps["Evaluate"]["AppSpecification"]["ContainerArguments"]
    assert arguments[arguments.index("--champion") + 1] == {"Get": "Parameters.ChampionArn"}
    options = parse_arguments([a if isinstance(a, str) else "none" for a in arguments])
    assert (options.champion, options.slices) == ("none", ["source"])
    uris = {i["InputName"]: i["S3Input"]["S3Uri"] for i in steps["Evaluate"]["ProcessingInputs"]}
    assert uris["champion"] == {"Get": "Parameters.ChampionModelUri"}
    outputs = steps["Evaluate"]["ProcessingOutputConfig"]["Outputs"]
    assert [output["OutputName"] for output in outputs] == ["evaluation", "scores"]


def test_another_champion_evaluates_and_judges_again_and_trains_nothing(definition):
    """Compared by the step cache's keys; a reference to another step's output changes nothing."""
    steps = {step["Name"]: step for step in definition["Steps"]}
    keys = {
        name: json.dumps(select_cache_key_arguments(step, step["Arguments"]))
        for name, step in steps.items()
    }
    told = {name for name, key in keys.items() if "Champion" in key}
    assert {"Evaluate"} <= told <= {"Evaluate", "Gate"}  # a gate that compares nothing needs none


def test_a_plan_looks_at_the_run_that_start_would_start(definition):
    told = {"ChampionArn": "none"}
    expected = resolve_parameters(definition, told)
    assert resolve_parameters(apply_parameters(definition, told), {}) == expected
    assert resolve_parameters(definition, {}) != expected


SHARED = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/trainyard-laptop"


def test_a_package_in_another_account_than_its_run_names_its_group_by_arn():
    package = {
        "ModelPackageArn": f"{SHARED.replace('-group', '')}/3",
        "ModelPackageGroupName": GROUP,
    }
    run = "arn:aws:sagemaker:us-east-1:{}:pipeline/p/execution/e"
    for account, group in (("123456789012", GROUP), ("111122223333", SHARED)):
        metadata = {"CustomerMetadataProperties": {"execution": run.format(account)}}
        assert get_package_group(package | metadata) == group
    assert get_package_group(package) == GROUP  # not of our pipeline
    by_arn, by_name = ({"ModelPackageGroupName": name} for name in (SHARED, GROUP))
    assert select_comparable_fields(by_arn) == select_comparable_fields(by_name)
