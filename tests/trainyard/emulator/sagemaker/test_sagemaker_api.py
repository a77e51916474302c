"""SageMaker's operations never fail themselves, whatever JSON is in a request."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, cloud, fail_step
from tests.trainyard.emulator.requests import MODEL, full, minimal
from tests.trainyard.emulator.sagemaker.pipelines.test_definition_form import places
from tests.trainyard.emulator.standin import signed
from trainyard.emulator.sagemaker.resources import KINDS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=3,
)
ODD = st.sampled_from(["", "\0", "s3://", "s3://b", "arn:aws:s3:::b", "x" * 300, -1, 2**40, 0, []])
VERBS = ("Create", "Describe", "List", "Update", "Delete")
RUNNING = {"CreateEndpoint", "UpdateEndpoint", "StartPipelineExecution"}  # would go on for long


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.create("PipelineName", [fail_step("f", "x")])
        yield running


def answered(aws: Cloud) -> list[str]:
    """Return the operations that are not always refused by name."""
    kept = {operation.name for kind in KINDS for v in VERBS if (operation := kind.operation(v))}
    owns = aws.endpoint.app.sagemaker.owns
    names = [n for n in MODEL.operation_names if owns(n) or n in kept or "ModelPackage" in n]
    return sorted(set(names) - RUNNING)


def asked(aws: Cloud, operation: str, body: bytes) -> tuple[int, str]:
    connection = http.client.HTTPConnection(aws.endpoint.url.removeprefix("http://"), timeout=60)
    headers = {
        "X-Amz-Target": f"SageMaker.{operation}",
        "Content-Type": "application/x-amz-json-1.1",
    }
    headers = signed(aws.endpoint, "sagemaker", "POST", "/", headers, body)
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@given(st.data())
def test_no_json_is_a_500(aws: Cloud, data: st.DataObject):
    operation = data.draw(st.sampled_from(answered(aws)))
    request: dict[str, Any] = data.draw(st.sampled_from([full, minimal]))(operation)
    if found := list(places(request)):
        *way, last = data.draw(st.sampled_from(found))
        target: Any = request
        for key in way:
            target = target[key]
        target[last] = data.draw(JSON | ODD)
    status, text = asked(aws, operation, json.dumps(request).encode())
    assert status < 500, (operation, request, text)


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"[" * 100_000, b'"x"', b"[]", b"{", b"NaN", b"null"]
)
def test_what_is_no_json_object_is_refused(aws: Cloud, body: bytes):
    assert asked(aws, "ListPipelines", body)[0] == 400


@pytest.mark.parametrize("make", [minimal, full])
def test_no_valid_request_is_a_500(aws: Cloud, make: Any):
    failed = {}
    for operation in answered(aws):
        status, text = asked(aws, operation, json.dumps(make(operation)).encode())
        if status >= 500:
            failed[operation] = text
    assert not failed


@pytest.mark.parametrize(
    ("operation", "request_", "said"),
    [
        ("ListPipelines", {"MaxResults": 101}, "less than or equal to 100"),
        ("ListPipelines", {"SortBy": "Size"}, "enum value set: [Name, CreationTime]"),
        ("DescribeTrainingJob", {"TrainingJobName": "x" * 64}, "length less than or equal to 63"),
        ("StopProcessingJob", {"ProcessingJobName": "../../p"}, "regular expression pattern"),
    ],
)
def test_what_cannot_be_is_refused_as_sagemaker_does(
    aws: Cloud, operation: str, request_: dict, said: str
):
    status, text = asked(aws, operation, json.dumps(request_).encode())
    assert status == 400 and said in text and "ValidationException" in text
