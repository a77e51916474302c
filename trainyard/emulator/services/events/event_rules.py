"""EventBridge: rules on the default bus, by pattern or schedule, their targets, and PutEvents.

A rule is stored as DescribeRule shows it, with its targets and the time when it fires next.
Refused by name: other buses, archives and replays, connections,
pipes.
"""

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.emulator.api import ApiError, make_arn
from trainyard.emulator.json_documents import DocumentStore
from trainyard.emulator.paging import page
from trainyard.emulator.request_scope import account, region
from trainyard.emulator.services.events import event_patterns, event_targets
from trainyard.emulator.services.events.schedule_expressions import WrongExpression, iso, parse

BUS = "default"
_RULE = ("Description", "EventPattern", "ScheduleExpression", "RoleArn", "State", "ManagedBy")
_NAME = re.compile(r"[.\-_A-Za-z0-9]{1,64}")
_CHARACTERS = r"[\.\-_A-Za-z0-9]+"
_LONGEST_ID = 64
_MOST = 5  # targets of a rule
MOST_ENTRIES = 10  # of PutEvents (API reference, PutEventsRequestEntry)
log = logging.getLogger(__name__)
Event = dict[str, Any]
Send = Callable[[event_targets.Target, str], None]


class Rules:
    """The rules of a state directory. Its methods are thread-safe.

    ``send(target, text)`` queues a delivery, so it returns quickly. Raises ApiError as AWS does.
    """

    def __init__(self, folder: Path, send: Send) -> None:
        self._documents, self._send = DocumentStore(folder), send
        self._lock = threading.RLock()

    def operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "PutRule": self.put,
            "DescribeRule": lambda request: self._describe_rule(self._find(request)),
            "ListRules": self.list_rules,
            "DeleteRule": self.delete,
            "EnableRule": lambda request: self._switch(request, "ENABLED"),
            "DisableRule": lambda request: self._switch(request, "DISABLED"),
            "PutTargets": self.put_targets,
            "RemoveTargets": self.remove_targets,
            "ListTargetsByRule": self.list_targets,
            "PutEvents": self.put_events,
            "TestEventPattern": self.test,
            "ListTagsForResource": lambda request: {"Tags": self._by_arn(request)["tags"]},
        }

    def emit(self, event: Event) -> None:
        """Deliver the event to the targets of each enabled rule whose pattern it matches."""
        with self._lock:
            rules = [
                rule for rule in self._documents.all.values() if _on(rule) and _matches(rule, event)
            ]
            for rule in rules:
                self._deliver(rule, event)

    def fire(self, now: float) -> None:
        """Fire the due scheduled rules; occurrences missed while the machine slept count as one."""
        with self._lock:
            for rule in list(self._documents.all.values()):
                if rule.get("next") is not None and rule["next"] <= now:
                    if _on(rule):
                        self._deliver(rule, _tick(self._arn(rule["name"]), rule["next"]))
                    rule["next"] = _next(rule, now)
                    self._documents.put(rule)

    def begin(self, now: float) -> None:
        """Schedule the next times; occurrences that were due while no emulator ran are skipped."""
        with self._lock:
            for rule in self._documents.all.values():
                if rule.get("next") is not None and rule["next"] < now:
                    log.warning(
                        "rule %s was due while no emulator ran; that is skipped",
                        rule["name"],
                    )
                    rule["next"] = _next(rule, now)

    # operations

    def put(self, request: dict) -> dict:
        _own_bus(request)
        name = request["Name"]
        if not _NAME.fullmatch(name):
            raise _invalid(f"Name {name!r} must match {_NAME.pattern}")
        if not request.get("EventPattern") and not request.get("ScheduleExpression"):
            text = "Parameter(s) EventPattern or ScheduleExpression must be specified."
            raise _invalid(text)
        if pattern := request.get("EventPattern"):
            event_patterns.parse(pattern)
        members = {key: request[key] for key in _RULE if request.get(key)}
        with self._lock:
            old = self._documents.all.get(name, {"targets": [], "tags": request.get("Tags", [])})
            rule = {"name": name, "made": time.time(), **members}
            rule |= {"State": members.get("State", "ENABLED")}
            rule |= {"targets": old["targets"], "tags": old["tags"]}
            rule["next"] = _next(rule, rule["made"])
            self._documents.put(rule)
        return {"RuleArn": self._arn(name)}

    def list_rules(self, request: dict) -> dict:
        _own_bus(request)
        begin = request.get("NamePrefix", "")
        rules = [
            self._describe_rule(r)
            for name, r in sorted(self._documents.all.items())
            if name[: len(begin)] == begin
        ]
        return _page("Rules", rules, request)

    def delete(self, request: dict) -> dict:
        _own_bus(request)
        with self._lock:
            rule = self._documents.all.get(request["Name"])
            if rule and rule["targets"]:
                raise _invalid("Rule can't be deleted since it has targets.")
            if rule:
                self._documents.drop(request["Name"])
        return {}

    def put_targets(self, request: dict) -> dict:
        with self._lock:
            rule = self._find({"Name": request["Rule"], **_bus_of(request)})
            for number, target in enumerate(request["Targets"], 1):
                _check_id(target["Id"], f"targets.{number}.member.id")
                if reason := event_targets.refusal(target["Arn"]):
                    raise _invalid(reason)
            new = {target["Id"]: target for target in [*rule["targets"], *request["Targets"]]}
            if len(new) > _MOST:
                text = "The requested resource exceeds the maximum number allowed."
                raise ApiError("LimitExceededException", text)
            self._documents.put(rule | {"targets": list(new.values())})
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def remove_targets(self, request: dict) -> dict:
        with self._lock:
            rule = self._find({"Name": request["Rule"], **_bus_of(request)})
            targets = [target for target in rule["targets"] if target["Id"] not in request["Ids"]]
            self._documents.put(rule | {"targets": targets})
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def list_targets(self, request: dict) -> dict:
        rule = self._find({"Name": request["Rule"], **_bus_of(request)})
        return _page("Targets", rule["targets"], request)

    def put_events(self, request: dict) -> dict:
        if len(request["Entries"]) > MOST_ENTRIES:
            raise ApiError(
                "ValidationException",
                "1 validation error detected: Value at 'entries' failed to satisfy constraint: "
                f"Member must have length less than or equal to {MOST_ENTRIES}",
            )
        answers = [self._put_event(entry) for entry in request["Entries"]]
        failure_count = sum("ErrorCode" in answer for answer in answers)
        return {"FailedEntryCount": failure_count, "Entries": answers}

    def test(self, request: dict) -> dict:
        try:
            event = json.loads(request["Event"])
        except json.JSONDecodeError:
            raise _invalid("Parameter Event is not valid.") from None
        return {"Result": event_patterns.parse(request["EventPattern"])(event)}

    # inside

    def _switch(self, request: dict, state: str) -> dict:
        with self._lock:
            self._documents.put(self._find(request) | {"State": state})
        return {}

    def _put_event(self, entry: dict) -> dict:
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
        event = make(entry["Source"], entry["DetailType"], detail, entry.get("Resources", []))
        if entry.get("Time"):
            event["time"] = iso(entry["Time"])
        if _is_own(entry):  # AWS takes events for a bus that is not there, too
            self.emit(event)
        return {"EventId": event["id"]}

    def _deliver(self, rule: dict, event: Event) -> None:
        for target in rule["targets"]:
            self._send(target, event_targets.body(target, event))

    def _find(self, request: dict) -> dict:
        _own_bus(request)
        rule = self._documents.all.get(request["Name"])
        if rule is None:
            text = f"Rule {request['Name']} does not exist on EventBus {BUS}."
            raise ApiError("ResourceNotFoundException", text)
        return rule

    def _by_arn(self, request: dict) -> dict:
        return self._find({"Name": request["ResourceARN"].rpartition("/")[2]})

    def _arn(self, name: str) -> str:
        return make_arn("events", f"rule/{name}")

    def _describe_rule(self, rule: dict) -> dict:
        members = {key: rule[key] for key in _RULE if key in rule}
        return {
            "Name": rule["name"],
            "Arn": self._arn(rule["name"]),
            **members,
            "EventBusName": BUS,
        }


