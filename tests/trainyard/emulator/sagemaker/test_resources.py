"""Every operation of SageMaker: implemented, stored and readable, or refused by name."""

import json
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, cloud
from tests.trainyard.emulator.requests import MODEL, full, minimal, operations
from trainyard.emulator.sagemaker.resources import KINDS, Kind

pytestmark = pytest.mark.long

TAGS = [{"Key": "k", "Value": "v"}]
ROLE = "arn:aws:iam::123456789012:role/some-role-name"
VERBS = ("Create", "Describe", "List", "Update", "Delete")
VARIANT = {"VariantName": "v", "ModelName": "served", "InstanceType": "ml.m5.large"}
MADE: dict[str, dict] = {
    "Model": {"ModelName": "M-1", "PrimaryContainer": {"Image": "i"}, "Tags": TAGS},
    "EndpointConfig": {
        "EndpointConfigName": "C-1",
        "ProductionVariants": [VARIANT | {"InitialInstanceCount": 1}],
        "Tags": TAGS,
    },
}
"""Requests for what is checked before it is stored."""


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


def call(aws: Cloud, operation: str, request: dict) -> dict:
    return getattr(aws.sm, xform_name(operation))(**request)


def code(aws: Cloud, operation: str, request: dict) -> str:
    """Return the answer's error code; empty without an error."""
    try:
        call(aws, operation, request)
    except ClientError as failure:
        return failure.response["Error"]["Code"]
    return ""


def test_every_operation_of_sagemaker_is_done_kept_or_refused_by_name(tmp_path: Path):
    with cloud(tmp_path) as aws:
        refused = walked(aws)
    for name, message in refused.items():
        assert f"does not implement {name}: it would need" in message
    pretended = "AutoMLJobV2 CompilationJob LabelingJob"
    for noun in f"{pretended} MonitoringSchedule NotebookInstance FeatureGroup Cluster".split():
        assert f"Create{noun}" in refused, noun
    assert len(refused) > 300


def walked(aws: Cloud) -> dict[str, str]:
    """Call every operation; return those refused by name → how."""
    kept = {o.name for kind in KINDS for v in VERBS if (o := kind.operation(v))}
    kept |= {"AssociateTrialComponent", "DisassociateTrialComponent", "ListModelCardVersions"}
    refused = {}
    for operation in operations():
        try:
            call(aws, operation.name, minimal(operation.name))
        except ClientError as failure:
            error = failure.response["Error"]
            assert failure.response["ResponseMetadata"]["HTTPStatusCode"] < 500, operation.name
            if error["Code"] == "UnknownOperationException":
                refused[operation.name] = error["Message"]
                continue
        done = aws.endpoint.app.sagemaker.owns(operation.name) or "ModelPackage" in operation.name
        assert operation.name in kept or done, f"{operation.name} is answered: by what?"
    return refused


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_kept_is_read_back_whole_and_once(aws, kind: Kind):
    made = MADE.get(kind.name) or full(f"Create{kind.name}")
    if kind.name == "EndpointConfig":
        call(aws, "CreateModel", MADE["Model"] | {"ModelName": "served"})
    if kind.name == "Trial":
        call(aws, "CreateExperiment", {"ExperimentName": made["ExperimentName"]})
    arn = call(aws, f"Create{kind.name}", made)[kind.arn_key]
    named = {kind.key: made[kind.key]}
    shown = call(aws, f"Describe{kind.name}", named)
    times = {"StartTime", "EndTime"}  # come back as datetime
    for member in made.keys() - {"Tags", "ClientToken"} - times:
        assert shown[member] == made[member], member
    assert all(shown[member].timestamp() == made[member] for member in times & made.keys())
    assert {kind.arn_key, "CreationTime"} <= shown.keys()
    assert set(shown) - {"ResponseMetadata"} <= kind.description_members
    listed = call(aws, f"List{kind.name}s", {"NameContains": made[kind.key]} if by(kind) else {})
    assert arn in json.dumps(listed, default=str)
    if "Tags" in made:
        assert aws.sm.list_tags(ResourceArn=arn)["Tags"] == made["Tags"]
    assert code(aws, f"Create{kind.name}", made) in ("ValidationException", *TWICE)
    call(aws, f"Delete{kind.name}", named)
    assert code(aws, f"Describe{kind.name}", named) in ("ValidationException", "ResourceNotFound")
    assert code(aws, f"Delete{kind.name}", named) in ("ValidationException", "ResourceNotFound")


TWICE = ("ResourceInUse", "ConflictException")


