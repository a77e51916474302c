"""Upserting: unchanged is cheap, a change is whole, one at a time, and recorded."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from pipelines.delivery import upsert_lock
from pipelines.delivery.upsert_lock import RecordsLocation
from pipelines.recipe.sections import Budget
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT, clean_environment
from tests.pipelines.upserting import NAME, clean_aws, definition
from trainyard.common.errors import PlanError
from trainyard.plan import deployed_pipeline

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def aws(emulator, monkeypatch: pytest.MonkeyPatch):
    return clean_aws(emulator.env, monkeypatch)


PLACE = RecordsLocation("bkt", "prefix/small/definitions")


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all calls to AWS from here on."""
    made: list[str] = []
    events = boto3.DEFAULT_SESSION._session
    events.register("before-call.*", lambda model, **_: made.append(model.name))
    return made


def state(sagemaker) -> deployed_pipeline.State:
    found = deployed_pipeline.describe_deployed_pipeline(sagemaker, NAME)
    assert found
    return found.state


def test_create_update_and_unchanged_which_writes_nothing_and_takes_no_lock(aws, monkeypatch):
    """Of a change the record is written before the pipeline, and the code before both."""
    s3, sagemaker = aws
    first = upsert(definition("1"))
    assert (first.change, first.uploaded_bytes) == ("created", 2)
    made = calls(monkeypatch)
    again = upsert(definition("1"))
    assert (again.change, again.uploaded_bytes) == ("unchanged", 0)
    assert set(made) == {"DescribePipeline", "ListTags", "HeadBucket", "ListObjectsV2"}
    made.clear()
    assert upsert(definition("2")).change == "updated"
    writes = [name for name in made if name in ("PutObject", "UpdatePipeline", "DeleteObject")]
    # the lock, two files, the record, the lock again, then the pipeline
    assert writes == [*["PutObject"] * 5, "UpdatePipeline", "DeleteObject"]
    wanted = definition("2").state
    assert state(sagemaker).fingerprint == wanted.fingerprint
    keys = {item["Key"] for item in s3.list_objects_v2(Bucket="bkt")["Contents"]}
    recorded = {PLACE.build_key(f"{definition(v).state.fingerprint}.json") for v in "12"}
    assert {key for key in keys if "definitions" in key} == recorded  # and no lock is left
    found = upsert_lock.list_records(s3, PLACE)
    assert found.last == wanted.fingerprint and not found.is_locked
    assert upsert_lock.read_record(s3, PLACE, found.last) == wanted


def test_code_that_is_missing_is_uploaded_also_when_nothing_changed(aws):
    s3, _ = aws
    upsert(definition("1"))
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket="bkt")["Contents"]]
    [key] = [key for key in keys if key.endswith("b.txt")]
    s3.delete_object(Bucket="bkt", Key=key)
    assert upsert(definition("1")) == replace(upsert(definition("1")), uploaded_bytes=1)


@pytest.mark.parametrize(
    ("old", "new"),
    [({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}), ({"a": "1"}, {}), ({}, {"a": "1"})],
)
def test_tags_follow_the_recipe_and_those_of_others_stay(aws, old: dict, new: dict):
    _, sagemaker = aws
    upsert(definition("1", tags=old))
    arn = sagemaker.describe_pipeline(PipelineName=NAME)["PipelineArn"]
    theirs = {"Key": "sagemaker:project-name", "Value": "theirs"}
    sagemaker.add_tags(ResourceArn=arn, Tags=[theirs])
    assert upsert(definition("1", tags=new)).change == "updated"
    assert state(sagemaker).tags == new
    assert theirs in sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert len(sagemaker.list_pipeline_versions(PipelineName=NAME)["PipelineVersionSummaries"]) == 1
    assert upsert(replace(definition("1", tags=new), description="")).change == "updated"
    assert state(sagemaker).description == ""


def test_over_budget_nothing_is_uploaded_and_nothing_changed(aws):
    s3, sagemaker = aws
    upsert(definition("1"))
    before = (state(sagemaker), s3.list_objects_v2(Bucket="bkt")["KeyCount"])
    dear = replace(definition("2"), budget=Budget(usd_per_run=0.0001))
    with pytest.raises(PlanError, match=r"budget: a run may cost .*Nothing was changed"):
        upsert(dear)
    assert (state(sagemaker), s3.list_objects_v2(Bucket="bkt")["KeyCount"]) == before
    assert upsert(replace(dear, budget=Budget(usd_per_run=1))).change == "updated"