def make(source: str, kind: str, detail: Any, resources: list[str]) -> Event:
    """Return an event in EventBridge's form, with the present time."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": kind,
        "source": source,
        "account": account(),
        "time": iso(time.time()),
        "region": region(),
        "resources": resources,
        "detail": detail,
    }


def _tick(arn: str, due: float) -> Event:
    return make("aws.events", "Scheduled Event", {}, [arn]) | {"time": iso(due)}


def _on(rule: dict) -> bool:
    return rule["State"] != "DISABLED"


def _matches(rule: dict, event: Event) -> bool:
    pattern = rule.get("EventPattern")
    return bool(pattern) and event_patterns.parse(pattern)(event)


def _next(rule: dict, now: float) -> float | None:
    if not (text := rule.get("ScheduleExpression")):
        return None
    try:
        if text.startswith("at("):
            raise WrongExpression("a rule accepts rate(...) or cron(...)")
        return parse(text).next(now, rule["made"])
    except WrongExpression as wrong:
        text = f"Parameter ScheduleExpression is not valid.\n {wrong}"
        raise _invalid(text) from None


def _check_id(name: str, location: str) -> None:
    start = (
        f"1 validation error detected: Value '{name}' at '{location}' failed to satisfy constraint"
    )
    if len(name) > _LONGEST_ID:
        raise _invalid(f"{start}: Member must have length less than or equal to {_LONGEST_ID}")
    if not re.fullmatch(_CHARACTERS, name):
        raise _invalid(f"{start}: Member must satisfy regular expression pattern: {_CHARACTERS}")


def _bus_of(request: dict) -> dict:
    return {key: request[key] for key in ("EventBusName",) if key in request}


def _is_own(request: dict) -> bool:
    return request.get("EventBusName", BUS).rpartition("/")[2] == BUS


def _own_bus(request: dict) -> None:
    if not _is_own(request):
        name = request["EventBusName"].rpartition("/")[2]
        text = f"Event bus {name} does not exist: only the default bus exists here."
        raise ApiError("ResourceNotFoundException", text)


def _page(key: str, items: list, request: dict) -> dict:
    limit = {"MaxResults": request["Limit"]} if "Limit" in request else {}
    return page(key, items, {**request, **limit}, 100, lambda entry: entry)


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
