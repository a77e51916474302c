"""Selective execution and retry: repeated steps, reused steps, refusals."""

import pytest
from botocore.exceptions import ClientError

from pipelines.start import main as start_ours
from tests.trainyard.emulator.harness import (
    Cloud,
    compare,
    condition_step,
    fail_step,
    taken_for_aws,
)
from tests.trainyard.emulator.sagemaker.builders import run, wait_for_steps
from tests.trainyard.emulator.test_lambda_ import lambda_step, make, zip_function
from trainyard.commands.start import main as start_again
from trainyard.common.errors import RecipeError

pytestmark = pytest.mark.long

SOURCE = """
def add(event, context):
    if event["x"] > event.get("most", 100):
        raise ValueError("too much")
    return {"y": event["x"] + 1}
"""


def y(step: str) -> dict:
    return {"Get": f"Steps.{step}.OutputParameters['y']"}


def add(name: str, x: object, **more: object) -> dict:
    return lambda_step(name, "add", {"x": x, **more}, y="Integer")


@pytest.fixture(scope="module", autouse=True)
def chain(aws: Cloud) -> None:
    make(aws, "add", Code={"ZipFile": zip_function(SOURCE)})
    most = {"Name": "Most", "Type": "Integer", "DefaultValue": 100}
    is_small, then = [compare("LessThan", y("C"), 10)], [add("Then", y("C"))]
    gate = condition_step("Gate", is_small, then, [fail_step("Stop", "too large")])
    steps = [add("A", 1), add("B", y("A")), add("C", y("B"), most={"Get": "Parameters.Most"})]
    aws.create("chain", [*steps, add("Other", 5), gate], Parameters=[most])
    aws.source = aws.start("chain")
    wait_for_steps(aws, aws.source)


@pytest.fixture(scope="module")
def failed_execution(aws: Cloud, chain: None) -> str:
    """ARN of an execution of B and C whose C has failed."""
    arn = start(aws, "B", "C", source=aws.source, Most="1")
    wait_for_steps(aws, arn, "Failed")
    return arn


def start(aws: Cloud, *names: str, source: str | None = None, **parameters: str) -> str:
    config = {"SelectedSteps": [{"StepName": name} for name in names]}
    config |= {"SourcePipelineExecutionArn": source} if source else {}
    return aws.start("chain", parameters, SelectiveExecutionConfig=config)


def test_the_selected_steps_run_and_those_above_are_reused(aws: Cloud) -> None:
    arn = start(aws, "C", "Gate", source=aws.source)
    steps = wait_for_steps(aws, arn)
    config = aws.wait_for_execution(arn)["SelectiveExecutionConfig"]
    assert config["SourcePipelineExecutionArn"] == aws.source
    reuse = {"SourcePipelineExecutionArn": aws.source}  # Other and Then are not selected
    reused = {name: step.get("SelectiveExecutionResult") for name, step in steps.items()}
    assert reused == {"A": reuse, "B": reuse, "C": None, "Gate": None}
    assert steps["B"]["Metadata"] == aws.steps(aws.source)["B"]["Metadata"]
    again = start(aws, "Gate", "Then", source=arn)  # a selective execution is a source, too
    made = wait_for_steps(aws, again)["Then"]["Metadata"]["Lambda"]
    assert made["OutputParameters"][0]["Value"] == "5"


def test_steps_that_depend_on_nothing_need_no_source(aws: Cloud) -> None:
    assert set(wait_for_steps(aws, start(aws, "A", "Other"))) == {"A", "Other"}


@pytest.mark.parametrize(
    ("names", "with_source", "said"),
    [
        (["B"], False, r"SourcePipelineExecutionArn: null. The selected steps \[B\] have depend"),
        (["A", "C"], True, r"\[B\] are on a path between selected steps \[A, C\]"),
        (["X"], True, r"the pipeline has no steps \[X\]"),
        (["Stop"], True, "'Stop' runs when 'Gate' is False, and it was True"),
    ],
)
def test_what_aws_refuses_is_refused(aws: Cloud, names, with_source, said: str) -> None:
    with pytest.raises(ClientError, match=f"ValidationException.*{said}"):
        start(aws, *names, source=aws.source if with_source else None)


def test_a_source_must_be_of_the_pipeline_and_have_what_is_needed(
    aws: Cloud, failed_execution: str
) -> None:
    with pytest.raises(ClientError, match="It is not an execution of"):
        start(aws, "B", source=aws.source[:-1] + "X")
    with pytest.raises(ClientError, match=r"depend on step 'C', which has not succeeded.*Failed"):
        start(aws, "Gate", source=failed_execution)
    wait_for_steps(aws, start(aws, "C", source=failed_execution))  # with other parameters


def test_a_retry_keeps_what_was_selected(aws: Cloud) -> None:
    arn = start(aws, "C", source=aws.source, Most="1")
    wait_for_steps(aws, arn, "Failed")
    request = {"PipelineExecutionArn": arn, "ClientRequestToken": "r" * 32}
    for _ in range(2):  # the second is the same call again
        assert aws.sm.retry_pipeline_execution(**request)["PipelineExecutionArn"] == arn
    steps = wait_for_steps(aws, arn, "Failed")
    assert set(steps) == {"A", "B", "C"} and "SelectiveExecutionResult" in steps["B"]


def test_what_a_fail_step_ended_is_not_retried(aws: Cloud) -> None:
    answer, _ = run(aws, "fails", [fail_step("Stop", "no")])
    request = {"PipelineExecutionArn": answer["PipelineExecutionArn"]}
    with pytest.raises(ClientError, match="cannot be retried: it was ended by Fail step 'Stop'"):
        aws.sm.retry_pipeline_execution(**request, ClientRequestToken="f" * 32)


# on the command line


def test_start_from_a_step_says_what_it_reuses(aws: Cloud, capsys: pytest.CaptureFixture) -> None:
    with taken_for_aws(aws):
        start_again("C", pipeline="chain", execution=aws.source, parameter=["Most=50"])
        text = capsys.readouterr().out
        arn = text.rpartition("started ")[2].strip()
        assert wait_for_steps(aws, arn).keys() == {"A", "B", "C", "Gate", "Then"}
        assert "reused  B: Succeeded there; C needs it" in text
        assert "runs    C: named by --from" in text and "runs    Then: depends on C, Gate" in text
        assert "left    Other: not needed" in text
        given = aws.sm.list_pipeline_parameters_for_execution(PipelineExecutionArn=arn)
        assert given["PipelineParameters"] == [{"Name": "Most", "Value": "50"}]

        start_ours(pipeline="chain", step="Gate", execution=arn)  # our application's verb
        text = capsys.readouterr().out
        assert "reused  C: Succeeded there; Gate needs it" in text
        arn = text.rpartition("started ")[2].strip()
        assert wait_for_steps(aws, arn)["C"]["SelectiveExecutionResult"]


def test_start_from_a_step_refuses_what_cannot_be(aws: Cloud, failed_execution: str) -> None:
    with taken_for_aws(aws):
        with pytest.raises(RecipeError, match="Gate needs C, which is Failed in .*start --from C"):
            start_again("Gate", execution=failed_execution)
        with pytest.raises(RecipeError, match="no such step .*; nearest valid name: Gate"):
            start_again("Gates", pipeline="chain")
        with pytest.raises(RecipeError, match="is not an execution of pipeline other"):
            start_again("Gate", execution=failed_execution, pipeline="other")