def test_somebody_elses_lock_stops_an_upsert_that_changes_something(aws):
    s3, sagemaker = aws
    upsert(definition("1"))
    before = state(sagemaker)
    with upsert_lock.hold_lock(s3, PLACE, NAME, 60):
        said = rf"{os.getpid()}\) has been upserting it since .* UTC; not"
        with pytest.raises(PlanError, match=said):
            upsert(definition("2"))
        assert upsert(definition("1")).change == "unchanged"
    assert state(sagemaker) == before
    assert definition("2").state.fingerprint not in upsert_lock.list_records(s3, PLACE).times
    assert upsert(definition("2")).change == "updated"


def test_a_lock_is_one_persons_until_its_time_is_up(aws):
    s3, _ = aws
    one, other = upsert_lock.Lock(s3, PLACE, NAME, 0.1), upsert_lock.Lock(s3, PLACE, NAME, 60)
    one.take()
    one.renew()
    with pytest.raises(PlanError):
        other.take()
    time.sleep(2.2)  # and one for the whole seconds of Last-Modified, and of Date
    other.take()
    with pytest.raises(PlanError, match="took over; nothing was changed"):
        one.renew()
    one.release()  # is no longer its own
    assert other.read_holder().id == other._id
    other.release()
    assert other.read_holder() is None


def test_a_write_that_s3_carried_out_and_whose_answer_was_lost_is_ours(aws):
    """S3 refuses botocore's second attempt, since the first one had created the object."""
    s3, _ = aws
    mine = upsert_lock.Lock(s3, PLACE, NAME, 60)
    mine.take()
    assert mine._write(IfNoneMatch="*")
    mine.renew()
    assert not upsert_lock.Lock(s3, PLACE, NAME, 60)._write(IfNoneMatch="*")
    mine.release()
    assert mine.read_holder() is None


def test_a_change_between_the_first_look_and_the_lock_is_refused(aws):
    s3, sagemaker = aws
    upsert(definition("1"))
    once = iter([True])

    def meddle(**_: object) -> None:
        if next(once, False):
            sagemaker.update_pipeline(**definition("9").state.build_request())

    boto3.DEFAULT_SESSION._session.register("before-call.s3.PutObject", meddle)
    with pytest.raises(PlanError, match="changed it at .* while this upsert was starting"):
        upsert(definition("2"))
    assert state(sagemaker).build_request() == definition("9").state.build_request()
    found = upsert_lock.list_records(s3, PLACE)
    assert definition("2").state.fingerprint not in found.times and not found.is_locked


def test_white_space_and_the_order_of_keys_are_no_change(aws):
    _, sagemaker = aws
    upsert(definition("1"))
    document = definition("1").state.document
    text = json.dumps(dict(reversed(document.items())), indent=3)
    request = definition("1").state.build_request() | {"PipelineDefinition": text}
    sagemaker.update_pipeline(**request)
    assert upsert(definition("1")).change == "unchanged"
    assert upsert(definition("2")).change == "updated"


def test_a_role_that_is_told_403_of_a_lock_that_is_not_there(aws):
    """S3 says 404 only to a role that may list the whole bucket."""
    s3, _ = aws
    mine = upsert_lock.Lock(s3, PLACE, NAME, 60)

    def deny(request, **_: object) -> AWSResponse:
        body = b"<Error><Code>AccessDenied</Code></Error>"
        raw = SimpleNamespace(stream=lambda *_, **__: iter([body]))
        return AWSResponse(request.url, 403, {}, raw)

    for operation in ("GetObject", "DeleteObject"):
        s3.meta.events.register(f"before-send.s3.{operation}", deny)
    assert mine.read_holder() is None
    mine.release()
    s3.put_object(Bucket="bkt", Key=PLACE.build_key("lock"), Body=b"somebody's")
    with pytest.raises(ClientError, match="AccessDenied"):
        mine.read_holder()
    s3.meta.events.register("before-send.s3.PutObject", deny)
    with pytest.raises(ClientError, match="AccessDenied"):
        mine.take()


