"""The endpoint: routing, forms of errors, and the state after a restart."""

import http.client
import json
import logging
import time
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import PATIENCE
from tests.trainyard.emulator.requests import valid
from tests.trainyard.emulator.standin import NoPipelines, make_client, send, sign_headers
from trainyard.common.errors import EmulatorError
from trainyard.emulator.server import serve_emulator


def test_operations_go_to_who_has_them(client, endpoint):
    sagemaker = client("sagemaker")
    assert sagemaker.list_pipelines()["PipelineSummaries"][0]["PipelineName"] == "stand-in"
    with pytest.raises(ClientError, match="ResourceNotFound.*Pipeline p is not there"):
        sagemaker.describe_pipeline(PipelineName="p")
    sagemaker.create_experiment(ExperimentName="e")  # kept
    assert endpoint.app.forward("DescribeExperiment", {"ExperimentName": "e"})["CreationTime"]
    assert client("sts").get_caller_identity()["Account"] == "123456789012"
    document = json.dumps({"Statement": []})
    assert client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=document)


@pytest.mark.parametrize(
    ("service", "operation", "code"),
    [
        ("sagemaker", "ListLabelingJobs", "UnknownOperationException"),
        ("lambda", "ListCodeSigningConfigs", "UnknownOperationException"),
        ("logs", "DescribeQueries", "UnknownOperationException"),
        ("iam", "SimulatePrincipalPolicy", "InvalidAction"),
    ],
)
def test_what_nobody_has_is_refused_at_once_in_the_services_own_form(
    client, service: str, operation: str, code: str
):
    with pytest.raises(ClientError, match="does not implement") as failure:
        getattr(client(service), xform_name(operation))(**valid(service, operation))
    assert failure.value.response["Error"]["Code"] == code
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_defect_is_logged_and_answered_in_awss_form(endpoint, client, monkeypatch, caplog):
    def broken(operation: str, request: dict) -> dict:
        raise ZeroDivisionError

    monkeypatch.setattr(endpoint.app.sagemaker, "handle", broken)
    with caplog.at_level(logging.ERROR), pytest.raises(ClientError, match="InternalFailure"):
        client("sagemaker").list_pipelines()
    assert "ZeroDivisionError" in caplog.text


def connect(endpoint) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=PATIENCE)


def post(endpoint, headers: dict[str, str], body: bytes = b"{}") -> tuple[int, str]:
    target = {"X-Amz-Target": "SageMaker.ListPipelines"} | headers
    return send(endpoint, "sagemaker", "POST", "/", target, body)


def test_a_web_page_is_refused(endpoint):
    assert post(endpoint, {})[0] == 200
    assert post(endpoint, {"Origin": "http://evil.example"})[0] == 403
    assert post(endpoint, {"Host": "rebound.example"})[0] == 403
    status, text = post(endpoint, {}, b"{nonsense")
    assert (status, "SerializationException" in text) == (400, True)


def test_a_connection_serves_many_requests(endpoint, client):
    client("s3").create_bucket(Bucket="kept")
    connection = connect(endpoint)
    sockets = set()
    for number in range(3):
        path = f"/nobucket/{number}"
        # refused before its body is read: what is left must not be taken for the next request
        body = b"GET /kept HTTP/1.1\r\n\r\n" * 100
        connection.request("PUT", path, body, sign_headers(endpoint, "s3", "PUT", path))
        assert connection.getresponse().read().startswith(b"<?xml")
        sockets.add(connection.sock)
    path = "/kept?list-type=2"
    connection.request("GET", path, headers=sign_headers(endpoint, "s3", "GET", path))
    assert b"ListBucketResult" in connection.getresponse().read()
    assert len(sockets) == 1 and connection.sock in sockets


def test_a_restart_keeps_objects_logs_and_experiments(tmp_path: Path):
    with serve_emulator(tmp_path, make_sagemaker=NoPipelines) as first:
        s3 = make_client(first, "s3")
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="a/b", Body=b"data", Metadata={"k": "v"})
        first.app.logs.append("group", "stream", ["line"])
        for name in ("m", "gone"):
            make_client(first, "sagemaker").create_experiment(ExperimentName=name)
        make_client(first, "sagemaker").delete_experiment(ExperimentName="gone")
    assert first.app.sagemaker.closed
    with serve_emulator(tmp_path / "other", make_sagemaker=NoPipelines) as other:
        assert make_client(other, "sagemaker").list_experiments()["ExperimentSummaries"] == []
    with serve_emulator(tmp_path, make_sagemaker=NoPipelines) as second:
        answer = make_client(second, "s3").get_object(Bucket="bucket", Key="a/b")
        assert (answer["Body"].read(), answer["Metadata"]) == (b"data", {"k": "v"})
        logs = make_client(second, "logs")
        events = logs.get_log_events(logGroupName="group", logStreamName="stream")["events"]
        assert [event["message"] for event in events] == ["line"]
        found = make_client(second, "sagemaker").list_experiments()["ExperimentSummaries"]
        assert [e["ExperimentName"] for e in found] == ["m"]


def test_stopping_ends_idle_connections_and_frees_port_and_directory(tmp_path: Path):
    with serve_emulator(tmp_path, make_sagemaker=NoPipelines) as endpoint:
        port = int(endpoint.url.rpartition(":")[2])
        idle = connect(endpoint)
        idle.request("GET", "/", headers=sign_headers(endpoint, "s3", "GET", "/"))
        assert b"ListAllMyBuckets" in idle.getresponse().read()
        with (
            pytest.raises(EmulatorError, match=f"127.0.0.1:{port}: Address already in use"),
            serve_emulator(tmp_path / "other", port=port, make_sagemaker=NoPipelines),
        ):
            pass
        started = time.monotonic()
    assert time.monotonic() - started < 60  # an idle one lives for twice that
    assert idle.sock.recv(1) == b"", "the connection is still open"
    with serve_emulator(tmp_path, port=port, make_sagemaker=NoPipelines) as endpoint:
        assert make_client(endpoint, "s3").list_buckets()["Buckets"] == []
