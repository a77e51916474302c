"""A failed run is told of: by the function that EventBridge calls, to SNS; and to Slack."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, taken_for_aws, train_step, until
from tests.trainyard.emulator.standin import make_client
from trainyard.common.errors import ServiceError
from trainyard.permissions.role_template import parse_template
from trainyard.runs.end_message import announce, build_function_zip

pytestmark = pytest.mark.long

INFRA = Path(__file__).parents[3] / "infra"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:tell"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        script = "python -c \"raise ValueError('row 7 <has> no label')\""
        running.create("trainyard-prod", [train_step("Train", script)])
        yield running


def _slack(status: int):
    """A server on loopback that takes what a webhook is sent; what it has got."""
    got: list[dict] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/services/T0/B0/secret", got


def test_the_packed_function_tells_a_topic_of_a_run_that_failed(aws: Cloud):
    sns, sqs, events, functions = (
        make_client(aws.endpoint, name) for name in ("sns", "sqs", "events", "lambda")
    )
    code = build_function_zip()
    assert build_function_zip() == code and len(code) < 200_000
    topic = sns.create_topic(Name="failures")["TopicArn"]
    url = sqs.create_queue(QueueName="read")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=attributes["QueueArn"])
    made = parse_template((INFRA / "messages.yaml").read_text(encoding="utf-8"), "messages.yaml")[
        "Resources"
    ]
    functions.create_function(
        FunctionName="tell",
        Runtime="python3.11",
        Handler=made["Function"]["Properties"]["Handler"],
        Role=ROLE,
        Timeout=60,
        Code={"ZipFile": code},
        Environment={"Variables": {"TOPIC_ARN": topic, "CONSOLE_URL": "http://console"}},
    )
    pattern = made["RunFailed"]["Properties"]["EventPattern"]
    pattern["detail"]["pipelineArn"] = [{"suffix": "pipeline/trainyard-prod"}]
    events.put_rule(Name="failed", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="failed", Targets=[{"Id": "tell", "Arn": FUNCTION}])
    arn = aws.start("trainyard-prod")
    aws.wait_for_execution(arn)
    took = until(lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5).get("Messages"))
    told = json.loads(took[0]["Body"])
    run = arn.rpartition("/")[2]
    assert told["Subject"] == f"trainyard-prod: run {run} Failed"
    assert "Train failed: the program on algo-1 was the first to raise" in told["Message"]
    assert "ValueError: row 7 <has> no label" in told["Message"]
    assert f"trainyard why {arn}" in told["Message"]
    assert told["Message"].endswith(f"http://console/runs/trainyard-prod/{run}")


@pytest.mark.parametrize("status", [200, 403])
def test_slack_is_told_and_its_address_is_in_no_message(
    aws: Cloud, monkeypatch: pytest.MonkeyPatch, status: int
):
    arn = aws.start("trainyard-prod")
    aws.wait_for_execution(arn)
    server, address, got = _slack(status)
    secret = make_client(aws.endpoint, "secretsmanager").create_secret(
        Name=f"slack-{status}", SecretString=address
    )["ARN"]
    monkeypatch.setenv("SLACK_SECRET_ARN", secret)
    monkeypatch.delenv("TOPIC_ARN", raising=False)
    detail = {"pipelineExecutionArn": arn, "currentPipelineExecutionStatus": "Failed"}
    with taken_for_aws(aws):
        if status == 200:
            announce({"detail": detail})
        else:
            with pytest.raises(ServiceError, match="did not accept the message: 403") as refused:
                announce({"detail": detail})
            assert "secret" not in str(refused.value)
    server.shutdown()
    assert "ValueError: row 7 &lt;has&gt; no label" in got[0]["text"]
