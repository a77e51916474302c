"""A role that may list some prefixes only can still upload below them."""

import threading

import pytest

from pipelines.delivery.pipeline_objects import (
    AT_ONCE,
    ensure_bucket,
    iter_objects,
    upload_changed_files,
)
from tests.trainyard.emulator.standin import make_client
from trainyard.common.errors import ServiceError

pytestmark = pytest.mark.long


def test_a_bucket_that_may_not_be_looked_at_as_a_whole_is_used(emulator):
    s3 = make_client(emulator, "s3")
    assert ensure_bucket(s3, "ci-bucket", "us-east-1")
    refused = {"x-amz-expected-bucket-owner": "999999999999"}  # what makes HeadBucket answer 403

    def refuse(params: dict, **_: object) -> None:
        params["headers"].update(refused)

    s3.meta.events.register("before-call.s3.HeadBucket", refuse)
    assert not ensure_bucket(s3, "ci-bucket", "us-east-1")
    assert upload_changed_files(s3, "ci-bucket", "code", {"a": b"123"}) == 3


def test_files_go_up_several_at_a_time(emulator):
    s3 = make_client(emulator, "s3")
    ensure_bucket(s3, "together", "us-east-1")
    barrier = threading.Barrier(AT_ONCE)

    def meet(**_: object) -> None:
        barrier.wait(60)  # breaks when they come one at a time

    s3.meta.events.register("before-call.s3.PutObject", meet)
    files = {f"{n}.py": b"%d" % n for n in range(2 * AT_ONCE)}
    assert upload_changed_files(s3, "together", "code", files) == sum(map(len, files.values()))
    there = {name: size for name, (size, _) in iter_objects(s3, "together", "code")}
    assert there == {name: len(body) for name, body in files.items()}
    assert upload_changed_files(s3, "together", "code", files) == 0


def test_after_a_refused_upload_no_other_begins(emulator):
    s3 = make_client(emulator, "s3")
    ensure_bucket(s3, "refusing", "us-east-1")
    began = []

    def refuse(params: dict, **_: object) -> None:
        began.append(params)
        params["headers"]["x-amz-expected-bucket-owner"] = "999999999999"

    s3.meta.events.register("before-call.s3.PutObject", refuse)
    files = {str(n): b"x" for n in range(40 * AT_ONCE)}
    with pytest.raises(ServiceError, match="s3://refusing/code"):
        upload_changed_files(s3, "refusing", "code", files)
    assert len(began) < len(files) / 2
