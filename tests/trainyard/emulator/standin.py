"""Replacements for pipelines and jobs in the tests of the emulator's edge."""

import http.client
from collections.abc import Sequence

import boto3
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.server import Endpoint


class NoPipelines:
    """Replaces trainyard.emulator.sagemaker.sagemaker_api.SageMaker if no pipeline starts."""

    def __init__(self, state, objects, logs, aws, forward) -> None:
        self.aws, self.forward, self.closed = aws, forward, False

    def owns(self, operation: str) -> bool:
        return operation in {"ListPipelines", "DescribePipeline"}

    def handle(self, operation: str, request: dict) -> dict:
        if operation == "DescribePipeline":
            raise ApiError("ResourceNotFound", f"Pipeline {request['PipelineName']} is not there.")
        return {"PipelineSummaries": [{"PipelineName": "stand-in", "CreationTime": 1.5}]}

    def begin(self) -> None:
        pass

    def send_package_event(self, package: dict) -> None:
        pass

    def answer_other_service(self, service: str, request) -> None:
        return None

    def close(self) -> None:
        self.closed = True


def sign_headers(
    endpoint: Endpoint,
    service: str,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> dict[str, str]:
    """Return ``headers`` plus those that a request over a bare connection needs.

    S3's bodies are unsigned, unless ``headers`` say what is signed.
    """
    keys = endpoint.env["AWS_ACCESS_KEY_ID"], endpoint.env["AWS_SECRET_ACCESS_KEY"]
    given = {"Host": endpoint.url.removeprefix("http://")} | (headers or {})
    if service == "s3":
        given = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"} | given
    request = AWSRequest(method, endpoint.url + path, given, body)
    kind = _S3Auth if service == "s3" else SigV4Auth
    kind(Credentials(*keys), service, "us-east-1").add_auth(request)
    return dict(request.headers)


def send(
    endpoint: Endpoint,
    service: str,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, str]:
    """Send a signed request as it is; return the answer's status and text."""
    connection = http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=60)
    given = sign_headers(endpoint, service, method, path, headers, body)
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


class _S3Auth(S3SigV4Auth):
    """Signs x-amz-content-sha256 as it is: S3SigV4Auth would write its own."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        SigV4Auth._modify_request_before_signing(self, request)


def make_client(
    endpoint: Endpoint,
    service: str,
    region: str = "us-east-1",
    keys: Sequence[str] = (),
    **config: object,
):
    """Return a boto3 client without retries: an answer that botocore would retry must fail the
    test. ``keys``: other ones than the emulator's own.
    """
    own = endpoint.env["AWS_ACCESS_KEY_ID"], endpoint.env["AWS_SECRET_ACCESS_KEY"]
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    return boto3.client(
        service,
        endpoint_url=endpoint.url,
        region_name=region,
        config=Config(retries={"total_max_attempts": 1}, **config),
        **dict(zip(names, keys or own, strict=False)),
    )
