"""Small pipelines after the patterns of AWS's own integration tests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    channel,
    cloud,
    compare,
    condition_step,
    fail_step,
    json_get,
    process_step,
    s3_input,
    train_step,
    training,
    until,
)
from tests.trainyard.emulator.sagemaker.tuning.harness import (
    config,
    definition,
    step,
    trained,
    tuning_cloud,
)
from tests.trainyard.emulator.standin import make_client
from tests.trainyard.emulator.test_lambda_ import lambda_step, make, zipped

pytestmark = [pytest.mark.slow, pytest.mark.long]
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
OUT = "/opt/ml/processing/out"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture
def tunes(tmp_path: Path) -> Iterator[Cloud]:
    """An emulator whose image has its own entry point, as tuning jobs need it."""
    with tuning_cloud(tmp_path / "aws", tmp_path / "image") as running:
        yield running


def succeeded(aws: Cloud, name: str, steps: list[dict], **definition: Any) -> dict[str, dict]:
    """Run the pipeline once; return the steps of the successful execution."""
    aws.create(name, steps, **definition)
    execution, found = aws.run(name)
    assert execution["PipelineExecutionStatus"] == "Succeeded", execution
    return found


def get(path: str) -> dict:
    return {"Get": path}


def said(name: str, what: str, where: str, **more: Any) -> dict:
    """Return a processing step that writes ``what``, a line of shell, to ``where``/said."""
    return process_step(name, f"{what} > {OUT}/said", outputs={"out": f"s3://bkt/{where}"}, **more)


def test_an_evaluations_number_decides_over_a_property_file(aws: Cloud) -> None:
    files = [{"PropertyFileName": "Report", "OutputName": "out", "FilePath": "said"}]
    report = json.dumps({"metrics": {"mse": {"value": 0.25}}})
    evaluate = said("Evaluate", f"echo '{report}'", "reports/{}", PropertyFiles=files)
    good = compare("LessThanOrEqualTo", json_get("Evaluate", "Report", "metrics.mse.value"), 0.5)
    then, other = said("Good", "echo good", "verdict"), fail_step("Bad", "too bad")
    steps = succeeded(aws, "gate", [evaluate, condition_step("Check", [good], [then], [other])])
    assert steps["Check"]["Metadata"]["Condition"]["Outcome"] == "True"
    assert aws.get("verdict/said") == b"good\n" and "Bad" not in steps


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


def test_a_second_function_gets_the_firsts_output(aws: Cloud) -> None:
    source = "def add(event, context): return {'sum': event['a'] + event['b']}\n"
    make(aws, "add", Code={"ZipFile": zipped(source)})
    first = lambda_step("First", "add", {"a": 1, "b": 2}, sum="Integer")
    output = get("Steps.First.OutputParameters['sum']")
    second = lambda_step("Second", "add", {"a": output, "b": 10}, sum="Integer")
    steps = succeeded(aws, "functions", [first, second])
    assert steps["Second"]["Metadata"]["Lambda"]["OutputParameters"] == [
        {"Name": "sum", "Value": "13"}
    ]


def test_somebody_answers_a_callback_and_the_next_step_reads_it(aws: Cloud) -> None:
    sqs = make_client(aws.endpoint, "sqs")
    queue = sqs.create_queue(QueueName="asked")["QueueUrl"]
    outputs = [{"OutputName": "who", "OutputType": "String"}]
    ask = {"Name": "Ask", "Type": "Callback", "SqsQueueUrl": queue,
           "Arguments": {"about": "model"}, "OutputParameters": outputs}  # fmt: skip
    environment = {"Environment": {"WHO": get("Steps.Ask.OutputParameters['who']")}}
    aws.create("asks", [ask, said("Note", "echo $WHO", "noted", arguments=environment)])
    arn = aws.start("asks")
    [message] = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
    body = json.loads(message["Body"])
    assert body["arguments"] == {"about": "model"}
    aws.sm.send_pipeline_execution_step_success(
        CallbackToken=body["token"], OutputParameters=[{"Name": "who", "Value": "anna"}]
    )
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    assert aws.get("noted/said") == b"anna\n"


def test_what_is_trained_becomes_a_model_and_an_approved_package(aws: Cloud) -> None:
    train = train_step("Train", "echo weights > /opt/ml/model/w")
    data = get("Steps.Train.ModelArtifacts.S3ModelArtifacts")
    container = {"Image": training("")["AlgorithmSpecification"]["TrainingImage"]}
    container["ModelDataUrl"] = data
    model = {"Name": "Model", "Type": "Model",
             "Arguments": {"ExecutionRoleArn": ROLE, "PrimaryContainer": container}}  # fmt: skip
    package = {"Name": "Register", "Type": "RegisterModel", "Arguments": {
        "ModelPackageGroupName": "patterns", "ModelApprovalStatus": "Approved",
        "InferenceSpecification": {"Containers": [container], "SupportedContentTypes": ["text/csv"],
                                   "SupportedResponseMIMETypes": ["text/csv"]}}}  # fmt: skip
    steps = succeeded(aws, "registers", [train, model, package])
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
    assert "No" not in succeeded(aws, "decorated", [one, check])


def test_a_fan_out_comes_together_again(aws: Cloud) -> None:
    parts = [said(f"Part-{n}", f"echo {n}", f"parts/{n}") for n in range(3)]
    outputs = "ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"
    inputs = [s3_input(f"p{n}", get(f"Steps.Part-{n}.{outputs}")) for n in range(3)]
    whole = said("Whole", "cat /opt/ml/processing/p*/said", "whole",
                 arguments={"ProcessingInputs": inputs})  # fmt: skip
    steps = succeeded(aws, "fan", [*parts, whole])
    assert aws.get("whole/said") == b"0\n1\n2\n"
    last = max(steps[f"Part-{n}"]["EndTime"] for n in range(3))
    assert steps["Whole"]["StartTime"] >= last


def test_a_selected_step_runs_again_on_what_the_others_left(aws: Cloud) -> None:
    first = said("First", "echo first", "selected/first")
    source = get("Steps.First.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri")
    second = said("Second", "cat /opt/ml/processing/in/said", "selected/second",
                  arguments={"ProcessingInputs": [s3_input("in", source)]})  # fmt: skip
    aws.create("selects", [first, second])
    arn = aws.start("selects")
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    config = {"SourcePipelineExecutionArn": arn, "SelectedSteps": [{"StepName": "Second"}]}
    again = aws.start("selects", SelectiveExecutionConfig=config)
    assert aws.ended(again)["PipelineExecutionStatus"] == "Succeeded"
    steps = aws.steps(again)
    reused = steps["First"]["SelectiveExecutionResult"]
    assert reused == {"SourcePipelineExecutionArn": arn}
    assert steps["Second"]["Metadata"] != aws.steps(arn)["Second"]["Metadata"]


def test_a_tuning_step_hands_on_its_best_model(tunes: Cloud) -> None:
    ranges = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["2", "1"]}]}
    limits = {"MaxParallelTrainingJobs": 2}
    script = 'echo "loss=$(hp x);" && hp x > /opt/ml/model/x'
    tune = step("Tune", {
        "HyperParameterTuningJobConfig": config(
            "Grid", None, ParameterRanges=ranges, ResourceLimits=limits),
        "TrainingJobDefinition": definition(script),
    })  # fmt: skip
    name = get("Steps.Tune.BestTrainingJob.TrainingJobName")
    best = {"Std:Join": {"On": "/", "Values": ["s3://bkt/models", name, "output/model.tar.gz"]}}
    unpack = "tar xzOf /opt/ml/processing/in/model.tar.gz"
    inputs = {"ProcessingInputs": [s3_input("in", best)]}
    steps = succeeded(tunes, "tunes", [tune, said("Take", unpack, "taken", arguments=inputs)])
    assert tunes.get("taken/said").strip() == b"1"
    job = steps["Tune"]["Metadata"]["TuningJob"]["Arn"].rpartition("/")[2]
    assert [found["TrainingJobStatus"] for found in trained(tunes, job)] == ["Completed"] * 2


def test_awss_xgboost_trains_without_a_script_and_its_metric_decides(aws: Cloud) -> None:
    rows = "".join(f"{n % 7},{n % 7},{n % 3}\n" for n in range(60))
    uri = aws.put("table/a.csv", rows)
    arguments = {
        "AlgorithmSpecification": {"TrainingImage": XGBOOST, "TrainingInputMode": "File"},
        "HyperParameters": {"num_round": "3", "objective": "reg:squarederror"},
        "InputDataConfig": [channel(name, uri) | {"ContentType": "text/csv"}
                            for name in ("train", "validation")],
    }  # fmt: skip
    train = train_step("Train", "", arguments=arguments)
    metric = get("Steps.Train.FinalMetricDataList['validation:rmse'].Value")
    check = condition_step("Check", [compare("LessThan", metric, 100)], [], [fail_step("No", "")])
    assert "No" not in succeeded(aws, "boosts", [train, check])


def test_what_is_stopped_while_it_runs_ends_as_stopped(aws: Cloud) -> None:
    aws.create("stops", [train_step("Long", "sleep 60"), said("Next", "echo no", "never")])
    arn = aws.start("stops")
    until(lambda: aws.steps(arn).get("Long", {}).get("Metadata"))
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="t" * 32)
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Stopped"
    assert aws.steps(arn)["Long"]["StepStatus"] == "Stopped"