def test_what_is_no_lock_and_no_record_is_said_to_be_none(aws):
    s3, _ = aws
    s3.put_object(Bucket="bkt", Key=PLACE.build_key("lock"), Body=b'{"id": 1}')
    with pytest.raises(PlanError, match="is not a lock of upsert"):
        upsert(definition("1"))
    s3.delete_object(Bucket="bkt", Key=PLACE.build_key("lock"))
    upsert(definition("1"))
    wanted = definition("1").state
    record = PLACE.build_key(f"{wanted.fingerprint}.json")
    for body in (b"", b"[]", json.dumps(wanted.as_json() | {"role": "another"}).encode()):
        s3.put_object(Bucket="bkt", Key=record, Body=body)
        with pytest.raises(PlanError, match="damaged or edited"):
            upsert_lock.read_record(s3, PLACE, wanted.fingerprint)


def test_many_who_want_the_lock_at_once(aws):
    s3, _ = aws

    def take(_: int) -> bool:
        try:
            upsert_lock.Lock(s3, PLACE, NAME, 60).take()
            return True
        except PlanError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(16))) == 1


def process(env: dict, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipelines.upserting", *arguments],
        cwd=CHECKOUT,
        env=clean_environment() | env,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.sweep
def test_of_upserts_at_once_one_wins_and_the_others_say_who(aws, emulator, tmp_path: Path):
    _, sagemaker = aws
    upsert(definition("0"))
    go, values = tmp_path / "go", "ab"
    running = {v: process(emulator.env, v, "--go-when", str(go)) for v in values}
    assert [each.stdout.readline() for each in running.values()] == ["ready\n"] * len(values)
    go.touch()
    said = {v: each.communicate(timeout=250)[0].strip() for v, each in running.items()}
    status = {v: each.returncode for v, each in running.items()}
    won = [v for v in values if said[v] == "updated"]
    assert won and all(status[v] == (0 if v in won else 1) for v in values), said
    for value in set(values) - set(won):
        assert "has been upserting it since" in said[value] or "changed it at" in said[value], said
    wanted = {definition(v).state.fingerprint for v in won}
    assert state(sagemaker).fingerprint in wanted
    versions = sagemaker.list_pipeline_versions(PipelineName=NAME)["PipelineVersionSummaries"]
    assert len(versions) == 1 + len(won)


@pytest.mark.parametrize(
    ("event", "is_new"),
    [
        ("before-call.sagemaker.UpdatePipeline", False),
        pytest.param("after-call.sagemaker.UpdatePipeline", True, marks=pytest.mark.sweep),
    ],
)
def test_killed_in_the_middle_the_pipeline_is_whole_and_the_next_goes_on(
    aws, emulator, event: str, is_new: bool
):
    _, sagemaker = aws
    upsert(definition("1"))
    old, new = (definition(v).state.build_request() for v in "12")
    with process(emulator.env, "2", "--seconds", "1", "--stop-at", event) as killed:
        assert [killed.stdout.readline() for _ in range(2)] == ["ready\n", "stopped\n"]
        killed.send_signal(signal.SIGKILL)
    assert state(sagemaker).build_request() == (new if is_new else old)
    with pytest.raises(PlanError, match=f"process {killed.pid}"):
        upsert(definition("3"))
    time.sleep(3.1)
    assert upsert(definition("3")).change == "updated"
    assert json.dumps(state(sagemaker).as_json()) == json.dumps(definition("3").state.as_json())


def test_credentials_of_another_account_change_nothing(aws, monkeypatch: pytest.MonkeyPatch):
    _, sagemaker = aws
    made = calls(monkeypatch)
    with pytest.raises(PlanError, match=r"for account 444455556666, .* to 123456789012 \(arn:"):
        upsert(replace(definition("1"), account="444455556666"))
    assert made == ["GetCallerIdentity"]
    assert deployed_pipeline.describe_deployed_pipeline(sagemaker, NAME) is None
    assert upsert(replace(definition("1"), account="123456789012")).change == "created"