def test_a_name_in_another_case_is_the_same(aws):
    made = aws.sm.create_model(ModelName="Cased", PrimaryContainer={"Image": "i"})["ModelArn"]
    assert made.endswith(":model/cased")
    assert aws.sm.describe_model(ModelName="cASED")["ModelName"] == "Cased"
    again = {"ModelName": "CASED", "PrimaryContainer": {"Image": "i"}}
    assert code(aws, "CreateModel", again) == "ValidationException"


def by(kind: Kind) -> bool:
    return "NameContains" in MODEL.operation_model(f"List{kind.name}s").input_shape.members


def test_a_name_that_is_no_file_name_is_refused(aws):
    for name in ("../../x", "a/b", "x" * 121, "-a"):
        assert code(aws, "CreateExperiment", {"ExperimentName": name}) == "ValidationException"


def test_trials_and_components_belong_together(aws):
    sm = aws.sm
    assert code(aws, "CreateTrial", {"TrialName": "t", "ExperimentName": "none"}) == (
        "ResourceNotFound"
    )
    sm.create_experiment(ExperimentName="e")
    for trial in ("t1", "t2"):
        sm.create_trial(TrialName=trial, ExperimentName="e")
    for component in ("c1", "c2"):
        sm.create_trial_component(TrialComponentName=component)
    sm.associate_trial_component(TrialComponentName="c1", TrialName="t1")
    names = lambda **by: [  # noqa: E731
        c["TrialComponentName"]
        for c in sm.list_trial_components(SortBy="Name", SortOrder="Ascending", **by)[
            "TrialComponentSummaries"
        ]
    ]
    assert names(TrialName="t1") == ["c1"] == names(ExperimentName="e")
    assert names(TrialName="t2") == []
    trials = lambda **by: [t["TrialName"] for t in sm.list_trials(**by)["TrialSummaries"]]  # noqa: E731
    assert trials(ExperimentName="e") == ["t2", "t1"]  # the newest first, as on AWS
    assert trials(TrialComponentName="c1") == ["t1"]
    sm.disassociate_trial_component(TrialComponentName="c1", TrialName="t1")
    assert names(TrialName="t1") == []
    sm.update_trial_component(TrialComponentName="c1", Parameters={"a": {"NumberValue": 1.0}})
    sm.update_trial_component(TrialComponentName="c1", Parameters={"b": {"StringValue": "x"}})
    sm.update_trial_component(TrialComponentName="c1", ParametersToRemove=["a"])
    shown = sm.describe_trial_component(TrialComponentName="c1")
    assert shown["Parameters"] == {"b": {"StringValue": "x"}}


def test_a_model_card_keeps_its_versions(aws):
    sm = aws.sm
    sm.create_model_card(ModelCardName="card", Content="{}", ModelCardStatus="Draft")
    sm.update_model_card(ModelCardName="card", Content='{"a": 1}', ModelCardStatus="Approved")
    versions = sm.list_model_card_versions(ModelCardName="card")["ModelCardVersionSummaryList"]
    assert [(v["ModelCardVersion"], v["ModelCardStatus"]) for v in versions] == [
        (1, "Draft"),
        (2, "Approved"),
    ]
    assert sm.describe_model_card(ModelCardName="card")["Content"] == '{"a": 1}'
    assert sm.describe_model_card(ModelCardName="card", ModelCardVersion=1)["Content"] == "{}"
    wanted = {"ModelCardName": "card", "ModelCardVersion": 3}
    assert code(aws, "DescribeModelCard", wanted) == "ResourceNotFound"


def test_tags_come_in_pages_and_a_name_stands_for_a_display_name(aws):
    tags = [{"Key": str(number), "Value": "v"} for number in range(60)]
    made = aws.sm.create_experiment(ExperimentName="tagged", Tags=tags[:50])["ExperimentArn"]
    aws.sm.add_tags(ResourceArn=made, Tags=tags[50:])
    first = aws.sm.list_tags(ResourceArn=made)
    rest = aws.sm.list_tags(ResourceArn=made, NextToken=first["NextToken"])
    assert (first["Tags"], rest["Tags"]) == (tags[:50], tags[50:])
    assert aws.sm.describe_experiment(ExperimentName="tagged")["DisplayName"] == "tagged"


def test_a_model_without_a_vpc_has_none(aws):
    aws.sm.create_model(ModelName="plain", PrimaryContainer={"Image": "i"}, ExecutionRoleArn=ROLE)
    assert "VpcConfig" not in aws.sm.describe_model(ModelName="plain")


def arn(resource: str, name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:123456789012:{resource}/{name}"
