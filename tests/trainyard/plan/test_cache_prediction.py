"""Predictions of the step cache, each compared with what an execution then really did."""

import json
import time
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    cloud,
    condition_step,
    fail_step,
    pipeline,
    process_step,
    s3_input,
    train_step,
)
from trainyard.emulator.sagemaker.pipelines import step_cache
from trainyard.plan.cache_prediction import History, predict_outcomes

pytestmark = pytest.mark.long

EXECUTION = {"Get": "Execution.PipelineExecutionId"}
WRITES = "echo same > /opt/ml/processing/out/x"
"""The emulator reuses only what is still there unchanged, which AWS does not look at: so what goes
to one place in every run has to be the same."""


def cache() -> dict:
    """Anew for every step: tests change it."""
    return {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}


def join(*values, on="/") -> dict:
    return {"Std:Join": {"On": on, "Values": list(values)}}


def output(step: str) -> dict:
    return {"Get": f"Steps.{step}.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}


def step(name: str, *inputs: tuple[str, object], to: object, **more) -> dict:
    made = process_step(name, WRITES, outputs={"out": to}, **(cache() | more))
    made["Arguments"]["ProcessingInputs"] = [s3_input(*each) for each in inputs]
    return made


def document() -> dict:
    """Make → Take → Last; Fixed → AfterFixed, where every run writes to one place; and others."""
    mine = join("s3://bkt/runs", EXECUTION, "make")
    make = step("Make", ("raw", {"Get": "Parameters.Input"}), to=mine)
    make["Arguments"]["Environment"] = {"RATE": "0.1"}
    take = step("Take", ("made", output("Make")), to=join("s3://bkt/runs", EXECUTION, "take"))
    last = step("Last", ("taken", output("Take")), to="s3://bkt/last")
    fixed = step("Fixed", to="s3://bkt/fixed")
    fixed["Arguments"]["Environment"] = {"RATE": {"Get": "Parameters.Rate"}}
    after = step("AfterFixed", ("fixed", output("Fixed")), to="s3://bkt/after")
    never = step("Never", to="s3://bkt/never")
    never["Arguments"]["Environment"] = {"RUN": join("run", EXECUTION, on="-")}
    off = process_step("Off", "true", CacheConfig={"Enabled": False, "ExpireAfter": "P1D"})
    train = train_step("Train", "cp /opt/ml/input/data/in/x /opt/ml/model/", **cache())
    source = {"S3DataType": "S3Prefix", "S3Uri": output("Make")}
    train["Arguments"]["InputDataConfig"] = [
        {"ChannelName": "in", "DataSource": {"S3DataSource": source}}
    ]
    score = step("Score", ("model", model("Train")), to=join("s3://bkt/runs", EXECUTION, "score"))
    condition = {"Type": "Equals", "LeftValue": 1, "RightValue": 1}
    decide = condition_step("Decide", [condition], [last], [fail_step("Bad", "no")])
    parameters = [
        {"Name": "Input", "Type": "String", "DefaultValue": "s3://bkt/raw"},
        {"Name": "Rate", "Type": "String", "DefaultValue": "1"},
    ]
    steps = [decide, take, make, fixed, after, never, off, train, score]
    return pipeline(steps, Parameters=parameters)


def model(name: str) -> dict:
    return {"Get": f"Steps.{name}.ModelArtifacts.S3ModelArtifacts"}


def find(body: dict, name: str) -> dict:
    decide = body["Steps"][0]["Arguments"]["IfSteps"]
    return next(s for s in [*body["Steps"], *decide] if s["Name"] == name)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.put("raw/a.txt", "text")
        running.put("other/a.txt", "text")
        yield running


def predict_answers(
    aws: Cloud, body: dict, name: str, now: datetime | None = None
) -> dict[str, tuple]:
    found = aws.sm.list_pipelines(PipelineNamePrefix=name)["PipelineSummaries"]
    history = History(aws.sm, name if found else None)
    outcomes = predict_outcomes(body, name, history, now or datetime.now(UTC))
    return {each.step: (each.answer, each.why) for each in outcomes}


def run_and_read_cache(
    aws: Cloud, body: dict, name: str, parameters: dict | None = None
) -> dict[str, str]:
    """Upserts ``body`` and runs it; step → cached or runs."""
    request = {"PipelineName": name, "PipelineDefinition": json.dumps(body), "RoleArn": ROLE}
    if aws.sm.list_pipelines(PipelineNamePrefix=name)["PipelineSummaries"]:
        aws.sm.update_pipeline(**request)
    else:
        aws.sm.create_pipeline(**request, ClientRequestToken="t" * 32)
    answer, steps = aws.run(name, parameters)
    assert answer["PipelineExecutionStatus"] == "Succeeded", answer
    return {n: "cached" if s.get("CacheHitResult") else "runs" for n, s in steps.items()}


def set_rate(body: dict) -> None:
    find(body, "Make")["Arguments"]["Environment"]["RATE"] = "0.2"


def set_input(body: dict) -> None:
    body["Parameters"][0]["DefaultValue"] = "s3://bkt/other"


def set_fixed(body: dict) -> None:
    body["Parameters"][1]["DefaultValue"] = "2"


def set_machine(body: dict) -> None:
    resources = find(body, "Train")["Arguments"]["ResourceConfig"]
    resources["InstanceType"] = "ml.m5.xlarge"


def set_texts(body: dict) -> None:
    find(body, "Make")["DisplayName"] = "another"
    find(body, "Take")["RetryPolicies"] = [{"ExceptionType": ["Step.THROTTLING"], "MaxAttempts": 2}]
    find(body, "Last")["CacheConfig"]["ExpireAfter"] = "P2D"


def set_script(body: dict) -> None:
    find(body, "Take")["Arguments"]["AppSpecification"]["ContainerArguments"] = [WRITES + " "]


def rename(body: dict) -> None:
    find(body, "Fixed")["Name"] = "Renamed"
    find(body, "AfterFixed")["Arguments"]["ProcessingInputs"] = [
        s3_input("fixed", output("Renamed"))
    ]


ALWAYS = {"Never", "Off", "Decide"}
RERUN = {
    "nothing, the machine, texts, retries and expiry": ([set_machine, set_texts], set()),
    "an environment variable": ([set_rate], {"Make", "Take", "Last", "Train", "Score"}),
    "a parameter's default": ([set_input], {"Make", "Take", "Last", "Train", "Score"}),
    "what writes to a fixed place; arguments": ([set_fixed, set_script], {"Fixed", "Take", "Last"}),
    "a name": ([rename], {"Renamed"}),
}


@pytest.fixture(scope="module")
def ran(aws: Cloud) -> dict:
    """The document after its first run as the pipeline "changes"."""
    base = document()
    first = predict_answers(aws, base, "changes")
    assert {why for name, (_, why) in first.items() if name not in ALWAYS | {"Bad"}} == {
        "no earlier run"
    }
    assert set(run_and_read_cache(aws, base, "changes").values()) == {"runs"}
    return base


def test_the_reason_names_what_changed(aws: Cloud, ran: dict) -> None:
    body = deepcopy(ran)
    find(body, "Make")["Arguments"]["Environment"]["RATE"] = "0.3"
    why = {name: why for name, (_, why) in predict_answers(aws, body, "changes").items()}
    assert why["Make"] == "RATE 0.1 → 0.3"
    assert (why["Take"], why["Last"], why["Score"]) == ("Make runs", "Take runs", "Train runs")
    assert why["Never"] == "its execution id is new in every run"
    assert why["Off"] == "the cache is off"
    assert why["Decide"] == "never cached"
    set_script(body)
    assert (
        predict_answers(aws, body, "changes")["Take"][1] == "ContainerArguments changed, Make runs"
    )
    late = datetime.now(UTC) + timedelta(days=1, minutes=1)
    assert predict_answers(aws, ran, "changes", late)["Make"][1].startswith(
        "expired: its result is from"
    )


@pytest.mark.slow
def test_what_is_predicted_is_what_happens(aws: Cloud, ran: dict) -> None:
    """One change after another from the same beginning."""
    for change, (edits, reruns) in RERUN.items():
        body = deepcopy(ran)
        for edit in edits:
            edit(body)
        told = {n: answer for n, (answer, _) in predict_answers(aws, body, "changes").items()}
        del told["Bad"]  # the branch that is not taken
        done = run_and_read_cache(aws, body, "changes")
        assert told == done, change
        assert {n for n, answer in done.items() if answer == "runs"} == ALWAYS | reruns, change


def test_a_run_with_other_parameters_is_no_earlier_run(aws: Cloud) -> None:
    base = document()
    base["Steps"] = [find(base, "Fixed"), step("Make", to="s3://bkt/make")]
    run_and_read_cache(aws, base, "parameters", {"Rate": "3"})
    told = predict_answers(aws, base, "parameters")
    assert told["Fixed"] == ("runs", "RATE 3 → 1")
    assert told["Make"][0] == "cached"
    assert run_and_read_cache(aws, base, "parameters")["Fixed"] == "runs"
    assert predict_answers(aws, base, "parameters")["Fixed"][0] == "cached"


def test_a_result_counts_from_when_it_was_made_not_from_when_it_was_reused(
    aws: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = pipeline([step("A", to="s3://bkt/a")])
    body["Steps"][0]["CacheConfig"]["ExpireAfter"] = "PT1H"
    run_and_read_cache(aws, body, "ages")
    later = time.time() + 3600  # what was made until now is too old then; its reuse is not
    assert run_and_read_cache(aws, body, "ages") == {"A": "cached"}
    assert predict_answers(aws, body, "ages")["A"][0] == "cached"
    assert predict_answers(aws, body, "ages", datetime.fromtimestamp(later, UTC))["A"][0] == "runs"
    monkeypatch.setattr(step_cache, "time", SimpleNamespace(time=lambda: later))
    assert run_and_read_cache(aws, body, "ages") == {"A": "runs"}
