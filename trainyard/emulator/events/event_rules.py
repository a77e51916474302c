"""EventBridge: rules on the default bus, by pattern or schedule, their targets, and PutEvents.

A rule is stored as DescribeRule shows it, with its targets and the time at which it fires next.
Refused: other buses, archives and replays, connections, pipes.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.emulator.events import event_patterns
from trainyard.emulator.events.schedule_expressions import (
    WrongExpression,
    format_iso,
    parse_schedule,
)
from trainyard.emulator.iam.service_calls import iter_sagemaker_calls
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.json_documents import DocumentStore
from trainyard.emulator.request_scope import (
    ApiError,
    make_arn,
    make_page,
    make_validation_error,
    read_account,
    read_region,
)

# Targets of events: queues, topics, functions and pipelines. Other kinds of target are refused
# when they are added, because otherwise their events would be lost.

log = logging.getLogger(__name__)
Target = dict[str, Any]


def classify_target(arn: str) -> str:
    """Return the target's kind: ``sqs``, ``sns``, ``lambda`` or ``pipeline``. Return an empty
    string for any other target.
    """
    parts = arn.split(":", 5)
    if len(parts) < 6 or parts[0] != "arn":
        return ""
    service, resource = parts[2], parts[5]
    if service == "sagemaker":
        return "pipeline" if resource.startswith("pipeline/") else ""
    if service == "lambda":
        return "lambda" if resource.startswith("function:") else ""
    return service if service in ("sqs", "sns") and "/" not in resource else ""


def explain_refused_target(arn: str) -> str | None:
    """Return why events cannot be delivered to ``arn`` here. Return None if they can."""
    if classify_target(arn):
        return None
    return (
        f"target {arn} is not supported by this emulator, which delivers events to SQS queues, "
        "SNS topics, Lambda functions and SageMaker pipelines"
    )


class Deliverer:
    """Deliver events as a client of the emulator's own services."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._senders: dict[str, Callable[[Target, str], object]] = {
            "sqs": self._send_to_queue,
            "sns": lambda t, text: self._make_client("sns").publish(
                TopicArn=t["Arn"], Message=text
            ),
            "lambda": self._invoke_function,
            "pipeline": self._start_pipeline,
        }

    def deliver(self, target: Target, text: str) -> None:
        """Deliver an event. If that fails, log the failure and send the event to the dead-letter
        queue, if there is one.
        """
        try:
            self._senders[classify_target(target["Arn"])](target, text)
        except (BotoCoreError, ClientError, ApiError) as error:
            log.warning("an event did not reach %s: %s", target["Arn"], error)
            if dead := target.get("DeadLetterConfig", {}).get("Arn"):
                self._send_dead_letter(dead, text)

    def _make_client(self, service: str) -> Any:
        return self._aws.make_client(service)

    def _send_to_queue(self, target: Target, text: str) -> None:
        url = self._find_queue_url(target["Arn"])
        group = target.get("SqsParameters", {}).get("MessageGroupId")
        once = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid.uuid4())}
        more = once if group else {}
        self._make_client("sqs").send_message(QueueUrl=url, MessageBody=text, **more)

    def _find_queue_url(self, arn: str) -> str:
        name = arn.rpartition(":")[2]
        return self._make_client("sqs").get_queue_url(QueueName=name)["QueueUrl"]

    def _send_dead_letter(self, arn: str, text: str) -> None:
        try:
            url = self._find_queue_url(arn)
            self._make_client("sqs").send_message(QueueUrl=url, MessageBody=text)
        except (BotoCoreError, ClientError) as error:
            log.warning("the event did not reach the dead-letter queue %s either: %s", arn, error)

    def _invoke_function(self, target: Target, text: str) -> None:
        name = target["Arn"].partition(":function:")[2]
        self._make_client("lambda").invoke(
            FunctionName=name, InvocationType="Event", Payload=text.encode()
        )

    def _start_pipeline(self, target: Target, text: str) -> None:
        """Start the pipeline with the target's own parameters. The event is not passed to it."""
        parameters = target.get("SageMakerPipelineParameters", {}).get("PipelineParameterList", [])
        name, authority = target["Arn"].rpartition("/")[2], self._aws.authority
        start = iter_sagemaker_calls("StartPipelineExecution", {"PipelineName": name})
        authority.check(authority.find_role_caller(target.get("RoleArn", "")), start)
        self._make_client("sagemaker").start_pipeline_execution(
            PipelineName=name, PipelineParameters=parameters, ClientRequestToken=uuid.uuid4().hex
        )


def render_target_input(target: Target, event: dict[str, Any]) -> str:
    """Return the text for the target: the event, a part of it, a constant text, or a text made from
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
    """Return the value at a path such as ``$.detail.status``. Return None if there is none."""
    for name in path.removeprefix("$").strip(".").split("."):
        if name:
            event = event.get(name) if isinstance(event, dict) else None
    return event


def _transform_event(transformer: dict[str, Any], event: dict[str, Any]) -> str:
    """Return the template with each ``<name>`` replaced by the value at its path. Inside quotes,
    text is inserted as it is and any other value as JSON.

    Outside of quotes in the template, every value is written as JSON, so text gets quotes.
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


