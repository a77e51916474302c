"""A script's data in S3, and a verdict's champion: whether they are what they were."""

import boto3
import pytest

from pipelines.registry.champion import check_champion
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.record_checks import Mismatch
from pipelines.registry.verification import _check_channel
from steps.evaluate.script_evaluation import summarize_channel
from trainyard.common.errors import GateError

pytestmark = pytest.mark.long

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/mine/1"


@pytest.fixture(scope="module")
def evidence(aws_environment):
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="channels")
    for key in ("test/test", "many/a.csv", "many/deep/b.csv", "many/", "one.csv", "one.csvx"):
        s3.put_object(Bucket="channels", Key=key, Body=key.encode())
    return Evidence(ARN)


@pytest.mark.parametrize(
    ("uri", "files"),
    [
        ("s3://channels/test", {"test": "test/test"}),
        ("s3://channels/many/", {"a.csv": "many/a.csv", "deep/b.csv": "many/deep/b.csv"}),
        ("s3://channels/one.csv", {"one.csv": "one.csv"}),
    ],
)
def test_a_channel_is_what_the_job_was_given(uri, files, evidence, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    told = summarize_channel("test", tmp_path)
    assert _check_channel(evidence, "channel test", uri, told, deep=True) == len(files)
    (tmp_path / next(iter(files))).write_text(next(iter(files.values())).upper())
    other = summarize_channel("test", tmp_path)
    assert _check_channel(evidence, "channel test", uri, other, deep=False) == len(files)
    with pytest.raises(Mismatch, match="SHA-256 of channel test"):
        _check_channel(evidence, "channel test", uri, other, deep=True)
    (tmp_path / "more.csv").write_text("")
    with pytest.raises(Mismatch, match="number of files of channel test"):
        _check_channel(
            evidence, "channel test", uri, summarize_channel("test", tmp_path), deep=False
        )


@pytest.mark.parametrize(
    ("judged", "now", "refused"),
    [
        ("none", None, None),
        ("one", "one", None),
        (None, "one", None),  # the recipe compares with no champion
        ("none", "one", "compared with none, the champion is now one"),
        ("one", "two", "compared with one, the champion is now two"),
        ("one", None, "the champion is now none: it was rejected, or deleted"),
    ],
)
def test_a_champion_that_moved_refuses(judged, now, refused):
    if refused is None:
        return check_champion("arn", judged, now)
    with pytest.raises(GateError, match=refused):
        check_champion("arn", judged, now)
