"""Small pipelines after the patterns of AWS's own integration tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    cloud,
    compare,
    condition_step,
    fail_step,
    process_step,
    train_step,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


def run_successfully(
    aws: Cloud, name: str, steps: list[dict], **definition: Any
) -> dict[str, dict]:
    """Run the pipeline once; return the steps of the successful execution."""
    aws.create(name, steps, **definition)
    execution, found = aws.run(name)
    assert execution["PipelineExecutionStatus"] == "Succeeded", execution
    return found


def get(path: str) -> dict:
    return {"Get": path}


def test_conditions_in_not_and_or_lead_to_the_else_steps(aws: Cloud) -> None:
    listed = {"Type": "In", "QueryValue": get("Parameters.Where"), "Values": ["eu", "us"]}
    either = {"Type": "Or", "Conditions": [listed, compare("GreaterThan", 1, 2)]}
    words = ["not", get("Parameters.Where"), get("Steps.Check.Outcome"), True]
    stop = fail_step("Stop", {"Std:Join": {"On": "-", "Values": words}})
    check = condition_step("Check", [{"Type": "Not", "Condition": either}], [], [stop])
    parameters = [{"Name": "Where", "Type": "String", "DefaultValue": "eu"}]
    aws.create("either", [check], Parameters=parameters)
    execution, steps = aws.run("either")
    assert execution["PipelineExecutionStatus"] == "Failed"
    assert steps["Stop"]["FailureReason"] == "not-eu-false-true"
    assert aws.run("either", {"Where": "asia"})[0]["PipelineExecutionStatus"] == "Succeeded"


def test_what_is_trained_well_becomes_a_model_and_an_approved_package(aws: Cloud) -> None:
    train = train_step("Train", "echo loss=0.5; echo weights > /opt/ml/model/w")
    algorithm = train["Arguments"]["AlgorithmSpecification"]
    algorithm["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    data = get("Steps.Train.ModelArtifacts.S3ModelArtifacts")
    container = {"Image": algorithm["TrainingImage"], "ModelDataUrl": data}
    model = {"Name": "Model", "Type": "Model",
             "Arguments": {"ExecutionRoleArn": ROLE, "PrimaryContainer": container}}  # fmt: skip
    package = {"Name": "Register", "Type": "RegisterModel", "Arguments": {
        "ModelPackageGroupName": "patterns", "ModelApprovalStatus": "Approved",
        "InferenceSpecification": {"Containers": [container], "SupportedContentTypes": ["text/csv"],
                                   "SupportedResponseMIMETypes": ["text/csv"]}}}  # fmt: skip
    loss = get("Steps.Train.FinalMetricDataList['loss'].Value")
    check = condition_step(
        "Check", [compare("LessThan", loss, 0.6)], [model, package], [fail_step("No", "")]
    )
    steps = run_successfully(aws, "registers", [train, check])
    name = steps["Model"]["Metadata"]["Model"]["Arn"].rpartition("/")[2]
    uri = aws.sm.describe_model(ModelName=name)["PrimaryContainer"]["ModelDataUrl"]
    arn = steps["Register"]["Metadata"]["RegisterModel"]["Arn"]
    registered = aws.sm.describe_model_package(ModelPackageName=arn)
    assert registered["ModelApprovalStatus"] == "Approved"
    assert registered["InferenceSpecification"]["Containers"][0]["ModelDataUrl"] == uri
    assert aws.get(uri.removeprefix("s3://bkt/"))


def test_a_functions_result_goes_from_step_to_step_as_with_the_decorator(aws: Cloud) -> None:
    """The form of @step: results.json in the step's own folder, read by Std:JsonGet of a Join."""
    place = {"Std:Join": {"On": "/", "Values": [
        "s3://bkt/results", get("Execution.PipelineExecutionId"), "One"]}}  # fmt: skip
    write = 'echo \'{"Result": [{"k": 7}]}\' > /opt/ml/processing/out/results.json'
    one = process_step("One", write, outputs={"out": place})
    uri = {"Std:Join": {"On": "/", "Values": [place, "results.json"]}}
    result = {"Std:JsonGet": {"S3Uri": uri, "Path": "Result[0]['k']"}}
    check = condition_step("Check", [compare("Equals", result, 7)], [], [fail_step("No", "no")],
                           DependsOn=["One"])  # fmt: skip
    assert "No" not in run_successfully(aws, "decorated", [one, check])
