"""Signed requests: only real clients with the right secret are answered."""

import http.client
import io
import json
import stat
import time
import urllib.error
import urllib.request
from calendar import timegm
from pathlib import Path

import pytest
from botocore import UNSIGNED
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from werkzeug import Request
from werkzeug.test import EnvironBuilder

from tests.trainyard.emulator.standin import NoPipelines, make_client, sign_headers
from trainyard.common.errors import EmulatorError
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_signatures import RequestRefusal, verify_signature
from trainyard.emulator.s3.upload_body import SIGNATURE_KEY, Upload
from trainyard.emulator.server import Endpoint, serve_emulator

pytestmark = pytest.mark.long

SERVICES = {  # service: (a call, AWS's codes for an unknown key, a wrong secret, no signature)
    "s3": ("list_buckets", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"),
    "sts": ("get_caller_identity", "InvalidClientTokenId", "SignatureDoesNotMatch",
            "MissingAuthenticationToken"),
    "sagemaker": ("list_pipelines", "UnrecognizedClientException", "InvalidSignatureException",
                  "MissingAuthenticationTokenException"),
}  # fmt: skip


def keys(endpoint: Endpoint) -> tuple[str, str]:
    return endpoint.env["AWS_ACCESS_KEY_ID"], endpoint.env["AWS_SECRET_ACCESS_KEY"]


def presigning(endpoint: Endpoint, version: str | None):
    config = {"signature_version": version} if version else {}
    return make_client(endpoint, "s3", **config)


@pytest.mark.parametrize("service", SERVICES)
def test_only_who_has_the_secret_is_answered(endpoint, service: str):
    call, unknown, wrong, missing = SERVICES[service]
    key, secret = keys(endpoint)
    assert getattr(make_client(endpoint, service), call)()
    for client, code in [
        (make_client(endpoint, service, keys=("emulator", "emulator")), unknown),
        (make_client(endpoint, service, keys=(key, secret[::-1])), wrong),
        (make_client(endpoint, service, signature_version=UNSIGNED), missing),
    ]:
        with pytest.raises(ClientError) as failure:
            getattr(client, call)()
        assert failure.value.response["Error"]["Code"] == code
        assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.parametrize("version", ["s3v4", None])
def test_presigned_urls_hold_for_what_they_were_made_for(endpoint, client, version: str | None):
    """By default boto3 creates one of Version 2 in us-east-1."""
    client("s3").create_bucket(Bucket="signed")
    s3 = presigning(endpoint, version)
    where = {"Bucket": "signed", "Key": "a b/é+"}
    put = s3.generate_presigned_url("put_object", {**where, "ContentType": "text/plain"})
    assert ("AWSAccessKeyId" in put) == (version is None)
    kind = {"Content-Type": "text/plain"}  # signed in either version
    urllib.request.urlopen(urllib.request.Request(put, b"data", kind, method="PUT"))
    get = s3.generate_presigned_url("get_object", {**where, "ResponseContentType": "text/x"})
    with urllib.request.urlopen(get) as answer:
        assert (answer.read(), answer.headers["Content-Type"]) == (b"data", "text/x")
    old = s3.generate_presigned_url("get_object", where, ExpiresIn=-1 if version is None else 0)
    time.sleep(1.1)
    header = {"Authorization": "x/20260101/us-east-1/sagemaker/aws4_request"}
    for refused in [
        urllib.request.Request(get, method="DELETE"),
        urllib.request.Request(get.replace("a%20b", "a%20c")),
        urllib.request.Request(get.replace("text", "toxt")),
        urllib.request.Request(get, headers=header),  # another service's, at its side
        urllib.request.Request(put, b"data", {"Content-Type": "text/html"}, method="PUT"),
        old,
    ]:
        with pytest.raises(urllib.error.HTTPError) as failure:
            urllib.request.urlopen(refused)
        assert failure.value.code in (400, 403)


@given(data=st.data())
def test_one_changed_byte_of_what_was_signed_is_refused(endpoint, data):
    body = b'{"PipelineName": "p"}'
    headers = sign_headers(
        endpoint, "sagemaker", "POST", "/", {"X-Amz-Target": "SageMaker.X"}, body
    )
    sent = headers | {"body": body.decode()}
    kind = data.draw(st.sampled_from(["body", "X-Amz-Target", "X-Amz-Date", "Authorization"]))
    at = data.draw(st.integers(0, len(sent[kind]) - 1))
    other = data.draw(st.sampled_from("abc012XYZ").filter(lambda letter: letter != sent[kind][at]))
    sent[kind] = sent[kind][:at] + other + sent[kind][at + 1 :]
    connection = http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/", sent.pop("body").encode(), sent)
    assert connection.getresponse().status in (400, 403)
    connection.close()


@pytest.mark.parametrize("version", ["s3v4", None])
@pytest.mark.parametrize("header", ["x-amz-copy-source", "x-amz-acl", "x-amz-meta-a"])
def test_a_presigned_url_cannot_be_told_more(endpoint, client, version: str | None, header: str):
    """The holder of the URL cannot add further commands."""
    client("s3").create_bucket(Bucket="more")
    client("s3").put_object(Bucket="more", Key="secret", Body=b"secret")
    mine = {"Bucket": "more", "Key": f"mine-{version}-{header}"}
    put = presigning(endpoint, version).generate_presigned_url("put_object", mine)
    value = "private" if header == "x-amz-acl" else "/more/secret"
    asked = urllib.request.Request(put, b"", {header: value}, method="PUT")
    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(asked)
    said = failure.value.read().decode()
    assert failure.value.code == 403
    if version:
        assert "<Code>AccessDenied</Code><Message>There were headers present" in said
        assert f"<HeadersNotSigned>{header}</HeadersNotSigned>" in said
    assert "Contents" not in client("s3").list_objects_v2(Bucket="more", Prefix=mine["Key"])


@pytest.mark.parametrize("service", SERVICES)
def test_an_unsigned_header_beside_a_signed_one_is_refused(endpoint, service: str):
    """Also without a presigned URL, and for every service: the header is added after signing."""
    client = make_client(endpoint, service)

    def add(request, **_) -> None:
        request.headers["x-amz-more"] = "1"

    client.meta.events.register("before-send", add)
    with pytest.raises(ClientError, match="not signed: x-amz-more") as failure:
        getattr(client, SERVICES[service][0])()
    code = failure.value.response["Error"]["Code"]
    assert code.startswith("AccessDenied" if service == "s3" else "IncompleteSignature")


def test_the_headers_of_version_2_are_refused(endpoint):
    with pytest.raises(ClientError, match="Please use AWS4-HMAC-SHA256"):
        make_client(endpoint, "s3", signature_version="s3").list_buckets()


def test_a_sessions_keys_count_too(endpoint, client):
    role = "arn:aws:iam::123456789012:role/r"
    got = client("sts").assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
    session = [got[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
    assert make_client(endpoint, "sagemaker", keys=session).list_pipelines()
    example = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # everybody's
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        make_client(endpoint, "sagemaker", keys=example).list_pipelines()


def test_the_secret_stays_with_its_state_and_its_owner(tmp_path: Path):
    with serve_emulator(tmp_path / "a", make_sagemaker=NoPipelines) as first:
        known = keys(first)
        assert known[1] not in repr(first)
    with serve_emulator(tmp_path / "b", make_sagemaker=NoPipelines) as other:
        assert keys(other)[0] != known[0] and keys(other)[1] != known[1]
    with serve_emulator(tmp_path / "a", make_sagemaker=NoPipelines) as again:
        assert keys(again) == known and make_client(again, "s3").list_buckets()
    path = tmp_path / "a/credentials.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(json.loads(path.read_text()).values()) == set(known)
    path.chmod(0o644)
    with (
        pytest.raises(EmulatorError, match="can be read by others"),
        serve_emulator(tmp_path / "a"),
    ):
        pass


# AWS's own examples: "Authenticating Requests (AWS Signature Version 4)" in the S3 API reference
SECRET = {"AKIAIOSFODNN7EXAMPLE": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}.get
MOMENT = timegm((2013, 5, 24, 0, 0, 0))
SCOPE = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def make_arrived_request(
    method: str, path: str, headers: dict[str, str], body: bytes = b""
) -> Request:
    stream = io.BytesIO(body)
    made = EnvironBuilder(method=method, path=path, headers=headers, input_stream=stream)
    return Request(made.get_environ() | {"RAW_URI": path, "wsgi.input_terminated": True})


def test_awss_example_of_a_header():
    headers = {
        "Host": "examplebucket.s3.amazonaws.com",
        "Range": "bytes=0-9",
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": "20130524T000000Z",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={SCOPE},"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    }
    assert (
        verify_signature(make_arrived_request("GET", "/test.txt", headers), SECRET, MOMENT).service
        == "s3"
    )
    with pytest.raises(RequestRefusal, match="15 minutes"):
        verify_signature(make_arrived_request("GET", "/test.txt", headers), SECRET, MOMENT + 901)


def test_awss_example_of_a_presigned_url():
    path = (
        "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
        f"{SCOPE.replace('/', '%2F')}&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
        "&X-Amz-SignedHeaders=host&X-Amz-Signature="
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )
    host = {"Host": "examplebucket.s3.amazonaws.com"}
    assert (
        verify_signature(make_arrived_request("GET", path, host), SECRET, MOMENT + 86400).service
        == "s3"
    )
    with pytest.raises(RequestRefusal, match="expired"):
        verify_signature(make_arrived_request("GET", path, host), SECRET, MOMENT + 86401)


CHUNKS = [
    (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
    (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
    (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
]


@pytest.mark.parametrize(
    "damage",
    [(b"", b""), (b"aaa\r\n400", b"aba\r\n400"), (b"0055627c", b"0055627d"),
     (b"b6c6ea8a", b"b6c6ea8b")],
    ids=["whole", "data", "signature", "last"],
)  # fmt: skip
def test_awss_example_of_an_upload_in_signed_chunks(damage: tuple[bytes, bytes]):
    headers = {
        "Host": "s3.amazonaws.com",
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={SCOPE},"
        "SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
        "x-amz-decoded-content-length;x-amz-storage-class,"
        "Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "Content-Encoding": "aws-chunked",
        "x-amz-decoded-content-length": "66560",
        "Content-Length": "66824",
    }
    body = b"".join(
        b"%x;chunk-signature=%s\r\n%s\r\n" % (size, mark.encode(), b"a" * size)
        for size, mark in CHUNKS
    ).replace(*damage)
    request = make_arrived_request("PUT", "/examplebucket/chunkObject.txt", headers, body)
    request.environ[SIGNATURE_KEY] = verify_signature(request, SECRET, MOMENT)
    if not damage[0]:
        assert b"".join(Upload(request).iter_chunks()) == b"a" * 66560
        return
    with pytest.raises(ApiError, match="SignatureDoesNotMatch"):
        b"".join(Upload(request).iter_chunks())