BUS = "default"
_RULE = ("Description", "EventPattern", "ScheduleExpression", "RoleArn", "State", "ManagedBy")
_MOST = 5  # targets of a rule
Event = dict[str, Any]
Send = Callable[[Target, str], None]


class Rules:
    """The rules of a state directory. Its methods are thread-safe and raise ApiError as AWS does.

    ``send(target, text)`` must only queue a delivery, so that it returns quickly.
    """

    def __init__(self, folder: Path, send: Send) -> None:
        self._documents, self._send = DocumentStore(folder), send
        self._lock = threading.RLock()

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "PutRule": self.put_rule,
            "DescribeRule": lambda request: self._describe_rule(self._find_rule(request)),
            "ListRules": self.list_rules,
            "DeleteRule": self.delete_rule,
            "EnableRule": lambda request: self._set_state(request, "ENABLED"),
            "DisableRule": lambda request: self._set_state(request, "DISABLED"),
            "PutTargets": self.put_targets,
            "RemoveTargets": self.remove_targets,
            "ListTargetsByRule": self.list_targets,
            "PutEvents": self.put_events,
            "TestEventPattern": self.test_event_pattern,
            "ListTagsForResource": lambda request: {
                "Tags": self._find_rule({"Name": request["ResourceARN"].rpartition("/")[2]})["tags"]
            },
        }

    def emit(self, event: Event) -> None:
        """Deliver the event to the targets of each enabled rule whose pattern it matches."""
        with self._lock:
            rules = [
                rule
                for rule in self._documents.all.values()
                if _is_enabled(rule)
                and (pattern := rule.get("EventPattern"))
                and event_patterns.parse_event_pattern(pattern)(event)
            ]
            for rule in rules:
                self._deliver(rule, event)

    def fire_due_rules(self, now: float) -> None:
        """Fire the scheduled rules that are due. A rule that missed several times while the machine
        slept fires once.
        """
        with self._lock:
            for rule in list(self._documents.all.values()):
                if rule.get("next") is not None and rule["next"] <= now:
                    if _is_enabled(rule):
                        tick = make_event(
                            "aws.events", "Scheduled Event", {}, [self._make_rule_arn(rule["name"])]
                        )
                        self._deliver(rule, tick | {"time": format_iso(rule["next"])})
                    rule["next"] = _compute_next_time(rule, now)
                    self._documents.put(rule)

    def begin(self, now: float) -> None:
        """Skip the times of scheduled rules that passed while no emulator was running."""
        with self._lock:
            for rule in self._documents.all.values():
                if rule.get("next") is not None and rule["next"] < now:
                    log.warning(
                        "rule %s was due while no emulator was running; that time is skipped",
                        rule["name"],
                    )
                    rule["next"] = _compute_next_time(rule, now)

    # operations

    def put_rule(self, request: dict) -> dict:
        _check_bus(request)
        name = request["Name"]
        if not request.get("EventPattern") and not request.get("ScheduleExpression"):
            text = "Parameter(s) EventPattern or ScheduleExpression must be specified."
            raise make_validation_error(text)
        if pattern := request.get("EventPattern"):
            event_patterns.parse_event_pattern(pattern)
        members = {key: request[key] for key in _RULE if request.get(key)}
        with self._lock:
            # A rule that is replaced keeps its targets and tags.
            old = self._documents.all.get(name, {"targets": [], "tags": request.get("Tags", [])})
            rule = {"name": name, "made": time.time(), **members}
            rule |= {"State": members.get("State", "ENABLED")}
            rule |= {"targets": old["targets"], "tags": old["tags"]}
            rule["next"] = _compute_next_time(rule, rule["made"])
            self._documents.put(rule)
        return {"RuleArn": self._make_rule_arn(name)}

    def list_rules(self, request: dict) -> dict:
        _check_bus(request)
        begin = request.get("NamePrefix", "")
        rules = [
            self._describe_rule(r)
            for name, r in sorted(self._documents.all.items())
            if name[: len(begin)] == begin
        ]
        return _make_page("Rules", rules, request)

    def delete_rule(self, request: dict) -> dict:
        _check_bus(request)
        with self._lock:
            rule = self._documents.all.get(request["Name"])
            if rule and rule["targets"]:
                raise make_validation_error("Rule can't be deleted since it has targets.")
            if rule:
                self._documents.drop(request["Name"])
        return {}

    def put_targets(self, request: dict) -> dict:
        with self._lock:
            rule = self._find_rule({"Name": request["Rule"], **_select_bus(request)})
            for target in request["Targets"]:
                if reason := explain_refused_target(target["Arn"]):
                    raise make_validation_error(reason)
            new = {target["Id"]: target for target in [*rule["targets"], *request["Targets"]]}
            if len(new) > _MOST:
                text = "The requested resource exceeds the maximum number allowed."
                raise ApiError("LimitExceededException", text)
            self._documents.put(rule | {"targets": list(new.values())})
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def remove_targets(self, request: dict) -> dict:
        with self._lock:
            rule = self._find_rule({"Name": request["Rule"], **_select_bus(request)})
            targets = [target for target in rule["targets"] if target["Id"] not in request["Ids"]]
            self._documents.put(rule | {"targets": targets})
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def list_targets(self, request: dict) -> dict:
        rule = self._find_rule({"Name": request["Rule"], **_select_bus(request)})
        return _make_page("Targets", rule["targets"], request)

    def put_events(self, request: dict) -> dict:
        answers = [self._put_event(entry) for entry in request["Entries"]]
        failure_count = sum("ErrorCode" in answer for answer in answers)
        return {"FailedEntryCount": failure_count, "Entries": answers}

    def test_event_pattern(self, request: dict) -> dict:
        try:
            event = json.loads(request["Event"])
        except json.JSONDecodeError:
            raise make_validation_error("Parameter Event is not valid.") from None
        return {"Result": event_patterns.parse_event_pattern(request["EventPattern"])(event)}

    # internals

    def _set_state(self, request: dict, state: str) -> dict:
        with self._lock:
            self._documents.put(self._find_rule(request) | {"State": state})
        return {}

    def _put_event(self, entry: dict) -> dict:
        """Emit one entry of PutEvents; return its EventId, or its ErrorCode and message."""
        for name in ("Source", "DetailType", "Detail"):
            if not entry.get(name):
                text = f"Parameter {name} is not valid. Reason: {name} is a required argument."
                return {"ErrorCode": "InvalidArgument", "ErrorMessage": text}
        if entry["Source"].startswith("aws."):
            text = "Not authorized for the source."
            return {"ErrorCode": "NotAuthorizedForSourceException", "ErrorMessage": text}
        try:
            detail = json.loads(entry["Detail"])
        except json.JSONDecodeError:
            return {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
        event = make_event(entry["Source"], entry["DetailType"], detail, entry.get("Resources", []))
        if entry.get("Time"):
            event["time"] = format_iso(entry["Time"])
        if _is_default_bus(entry):  # AWS accepts events for a bus that does not exist, too
            self.emit(event)
        return {"EventId": event["id"]}

    def _deliver(self, rule: dict, event: Event) -> None:
        for target in rule["targets"]:
            self._send(target, render_target_input(target, event))

    def _find_rule(self, request: dict) -> dict:
        _check_bus(request)
        rule = self._documents.all.get(request["Name"])
        if rule is None:
            text = f"Rule {request['Name']} does not exist on EventBus {BUS}."
            raise ApiError("ResourceNotFoundException", text)
        return rule

    def _make_rule_arn(self, name: str) -> str:
        return make_arn("events", f"rule/{name}")

    def _describe_rule(self, rule: dict) -> dict:
        members = {key: rule[key] for key in _RULE if key in rule}
        return {
            "Name": rule["name"],
            "Arn": self._make_rule_arn(rule["name"]),
            **members,
            "EventBusName": BUS,
        }


def make_event(source: str, kind: str, detail: Any, resources: list[str]) -> Event:
    """Return an event in EventBridge's form, with the current time."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": kind,
        "source": source,
        "account": read_account(),
        "time": format_iso(time.time()),
        "region": read_region(),
        "resources": resources,
        "detail": detail,
    }


def _is_enabled(rule: dict) -> bool:
    return rule["State"] != "DISABLED"


def _compute_next_time(rule: dict, now: float) -> float | None:
    """Return the time at which the rule fires next. Return None if it has no schedule. Raises
    ``ValidationException``.
    """
    if not (text := rule.get("ScheduleExpression")):
        return None
    try:
        if text.startswith("at("):
            raise WrongExpression("a rule accepts rate(...) or cron(...)")
        return parse_schedule(text).find_next_time(now, rule["made"])
    except WrongExpression as wrong:
        text = f"Parameter ScheduleExpression is not valid.\n {wrong}"
        raise make_validation_error(text) from None


def _select_bus(request: dict) -> dict:
    return {key: request[key] for key in ("EventBusName",) if key in request}


def _is_default_bus(request: dict) -> bool:
    return request.get("EventBusName", BUS).rpartition("/")[2] == BUS


def _check_bus(request: dict) -> None:
    if not _is_default_bus(request):
        name = request["EventBusName"].rpartition("/")[2]
        text = f"Event bus {name} does not exist: only the default bus exists here."
        raise ApiError("ResourceNotFoundException", text)


def _make_page(key: str, items: list, request: dict) -> dict:
    limit = {"MaxResults": request["Limit"]} if "Limit" in request else {}
    return make_page(key, items, {**request, **limit}, 100, lambda entry: entry)
