"""A role that may list some prefixes only can still upload below them."""

from pipelines.deploying.storage import ensure_bucket, sync
from tests.trainyard.emulator.standin import make_client


def test_a_bucket_that_may_not_be_looked_at_as_a_whole_is_used(emulator):
    s3 = make_client(emulator, "s3")
    assert ensure_bucket(s3, "ci-bucket", "us-east-1")
    refused = {"x-amz-expected-bucket-owner": "999999999999"}  # what makes HeadBucket answer 403

    def refuse(params: dict, **_: object) -> None:
        params["headers"].update(refused)

    s3.meta.events.register("before-call.s3.HeadBucket", refuse)
    assert not ensure_bucket(s3, "ci-bucket", "us-east-1")
    assert sync(s3, "ci-bucket", "code", {"a": b"123"}) == 3
