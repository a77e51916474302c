"""Presigned POST: a form is taken exactly as far as its signed policy goes."""

import base64
import json
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.config import Config


@pytest.fixture(scope="module", params=["s3v4", "s3"])
def s3(endpoint, request):
    s3 = boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id=endpoint.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=endpoint.env["AWS_SECRET_ACCESS_KEY"],
        config=Config(signature_version=request.param),
    )
    boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id=endpoint.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=endpoint.env["AWS_SECRET_ACCESS_KEY"],
    ).create_bucket(Bucket="forms")
    return s3


def send(url: str, fields: dict, data: bytes, filename: str = "f.txt") -> tuple[int, str]:
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
        for k, v in fields.items()
    ]
    head = f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'
    parts += [f"--{boundary}\r\n{head}".encode(), data, f"\r\n--{boundary}--\r\n".encode()]
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    request = urllib.request.Request(url, b"".join(parts), kind)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as failure:
        return failure.code, failure.read().decode()


def test_what_boto3_presigns_is_taken_once_it_is_as_signed(s3, endpoint):
    store = endpoint.app.objects
    signed = s3.generate_presigned_post(
        "forms",
        "in/${filename}",
        Fields={"x-amz-meta-by": "me", "Content-Type": "text/plain"},
        Conditions=[
            {"x-amz-meta-by": "me"},
            ["starts-with", "$Content-Type", "text/"],
            ["content-length-range", 2, 2_000_000],
        ],
    )
    url, fields = signed["url"], signed["fields"]
    data = b"\r\n--" + b"x" * 1_500_000
    assert send(url, fields, data) == (204, "")
    info = store.head("forms", "in/f.txt")
    assert store.path("forms", "in/f.txt").read_bytes() == data
    assert (info.metadata, info.headers["Content-Type"]) == ({"by": "me"}, "text/plain")
    for wrong, status, code in (
        ({"x-amz-meta-by": "you"}, 403, "AccessDenied"),
        ({"Content-Type": "image/png"}, 403, "AccessDenied"),
        ({"key": "out/of/it"}, 403, "AccessDenied"),
        ({"x-amz-meta-more": "1"}, 403, "AccessDenied"),
        ({"policy": base64.b64encode(b"{}").decode()}, 403, "SignatureDoesNotMatch"),
    ):
        found, text = send(url, fields | wrong, b"data", "other")
        assert (found, f"<Code>{code}</Code>" in text) == (status, True), text
    for data, code in ((b"1", "EntityTooSmall"), (b"1" * 2_000_001, "EntityTooLarge")):
        found, text = send(url, fields, data, "other")
        assert (found, f"<Code>{code}</Code>" in text) == (400, True), text
    assert not any(i.key.endswith("other") for i in store.list("forms"))


def test_a_form_without_a_policy_or_after_its_time_is_refused(s3, endpoint):
    url = f"{endpoint.url}/forms"
    assert send(url, {"key": "k"}, b"data")[0] == 403
    signed = s3.generate_presigned_post("forms", "k", ExpiresIn=-1)
    found, text = send(signed["url"], signed["fields"], b"data")
    assert (found, "Policy expired" in text) == (403, True)
    lent = endpoint.app.keys.lend("arn:aws:iam::123456789012:role/job")
    job = boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id=lent.access_key,
        aws_secret_access_key=lent.secret,
        aws_session_token=lent.token,
    )
    signed = job.generate_presigned_post("forms", "k")
    without = {k: v for k, v in signed["fields"].items() if k != "x-amz-security-token"}
    assert send(signed["url"], without, b"data")[0] == 403
    assert send(signed["url"], signed["fields"], b"data")[0] == 204
    endpoint.app.keys.take_back(lent)
    assert send(signed["url"], signed["fields"], b"later")[0] == 403
    assert endpoint.app.objects.head("forms", "k").size == len(b"data")


def test_a_policy_that_is_none_is_a_400(s3, endpoint):
    """It is signed rightly, and means nothing."""
    from botocore.auth import HmacV1PostAuth  # what boto3 signs such forms with
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = endpoint.env["AWS_ACCESS_KEY_ID"], endpoint.env["AWS_SECRET_ACCESS_KEY"]
    for policy in (
        {"conditions": [{"bucket": "forms"}]},
        {"expiration": later},
        {"expiration": later, "CONDITIONS": [{"bucket": "forms"}]},
        {"expiration": "tomorrow", "conditions": [{"bucket": "forms"}]},
        {"expiration": later, "conditions": []},
        {"expiration": later, "conditions": [["content-length-range", 0]]},
        {"expiration": later, "conditions": [["content-length-range", 3, 1]]},
        {"expiration": later, "conditions": ["x"]},
        [1],
    ):
        request = AWSRequest("POST", f"{endpoint.url}/forms")
        fields: dict = {"key": "k"}
        text = base64.b64encode(json.dumps(policy).encode()).decode()
        auth = HmacV1PostAuth(Credentials(*keys))
        fields |= {"policy": text, "AWSAccessKeyId": keys[0], "signature": auth.sign_string(text)}
        found, answer = send(request.url, fields, b"data")
        assert (found, "InvalidPolicyDocument" in answer) == (400, True), (policy, answer)
