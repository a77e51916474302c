"""Access of a job: only to this AWS, as the session of its role."""

import json
import os
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import (
    PATIENCE,
    Cloud,
    cloud,
    needs_namespaces,
    processing,
    training,
    until,
)
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.sagemaker.jobs import job_api

pytestmark = pytest.mark.long

SCRIPT = """python - <<'P'
import json, os, socket, boto3
from botocore.session import get_session
found = get_session().get_credentials()
keys = found.get_frozen_credentials()
boto3.client("s3").put_object(Bucket="bkt", Key=f"from/{socket.gethostname()}", Body=b"job")
package = boto3.client("sagemaker").create_model_package(
    ModelPackageGroupName="made", InferenceSpecification={
        "Containers": [{"Image": "i", "ModelDataUrl": "s3://bkt/m"}],
        "SupportedContentTypes": ["a/b"], "SupportedResponseMIMETypes": ["a/b"]})
try: socket.create_connection(("192.0.2.1", 80), 1); foreign = "reached"
except OSError as error: foreign = error.strerror
regional = boto3.client("sts", endpoint_url="https://sts.us-east-1.amazonaws.com")
print(json.dumps({
    "who": boto3.client("sts").get_caller_identity()["Arn"],
    "regional": regional.get_caller_identity()["Arn"], "method": found.method,
    "keys": keys, "package": package["ModelPackageArn"], "foreign": foreign,
    "environment": sorted(k for k in os.environ if k.startswith("AWS_"))}))
P"""
ASSUMED = "arn:aws:sts::123456789012:assumed-role/pipeline/SageMaker"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.sm.create_model_package_group(ModelPackageGroupName="made")
        yield running


def read_last_message(aws: Cloud, job: str, node: str = "algo-1") -> dict:
    return json.loads(aws.log("Training", job, node)[-1])


def test_a_job_is_the_session_of_its_role(aws: Cloud, way: str) -> None:
    nodes = training("", 2)["ResourceConfig"]
    described = aws.train(f"role-{way}", SCRIPT, ResourceConfig=nodes)
    assert described["TrainingJobStatus"] == "Completed", described["FailureReason"]
    found = read_last_message(aws, f"role-{way}")
    assert found["who"] == found["regional"] == ASSUMED and found["method"] == "container-role"
    assert "made/" in found["package"]
    assert read_last_message(aws, f"role-{way}", "algo-2")["who"] == ASSUMED
    assert aws.keys("from/")
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & set(found["environment"])
    if way == "namespaces":
        assert found["foreign"] == "Network is unreachable"
    for service, call in (("sts", "get_caller_identity"), ("sagemaker", "list_models")):
        with pytest.raises(ClientError, match="its job ended") as ended:  # its credentials, too
            getattr(make_client(aws.endpoint, service, keys=found["keys"]), call)()
        assert ended.value.response["Error"]["Code"].startswith("ExpiredToken")
    with pytest.raises(ClientError, match=r"\(ExpiredToken\)"):
        make_client(aws.endpoint, "s3", keys=found["keys"]).list_buckets()


TRY = """python - <<'P'
import os, socket
print(sorted(k for k in os.environ if "CREDENTIALS" in k or "ENDPOINT" in k))
for address in (("127.0.0.1", PORT), ("169.254.170.2", 80)):
    try: socket.create_connection(address, 1); print("reached")
    except OSError as error: print(error.strerror)
P"""


@needs_namespaces
def test_network_isolation_takes_both_away(aws: Cloud) -> None:
    script = TRY.replace("PORT", aws.endpoint.url.rpartition(":")[2])
    aws.train("isolated", script, EnableNetworkIsolation=True)
    network = {"NetworkConfig": {"EnableNetworkIsolation": True}}
    aws.process("isolated-too", script, **network)
    for said in (aws.log("Training", "isolated"), aws.log("Processing", "isolated-too")):
        assert said == ["[]", "Connection refused", "Network is unreachable"]


def test_credentials_count_with_their_token_only_and_only_where_they_are_asked_for(aws: Cloud):
    keys = aws.endpoint.app.keys
    loan = keys.create_loan("arn:aws:iam::999999999999:role/service-role/Theirs")

    def find_caller_arn(*token: str) -> str:
        sts = make_client(aws.endpoint, "sts", keys=[loan.access_key, loan.secret, *token])
        return sts.get_caller_identity()["Arn"]

    assert find_caller_arn(loan.token) == "arn:aws:sts::123456789012:assumed-role/Theirs/SageMaker"
    for token in ([], ["another"]):
        with pytest.raises(ClientError, match="InvalidClientTokenId"):
            find_caller_arn(*token)
    keys.revoke_loan(loan)


@needs_namespaces
def test_many_jobs_at_once_leave_no_descriptor(aws: Cloud) -> None:
    aws.process("warm", "true")
    descriptors = lambda: len(os.listdir("/proc/self/fd"))  # noqa: E731
    before = descriptors()
    names = [f"many-{number}" for number in range(6)]
    for name in names:
        script = "exec 3<>/dev/tcp/169.254.170.2/80; sleep 0.2"  # leaves a connection open
        aws.sm.create_processing_job(ProcessingJobName=name, **processing(script))
    ask = lambda name: aws.sm.describe_processing_job(ProcessingJobName=name)  # noqa: E731
    until(lambda: all(ask(name)["ProcessingJobStatus"] == "Completed" for name in names))
    until(lambda: descriptors() <= before)


SAVES = """exec python - <<'P'
import boto3, signal, time
s3 = boto3.client("s3")
def save(*_):
    s3.put_object(Bucket="bkt", Key="saved", Body=b"")
    raise SystemExit
signal.signal(signal.SIGTERM, save)
s3.put_object(Bucket="bkt", Key="up", Body=b"")
while True: time.sleep(1)
P"""


def test_a_job_may_save_what_it_has_when_the_emulator_ends(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(job_api, "CLOSE_GRACE", PATIENCE)
    with cloud(tmp_path) as first:
        first.sm.create_training_job(TrainingJobName="saves", **training(SAVES))
        until(lambda: first.keys("up"))
    with cloud(tmp_path) as second:
        assert second.keys("saved") == ["saved"]
