"""Data that was written after a cached step read it: plan and start say so."""

import json
import time
from datetime import UTC, datetime

import boto3
import pytest

from pipelines.start import start
from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, pipeline, train_step
from tests.trainyard.plan.test_cache_prediction import EXECUTION, cache, join, output, step
from trainyard.plan import pipeline_plan as looking
from trainyard.plan.cache_prediction import History, predict_outcomes
from trainyard.plan.pipeline_plan import apply_parameters, find_overwritten

pytestmark = pytest.mark.long

NAME = "reads"


CODE = f"prefix/code/{'0' * 32}"


def document() -> dict:
    """Read takes raw data, a folder of code and a record; Next what Read made."""
    code, of = ("code", f"s3://bkt/{CODE}/"), ("provenance", "s3://bkt/of")
    raw = ("raw", {"Get": "Parameters.InputUri"})
    read = step("Read", raw, code, of, to=join("s3://bkt/runs", EXECUTION, "read"))
    after = step("Next", ("made", output("Read")), to=join("s3://bkt/runs", EXECUTION, "next"))
    entry = {"Name": "InputUri", "Type": "String", "DefaultValue": "s3://bkt/raw"}
    return pipeline([read, after], Parameters=[entry])


def create(aws: Cloud, name: str, body: dict) -> None:
    request = {"PipelineName": name, "PipelineDefinition": json.dumps(body), "RoleArn": ROLE}
    aws.sm.create_pipeline(**request, ClientRequestToken=name.ljust(32, "t"))


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    """One run, and then nothing changed."""
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        for key in ("raw/a", "raw/b", "raw-2/a", f"{CODE}/x", "of/x", "of/recipe.json"):
            running.put(key, "{}")
        create(running, NAME, document())
        time.sleep(1.1)  # S3 tells times in whole seconds
        answer, _ = running.run(NAME)
        assert answer["PipelineExecutionStatus"] == "Succeeded", answer
        time.sleep(1.1)
        yield running


def list_overwritten(
    aws: Cloud, body: dict | None = None, name: str = NAME, **given: str
) -> list[str]:
    started = apply_parameters(body or document(), given)
    outcomes = predict_outcomes(started, name, History(aws.sm, name), datetime.now(UTC))
    assert body is None or {each.answer for each in outcomes} == {"cached"}
    return [str(each) for each in find_overwritten(aws.s3, started, outcomes)]


def test_what_nobody_wrote_to_since_is_as_it_was_read(aws: Cloud):
    assert list_overwritten(aws) == []
    assert list_overwritten(aws, InputUri="s3://bkt/nowhere") == []  # no earlier run read that


def test_what_was_overwritten_or_added_is_counted_and_the_newest_named(
    aws: Cloud, monkeypatch: pytest.MonkeyPatch
):
    before = aws.s3.get_object(Bucket="bkt", Key="raw/b")["LastModified"]
    aws.put("raw/b", "tex2")
    aws.put("raw/c/d", "text")
    aws.put("raw-2/b", "text")  # another folder
    aws.put(f"{CODE}/x", "text")  # named by its content
    (said,) = list_overwritten(aws)
    assert said.startswith("Read is cached, but 2 of 3 objects under s3://bkt/raw were written")
    assert "raw/c/d at 20" in said or "raw/b at 20" in said
    assert said.endswith("; put new data under a new prefix, or turn the step's cache off")
    assert aws.s3.get_object(Bucket="bkt", Key="raw/b")["LastModified"] > before
    monkeypatch.setattr(looking, "MOST", 2)
    (said,) = list_overwritten(aws)
    assert "of the first 2 objects under s3://bkt/raw" in said


def test_what_cannot_be_listed_is_said_and_stops_nobody(aws: Cloud):
    body = document()
    outcomes = predict_outcomes(body, NAME, History(aws.sm, NAME), datetime.now(UTC))
    body["Parameters"][0]["DefaultValue"] = "s3://no-such-bucket/raw"
    (said,) = [str(each) for each in find_overwritten(aws.s3, body, outcomes) if each.list_error]
    assert said.endswith("read: it cannot be listed (NoSuchBucket)")


def test_start_says_it_and_starts(aws: Cloud, monkeypatch: pytest.MonkeyPatch, capsys):
    for name, value in aws.endpoint.env.items():
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()  # without the credentials of another test's emulator
    aws.put("raw/a", "tex3")
    arn = start(NAME, {})
    out = capsys.readouterr().out
    assert "! Read is cached, but " in out and "--parameter InputUri=" in out
    assert f"started {arn}" in out


def test_a_step_whose_result_was_deleted_runs_and_so_does_what_follows(aws: Cloud):
    """As the emulator does it; nothing else has changed."""

    def predict_steps() -> dict[str, tuple[str, str]]:
        history = History(aws.sm, NAME, s3=aws.s3)
        found = predict_outcomes(document(), NAME, history, datetime.now(UTC))
        return {each.step: (each.answer, each.why) for each in found}

    assert [answer for answer, _ in predict_steps().values()] == ["cached", "cached"]
    gone = predict_steps()["Read"][1].rpartition(" ")[2]
    for key in aws.keys(f"runs/{gone}/read"):
        aws.s3.delete_object(Bucket="bkt", Key=key)
    why = f"its result is gone: nothing is left in s3://bkt/runs/{gone}/read"
    assert predict_steps()["Read"] == ("runs", why)
    assert predict_steps()["Next"][0] == "runs"
    after = aws.steps(aws.run(NAME)[0]["PipelineExecutionArn"])
    assert not [name for name, step in after.items() if "CacheHitResult" in step]


def test_a_result_that_another_run_wrote_over_is_not_passed_on_unsaid(aws: Cloud):
    """One place in every run: the cache of the first run's key would hand on the second's data."""
    entry = {"Name": "Rate", "Type": "String", "DefaultValue": "1"}
    make = step("Make", to="s3://bkt/fixed/all")
    make["Arguments"]["Environment"] = {"RATE": {"Get": "Parameters.Rate"}}
    make["Arguments"]["AppSpecification"]["ContainerArguments"] = [
        "echo $RATE > /opt/ml/processing/out/x"
    ]
    train = train_step("Train", "echo 1 > /opt/ml/model/x", **cache())  # a folder for each job
    body = pipeline([make, train], Parameters=[entry])
    create(aws, "fixed", body)

    first = aws.run("fixed")[0]["PipelineExecutionArn"].rpartition("/")[2]
    time.sleep(1.1)
    assert list_overwritten(aws, body, "fixed", Rate="1") == []
    aws.run("fixed", {"Rate": "2"})
    time.sleep(1.1)
    assert list_overwritten(aws, body, "fixed", Rate="2") == []
    (note,) = list_overwritten(aws, body, "fixed", Rate="1")
    many = "1 of 1 objects under s3://bkt/fixed/all were written after run"
    assert note.startswith(f"Make is cached, but {many} {first} made them (fixed/all/x at 20")
    assert note.endswith(f"; {looking.FIX_OUTPUT}")
    steps = aws.steps(aws.run("fixed", {"Rate": "1"})[0]["PipelineExecutionArn"])
    assert "CacheHitResult" not in steps["Make"] and "CacheHitResult" in steps["Train"]
    time.sleep(1.1)
    aws.put("fixed/all/y", "by hand")
    (note,) = list_overwritten(aws, body, "fixed", Rate="1")
    assert "1 of 2 objects under s3://bkt/fixed/all" in note
