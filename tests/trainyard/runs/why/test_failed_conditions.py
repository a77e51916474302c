"""A run that its own Fail step ended: condition, file, value and demand are named."""

import json

import pytest

from tests.trainyard.emulator.harness import (
    Cloud,
    cloud,
    compare,
    condition_step,
    fail_step,
    json_get,
    process_step,
    taken_for_aws,
)
from trainyard.commands import why
from trainyard.terminal import run

pytestmark = pytest.mark.long

WRITE = 'echo \'{"loss": 0.52, "passed": false, "kind": "b"}\' > /opt/ml/processing/out/gate.json'
FILE = {"PropertyFileName": "gate", "OutputName": "out", "FilePath": "gate.json"}
LOSS = {"Get": "Parameters.MaxLoss"}
MAX_LOSS = {"Name": "MaxLoss", "Type": "Float", "DefaultValue": 0.4}


def value(path: str) -> dict:
    return json_get("Gate", "gate", path)


CONDITIONS = [
    compare("Equals", value("kind"), "b"),
    compare("LessThanOrEqualTo", value("loss"), LOSS),
    {"Type": "Not", "Condition": compare("GreaterThan", value("loss"), 0.5)},
    {"Type": "Or", "Conditions": [
        compare("Equals", value("passed"), True),
        {"Type": "In", "QueryValue": value("kind"), "Values": ["c", "d"]},
    ]},
]  # fmt: skip


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running, taken_for_aws(running):
        yield running


def words(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """Return what ``why`` prints; it must end with status 0."""
    with pytest.raises(SystemExit) as end:
        run(why.main, "why", arguments)
    printed = capsys.readouterr()
    assert end.value.code == 0, printed.err
    return printed.out


def gate(name: str) -> dict:
    place = {"out": f"s3://bkt/{name}/gate"}
    return process_step("Gate", WRITE, outputs=place, PropertyFiles=[FILE])


def test_condition_file_value_and_demand_are_named(aws: Cloud, capsys: pytest.CaptureFixture):
    inner = condition_step("Verdict", CONDITIONS, [], [fail_step("Rejected", "the gate rejected")])
    outer = condition_step("Open", [compare("GreaterThan", LOSS, 0)], [inner], [])
    aws.create("rejected", [gate("rejected"), outer], Parameters=[MAX_LOSS])
    arn = aws.start("rejected")
    assert aws.wait_for_execution(arn)["PipelineExecutionStatus"] == "Failed"
    told = words(capsys, arn)
    file = "in s3://bkt/rejected/gate/gate.json of step Gate is"
    for line in (
        "Rejected failed: the gate rejected",
        f"Verdict was False: loss {file} 0.52, demanded: at most parameter MaxLoss is 0.4",
        f"Verdict was False: not (loss {file} 0.52, demanded: more than 0.5)",
        f'one of: passed {file} false, demanded: equal to true; or kind {file} "b", demanded: '
        'one of "c", "d"',
        "Open was True: parameter MaxLoss is 0.4, demanded: more than 0",
    ):
        assert line in told
    assert told.count("Verdict was False") == len(CONDITIONS) - 1  # the first one held
    cause = json.loads(words(capsys, arn, "--json"))
    assert (cause["name"], cause["certainty"], len(cause["lines"])) == ("condition", "certain", 4)

    aws.put("rejected/gate/gate.json", '{"loss": 0.1, "passed": true, "kind": "b"}')
    assert "is 0.1, demanded: at most" in (told := words(capsys, arn))
    assert "what it compared has changed since the run" in told
    aws.s3.delete_object(Bucket="bkt", Key="rejected/gate/gate.json")
    told = words(capsys, arn)
    assert "Rejected failed: the gate rejected" in told
    assert "is not known (" in told and "NoSuchKey" in told


LIMITS = {"Std:Join": {"On": "/", "Values": ["s3://bkt", "limits.json"]}}
LIMIT = {"Std:JsonGet": {"S3Uri": LIMITS, "Path": "most['of all']"}}
MANY = "Few was False: 5, demanded: less than most['of all'] in s3://bkt/limits.json is 3"
FEW = condition_step("Few", [compare("LessThan", 5, LIMIT)], [], [fail_step("Many", "no")])
ENDS = {
    "a file named by its address": (FEW, f"Many failed: no\n  because:\n    {MANY}\n"),
    "no condition": (fail_step("Stop", "not on Sundays"), "Stop failed: not on Sundays\n"),
    "success": (condition_step("Verdict", [], [], []), "nothing failed: {arn} Succeeded\n"),
}


@pytest.mark.parametrize(("step", "printed"), ENDS.values(), ids=ENDS)
def test_how_a_run_ended_is_said(aws: Cloud, capsys: pytest.CaptureFixture, step, printed: str):
    aws.put("limits.json", '{"most": {"of all": 3}}')
    aws.create(step["Name"], [step])
    arn = aws.start(step["Name"])
    aws.wait_for_execution(arn)
    assert words(capsys, arn) == printed.format(arn=arn)
    if "nothing" in printed:
        assert words(capsys, arn, "--json") == ""  # an object per failed step


def test_while_it_runs_nothing_has_failed_so_far(aws: Cloud, capsys: pytest.CaptureFixture):
    aws.create("slow", [process_step("Wait", "sleep 60")])
    arn = aws.start("slow")
    assert words(capsys, arn) == f"nothing failed so far: {arn} Executing\n"
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="t" * 32)
    aws.wait_for_execution(arn)
    assert words(capsys, arn) == f"nothing failed: {arn} Stopped\n"
