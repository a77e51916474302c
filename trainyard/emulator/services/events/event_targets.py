"""Targets of events: queues, topics, functions, pipelines.

Other kinds of target are refused by name when they are added; otherwise their events would be lost.
"""

import json
import logging
import uuid
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.emulator.api import ApiError
from trainyard.emulator.authorization.service_calls import sagemaker_calls
from trainyard.emulator.internal_client import Aws

log = logging.getLogger(__name__)
Target = dict[str, Any]


def kind(arn: str) -> str:
    """Return the target's kind: ``sqs``, ``sns``, ``lambda``, ``pipeline``; else empty."""
    parts = arn.split(":", 5)
    if len(parts) < 6 or parts[0] != "arn":
        return ""
    service, resource = parts[2], parts[5]
    if service == "sagemaker":
        return "pipeline" if resource.startswith("pipeline/") else ""
    if service == "lambda":
        return "lambda" if resource.startswith("function:") else ""
    return service if service in ("sqs", "sns") and "/" not in resource else ""


def refusal(arn: str) -> str | None:
    """Return why events cannot be delivered to ``arn`` here; None if they can."""
    if kind(arn):
        return None
    return (
        f"target {arn} is not delivered to by this emulator, which delivers to SQS queues, SNS "
        "topics, Lambda functions and SageMaker pipelines"
    )


class Deliverer:
    """Delivers events as a client of the emulator's own services."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._ways: dict[str, Callable[[Target, str], object]] = {
            "sqs": self._queue,
            "sns": lambda t, text: self._client("sns").publish(TopicArn=t["Arn"], Message=text),
            "lambda": self._function,
            "pipeline": self._pipeline,
        }

    def deliver(self, target: Target, text: str) -> None:
        """Deliver an event. After a failure it goes to the dead-letter queue, and the failure to
        the log.
        """
        try:
            self._ways[kind(target["Arn"])](target, text)
        except (BotoCoreError, ClientError, ApiError) as error:
            log.warning("an event did not reach %s: %s", target["Arn"], error)
            if dead := target.get("DeadLetterConfig", {}).get("Arn"):
                self._dead(dead, text)

    def _client(self, service: str) -> Any:
        return self._aws.client(service)

    def _queue(self, target: Target, text: str) -> None:
        url = self._queue_url(target["Arn"])
        group = target.get("SqsParameters", {}).get("MessageGroupId")
        once = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid.uuid4())}
        more = once if group else {}
        self._client("sqs").send_message(QueueUrl=url, MessageBody=text, **more)

    def _queue_url(self, arn: str) -> str:
        name = arn.rpartition(":")[2]
        return self._client("sqs").get_queue_url(QueueName=name)["QueueUrl"]

    def _dead(self, arn: str, text: str) -> None:
        try:
            url = self._queue_url(arn)
            self._client("sqs").send_message(QueueUrl=url, MessageBody=text)
        except (BotoCoreError, ClientError) as error:
            log.warning("the event did not reach the dead-letter queue %s either: %s", arn, error)

    def _function(self, target: Target, text: str) -> None:
        name = target["Arn"].partition(":function:")[2]
        self._client("lambda").invoke(
            FunctionName=name, InvocationType="Event", Payload=text.encode()
        )

    def _pipeline(self, target: Target, text: str) -> None:
        """Start the pipeline with the target's own parameters; the event is not passed to it."""
        parameters = target.get("SageMakerPipelineParameters", {}).get("PipelineParameterList", [])
        name, authority = target["Arn"].rpartition("/")[2], self._aws.authority
        start = sagemaker_calls("StartPipelineExecution", {"PipelineName": name})
        authority.check(authority.session(target.get("RoleArn", "")), start)
        self._client("sagemaker").start_pipeline_execution(
            PipelineName=name,
            PipelineParameters=parameters,
            ClientRequestToken=uuid.uuid4().hex,
        )


def body(target: Target, event: dict[str, Any]) -> str:
    """Return the text for the target: the event, a part of it, a constant, or a text made from
    it.
    """
    if "Input" in target:
        return target["Input"]
    if "InputPath" in target:
        return json.dumps(_get_value(event, target["InputPath"]))
    if transformer := target.get("InputTransformer"):
        return _transform_event(transformer, event)
    return json.dumps(event)


def _get_value(event: Any, path: str) -> Any:
    """Return the value at a path such as ``$.detail.status``; None if there is none."""
    for name in path.removeprefix("$").strip(".").split("."):
        if name:
            event = event.get(name) if isinstance(event, dict) else None
    return event


def _transform_event(transformer: dict[str, Any], event: dict[str, Any]) -> str:
    """Replace each ``<name>`` by the value at its path: text as it is, other values as JSON.

    In a JSON template, outside of quotes, a text value gets quotes.
    """
    template: str = transformer["InputTemplate"]
    values = {
        name: _get_value(event, path) for name, path in transformer.get("InputPathsMap", {}).items()
    }
    values |= {"aws.events.event": event, "aws.events.event.json": event}
    values |= {"aws.events.event.ingestion-time": event["time"]}
    text, in_quotes, index = "", False, 0
    while index < len(template):
        name = next((n for n in values if template.startswith(f"<{n}>", index)), None)
        if name is None:
            in_quotes ^= template[index] == '"' and template[index - 1 : index] != "\\"
            text += template[index]
            index += 1
            continue
        value = values[name]
        index += len(name) + 2
        if in_quotes:
            text += value if isinstance(value, str) else "" if value is None else json.dumps(value)
        else:
            text += '""' if value is None else json.dumps(value)
    return text
