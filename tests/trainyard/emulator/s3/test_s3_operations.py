"""Every operation of botocore's S3 model: answered, or refused by name without any change."""

from datetime import UTC, datetime

import botocore.session
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from botocore.model import Shape

from tests.trainyard.emulator.standin import send
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.s3.operation_routes import _ALWAYS, ROUTES, is_heeded

pytestmark = pytest.mark.long

MODEL = botocore.session.get_session().get_service_model("s3")
ELSEWHERE = {  # botocore sends these to another service than S3, or to a host of their own
    "CreateSession",
    "ListDirectoryBuckets",
    "WriteGetObjectResponse",
}
NAMES = sorted(set(MODEL.operation_names) - ELSEWHERE)
GIVEN = {
    "Bucket": "walked",
    "Key": "key",
    "CopySource": "walked/other",
    "RenameSource": "walked/other",
    "UploadId": "none",
    "PartNumber": 1,
    "Body": b"new",
    "ExpectedBucketOwner": "123456789012",
    "ExpectedSourceBucketOwner": "123456789012",
    "LocationConstraint": "eu-west-1",
}
WRITES = {
    **dict.fromkeys(["PutObject", "CopyObject", "DeleteObject", "DeleteObjects"], {"key"}),
    "PutObjectTagging": {"key"},
    **dict.fromkeys(["PutBucketTagging", "PutPublicAccessBlock"], {"settings"}),
    "PutBucketVersioning": {"settings"},
    "DeletePublicAccessBlock": {"settings"},
    "DeleteBucketTagging": {"settings"},
}
"""Operations that change something with a minimal request → the thing that changes."""


def sample(shape: Shape, name: str = "", depth: int = 0) -> object:
    """Return a value of the shape, with its required members, or with all members at depth 0."""
    if name in GIVEN:
        return GIVEN[name]
    if shape.type_name == "structure":
        some = shape.required_members or list(shape.members)[: 1 if depth < 6 else 0]
        return {m: sample(shape.members[m], m, depth + 1) for m in some}
    if shape.type_name == "list":
        return [sample(shape.member, "", depth + 1)]
    if shape.type_name == "map":
        return {"a": "b"}
    if shape.type_name in ("integer", "long"):
        return 1
    return {
        "string": next(iter(getattr(shape, "enum", [])), "arn:aws:kms:us-east-1:1:key/a"),
        "boolean": True,
        "timestamp": datetime(2030, 1, 1, tzinfo=UTC),
        "blob": b"a",
    }[shape.type_name]


def least(name: str) -> dict:
    shape = MODEL.operation_model(name).input_shape
    wanted = [m for m in shape.members if m in shape.required_members] if shape else []
    body = shape.serialization.get("payload") if shape else None
    return {m: sample(shape.members[m], m) for m in {*wanted, *([body] if body else [])}}


def python_name(client, name: str) -> str:
    return next(k for k, v in client.meta.method_to_api_mapping.items() if v == name)


@pytest.fixture(scope="module")
def s3(client):
    return client("s3")


@pytest.fixture
def walked(s3, endpoint):
    store = endpoint.app.objects
    if not store.has_bucket("walked"):
        store.create_bucket("walked")
    for key in ("key", "other", "a"):
        store.put_bytes("walked", key, key.encode())
    return s3


def state(store: ObjectStore) -> dict[str, tuple]:
    rows = {"walked": store.list_buckets()[0][0] if store.has_bucket("walked") else None}
    for info in store.list("walked") if rows["walked"] else ():
        rows[info.key] = (info.etag, info.last_modified, info.headers, info.metadata)
    rows["settings"] = store.index.run("SELECT * FROM settings")
    return rows


def call(s3, name: str, arguments: dict) -> str:
    """Return the error's code and message; empty texts without an error."""
    try:
        getattr(s3, python_name(s3, name))(**arguments)
    except ClientError as failure:
        status = failure.response["ResponseMetadata"]["HTTPStatusCode"]
        assert status != 500, failure
        return f"{status} {failure.response['Error'].get('Message', '')}"
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_is_answered_or_refused_by_name_and_nothing_else_changes(
    walked, endpoint, name: str
):
    store = endpoint.app.objects
    before = state(store)
    said = call(walked, name, least(name))
    after = state(store)
    known = name in ROUTES or f"{name}Configuration" in ROUTES  # the latter is deprecated
    assert said.startswith(f"501 The emulator's S3 does not implement {name}") != known, said
    touched = {k for k in {*before, *after} if before.get(k) != after.get(k)}
    assert touched <= WRITES.get(name, set())


def optional() -> list[tuple[str, str]]:
    return [
        (name, member)
        for name in NAMES
        if name in ROUTES and (shape := MODEL.operation_model(name).input_shape)
        for member, each in shape.members.items()
        if each.serialization.get("location") in ("querystring", "header")
        and member not in shape.required_members
    ]


def test_each_parameter_of_an_operation_is_heeded_or_refused_by_name(walked):
    """Parameters outside the operation's list get a 501 that names the header or parameter."""
    checked = 0
    for name, member in optional():
        shape = MODEL.operation_model(name).input_shape.members[member]
        wire = shape.serialization["name"]
        header = wire.lower()
        is_known = any(is_heeded(ROUTES[name], each) for each in (wire, header))
        is_head = MODEL.operation_model(name).http["method"] == "HEAD"
        if is_known or is_head or header in _ALWAYS or header.startswith("content-"):
            continue
        try:
            said = call(walked, name, least(name) | {member: sample(shape, member)})
        except ParamValidationError:
            continue
        assert said.startswith("501") and header in said.lower(), (name, member, said)
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/walked?metadataTable"),
        ("DELETE", "/walked?nobodyKnowsThis"),
        ("PUT", "/walked/key?renameObject"),
        ("PUT", "/walked/key?uploadId=1"),
        ("DELETE", "/walked/key?x-id=DeleteObjectOfTomorrow"),
        ("POST", "/walked/key"),
        ("GET", "/walked/key?torrent"),
        ("GET", "/walked?session"),
        ("GET", "/?x-id=ListDirectoryBuckets"),
        ("POST", "/WriteGetObjectResponse"),
    ],
)
def test_what_no_model_knows_is_refused_too(walked, endpoint, method: str, path: str):
    before = state(endpoint.app.objects)
    status, text = send(endpoint, "s3", method, path)
    assert (status, state(endpoint.app.objects)) == (501, before), text
    assert "<Code>NotImplemented</Code>" in text
