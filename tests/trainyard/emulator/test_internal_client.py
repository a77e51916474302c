"""Calls of the emulator to itself, with its own keys only."""

from trainyard.emulator.server import Endpoint


def test_a_room_calls_the_emulators_other_services(endpoint: Endpoint) -> None:
    aws = endpoint.app.sagemaker.aws
    url = aws.make_client("sqs").create_queue(QueueName="callbacks")["QueueUrl"]
    aws.make_client("sqs").send_message(QueueUrl=url, MessageBody="hello")
    [message] = aws.make_client("sqs").receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "hello"


def test_the_users_own_configuration_does_not_lead_it_elsewhere(endpoint: Endpoint, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert endpoint.app.sagemaker.aws.make_client("sts").get_caller_identity()["Account"]
