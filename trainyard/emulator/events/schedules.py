"""EventBridge Scheduler: schedules in the default group, one target each.

A schedule is stored as GetSchedule shows it, with the time when it fires next. In a flexible window
it fires at the window's start. Refused by name: target kinds that a rule does not have, and
universal targets (``aws-sdk``).
"""

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.emulator.events import event_rules
from trainyard.emulator.events.schedule_expressions import WrongExpression, iso, parse
from trainyard.emulator.json_documents import DocumentStore
from trainyard.emulator.request_scope import ApiError, make_arn, page

DEFAULT = "default"
_NAME = re.compile(r"[0-9a-zA-Z\-_.]{1,64}")
_REQUEST_MEMBERS = (
    *("Description", "EndDate", "FlexibleTimeWindow", "KmsKeyArn", "ScheduleExpression"),
    *("ScheduleExpressionTimezone", "StartDate", "State", "Target", "ActionAfterCompletion"),
)
log = logging.getLogger(__name__)


class Schedules:
    """The schedules of a state directory. Its methods are thread-safe.

    ``send(target, text)`` delivers an event. Raises ApiError as AWS does.
    """

    def __init__(self, folder: Path, send: event_rules.Send) -> None:
        self._documents = DocumentStore(folder / "schedules")
        self._send = send
        self._lock = threading.RLock()

    def operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "CreateSchedule": self.create,
            "GetSchedule": lambda request: self._describe_schedule(self._find(request)),
            "UpdateSchedule": self.update,
            "DeleteSchedule": self.delete,
            "ListSchedules": self.list_schedules,
        }

    def fire(self, now: float) -> None:
        """Fire the due schedules."""
        with self._lock:
            for schedule in list(self._documents.all.values()):
                if schedule["next"] is not None and schedule["next"] <= now:
                    self._fire(schedule, now)

    def begin(self, now: float) -> None:
        """Fire one-time schedules that were due while no emulator ran; recurring ones skip that
        time.
        """
        with self._lock:
            for schedule in self._documents.all.values():
                once = schedule["ScheduleExpression"].startswith("at(")
                if schedule["next"] is not None and schedule["next"] < now and not once:
                    name = schedule["name"]
                    log.warning(
                        "schedule %s was due while no emulator ran; that is skipped",
                        name,
                    )
                    schedule["next"] = _next(schedule, now)

    # operations

    def create(self, request: dict) -> dict:
        with self._lock:
            name = self._key(request)
            if name in self._documents.all:
                text = f"Schedule {request['Name']} already exists."
                raise ApiError("ConflictException", text, 409)
            return self._put(request)

    def update(self, request: dict) -> dict:
        with self._lock:
            old = self._find(request)
            return self._put(request, old["CreationDate"])

    def delete(self, request: dict) -> dict:
        with self._lock:
            self._find(request)
            self._documents.drop(self._key(request))
        return {}

    def list_schedules(self, request: dict) -> dict:
        schedules = [
            {**self._summary(s), "Target": {"Arn": s["Target"]["Arn"]}}
            for s in self._documents.all.values()
            if request.get("GroupName") in (None, s["group"])
            and s["short"].startswith(request.get("NamePrefix", ""))
            and request.get("State") in (None, s["State"])
        ]
        return page("Schedules", schedules, request, 100, lambda entry: entry)

    # inside

    def _put(self, request: dict, creation_time: float | None = None) -> dict:
        name, group = request["Name"], request.get("GroupName", DEFAULT)
        if not _NAME.fullmatch(name):
            raise _invalid(f"Name {name!r} must match {_NAME.pattern}")
        if group != DEFAULT:
            text = f"Schedule group {group} does not exist: only {DEFAULT} exists here."
            raise ApiError("ResourceNotFoundException", text, 404)
        if reason := event_rules.refusal(request["Target"]["Arn"]):
            raise _invalid(reason)
        now = time.time()
        schedule = {
            key: _plain(request[key]) for key in _REQUEST_MEMBERS if request.get(key) is not None
        }
        schedule |= {"name": self._key(request), "short": name, "group": group}
        schedule["CreationDate"] = creation_time or now
        schedule |= {"LastModificationDate": now, "State": request.get("State", "ENABLED")}
        schedule.setdefault("ScheduleExpressionTimezone", "UTC")
        schedule["next"] = _next(schedule, now)
        # A rate fires as it is created if its StartDate, its first occurrence, is past or missing
        # ("Schedule types" in EventBridge Scheduler's user guide).
        is_rate = schedule["ScheduleExpression"].startswith("rate(")
        if creation_time is None and is_rate and schedule.get("StartDate", now) <= now:
            schedule["next"] = now
        self._documents.put(schedule)
        return {"ScheduleArn": _arn(group, name)}

    def _fire(self, schedule: dict, now: float) -> None:
        arn = _arn(schedule["group"], schedule["short"])
        if schedule["State"] != "DISABLED":
            target = schedule["Target"]
            event = event_rules.make("aws.scheduler", "Scheduled Event", {}, [arn])
            event |= {"time": iso(schedule["next"]), "detail": "{}"}
            self._send(target, target.get("Input") or json.dumps(event))
        schedule["next"] = _next(schedule, now)
        if schedule["next"] is None and schedule.get("ActionAfterCompletion") == "DELETE":
            self._documents.drop(schedule["name"])
        else:
            self._documents.put(schedule)

    def _key(self, request: dict) -> str:
        return f"{request.get('GroupName', DEFAULT)}/{request['Name']}"

    def _find(self, request: dict) -> dict:
        if (key := self._key(request)) not in self._documents.all:
            text = f"Schedule {request['Name']} does not exist."
            raise ApiError("ResourceNotFoundException", text, 404)
        return self._documents.all[key]

    def _describe_schedule(self, schedule: dict) -> dict:
        members = {key: schedule[key] for key in _REQUEST_MEMBERS if key in schedule}
        return {**self._summary(schedule), **members}

    def _summary(self, schedule: dict) -> dict:
        return {
            "Arn": _arn(schedule["group"], schedule["short"]),
            "Name": schedule["short"],
            "GroupName": schedule["group"],
            "State": schedule["State"],
            "CreationDate": schedule["CreationDate"],
            "LastModificationDate": schedule["LastModificationDate"],
        }


def _next(schedule: dict, now: float) -> float | None:
    text, start = schedule["ScheduleExpression"], schedule.get("StartDate")
    try:
        expression = parse(text, schedule["ScheduleExpressionTimezone"])
    except WrongExpression as wrong:
        raise _invalid(f"Invalid Schedule Expression {text}. {wrong}") from None
    anchor = start or schedule["LastModificationDate"]
    if text.startswith("at("):  # StartDate and EndDate do not apply to it
        return expression.next(now, anchor)
    # A second before its start: the start itself may be an occurrence.
    moment = expression.next(max(now, start - 1 if start else 0), anchor)
    end = schedule.get("EndDate")
    return None if moment is None or (end and moment > end) else moment


def _plain(value: Any) -> Any:
    """Return a time as a float; clients send times as integers of seconds."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _arn(group: str, name: str) -> str:
    return make_arn("scheduler", f"schedule/{group}/{name}")


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
