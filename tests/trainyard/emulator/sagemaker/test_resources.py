"""Every operation of SageMaker: implemented, stored and readable, or refused by name."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, cloud, fail_step
from tests.trainyard.emulator.requests import MODEL, full, minimal, operations
from tests.trainyard.emulator.sagemaker.pipelines.test_definition_form import JSON, places
from tests.trainyard.emulator.standin import sign_headers
from trainyard.emulator.sagemaker.resources import KINDS, Kind

pytestmark = pytest.mark.long

TAGS = [{"Key": "k", "Value": "v"}]
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
    with cloud(tmp_path) as own:
        refused = call_all_operations(own)
    for name, message in refused.items():
        assert f"does not implement {name}: it would need" in message
    pretended = "AutoMLJobV2 CompilationJob LabelingJob MonitoringSchedule NotebookInstance"
    for noun in f"{pretended} FeatureGroup Cluster".split():
        assert f"Create{noun}" in refused, noun
    assert len(refused) > 300


def call_all_operations(aws: Cloud) -> dict[str, str]:
    """Call every operation; return those refused by name → how."""
    kept = {o.name for kind in KINDS for v in VERBS if (o := kind.find_operation(v))}
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
    taken = ("ValidationException", "ResourceInUse", "ConflictException")
    assert code(aws, f"Create{kind.name}", made) in taken
    call(aws, f"Delete{kind.name}", named)
    for verb in ("Describe", "Delete"):
        gone = ("ValidationException", "ResourceNotFound")
        assert code(aws, f"{verb}{kind.name}", named) in gone


def test_a_name_in_another_case_is_the_same(aws):
    made = aws.sm.create_model(ModelName="Cased", PrimaryContainer={"Image": "i"})["ModelArn"]
    assert made.endswith(":model/cased")
    found = aws.sm.describe_model(ModelName="cASED")
    assert found["ModelName"] == "Cased" and "VpcConfig" not in found
    again = {"ModelName": "CASED", "PrimaryContainer": {"Image": "i"}}
    assert code(aws, "CreateModel", again) == "ValidationException"


def by(kind: Kind) -> bool:
    return "NameContains" in MODEL.operation_model(f"List{kind.name}s").input_shape.members


@pytest.mark.parametrize("name", ["../../x", "x" * 121])
def test_a_name_that_is_no_file_name_is_refused(aws, name: str):
    assert code(aws, "CreateExperiment", {"ExperimentName": name}) == "ValidationException"


def test_trials_and_components_belong_together(aws):
    sm = aws.sm
    wanted = {"TrialName": "t", "ExperimentName": "none"}
    assert code(aws, "CreateTrial", wanted) == "ResourceNotFound"
    sm.create_experiment(ExperimentName="e")
    for trial in ("t1", "t2"):
        sm.create_trial(TrialName=trial, ExperimentName="e")
    for component in ("c1", "c2"):
        sm.create_trial_component(TrialComponentName=component)
    sm.associate_trial_component(TrialComponentName="c1", TrialName="t1")

    def names(**by: str) -> list[str]:
        found = sm.list_trial_components(SortBy="Name", SortOrder="Ascending", **by)
        return [c["TrialComponentName"] for c in found["TrialComponentSummaries"]]

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
    found = [(version["ModelCardVersion"], version["ModelCardStatus"]) for version in versions]
    assert found == [(1, "Draft"), (2, "Approved")]
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


# operations never fail themselves, whatever JSON is in a request

ODD = st.sampled_from(["", "\0", "s3://", "s3://b", "arn:aws:s3:::b", "x" * 300, -1, 2**40, 0, []])
RUNNING = {"CreateEndpoint", "UpdateEndpoint", "StartPipelineExecution"}  # would go on for long


@pytest.fixture(scope="module")
def pipeline(aws: Cloud) -> None:
    aws.create("PipelineName", [fail_step("f", "x")])


def list_answered_operations(aws: Cloud) -> list[str]:
    """Return the operations that are not always refused by name."""
    kept = {
        operation.name for kind in KINDS for v in VERBS if (operation := kind.find_operation(v))
    }
    owns = aws.endpoint.app.sagemaker.owns
    names = [n for n in MODEL.operation_names if owns(n) or n in kept or "ModelPackage" in n]
    return sorted(set(names) - RUNNING)


def send_operation(aws: Cloud, operation: str, body: bytes) -> tuple[int, str]:
    connection = http.client.HTTPConnection(aws.endpoint.url.removeprefix("http://"), timeout=60)
    headers = {
        "X-Amz-Target": f"SageMaker.{operation}",
        "Content-Type": "application/x-amz-json-1.1",
    }
    headers = sign_headers(aws.endpoint, "sagemaker", "POST", "/", headers, body)
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@given(st.data())
def test_no_json_is_a_500(aws: Cloud, pipeline: None, data: st.DataObject):
    operation = data.draw(st.sampled_from(list_answered_operations(aws)))
    request: dict[str, Any] = data.draw(st.sampled_from([full, minimal]))(operation)
    if found := list(places(request)):
        *way, last = data.draw(st.sampled_from(found))
        target: Any = request
        for key in way:
            target = target[key]
        target[last] = data.draw(JSON | ODD)
    status, text = send_operation(aws, operation, json.dumps(request).encode())
    assert status < 500, (operation, request, text)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 100_000, b'"x"', b"[]", b"{", b"null"])
def test_what_is_no_json_object_is_refused(aws: Cloud, body: bytes):
    assert send_operation(aws, "ListPipelines", body)[0] == 400


def test_no_valid_request_is_a_500(aws: Cloud, pipeline: None):
    """With every member; with the required ones alone they were asked above."""
    failed = {}
    for operation in list_answered_operations(aws):
        status, text = send_operation(aws, operation, json.dumps(full(operation)).encode())
        if status >= 500:
            failed[operation] = text
    assert not failed


@pytest.mark.parametrize(
    ("operation", "request_", "said"),
    [
        ("ListPipelines", {"MaxResults": 101}, "less than or equal to 100"),
        ("ListPipelines", {"SortBy": "Size"}, "enum value set: [Name, CreationTime]"),
        ("DescribeTrainingJob", {"TrainingJobName": "x" * 64}, "length less than or equal to 63"),
        ("StopProcessingJob", {"ProcessingJobName": "../../p"}, "regular expression pattern"),
    ],
)
def test_what_cannot_be_is_refused_as_sagemaker_does(
    aws: Cloud, operation: str, request_: dict, said: str
):
    status, text = send_operation(aws, operation, json.dumps(request_).encode())
    assert status == 400 and said in text and "ValidationException" in text
