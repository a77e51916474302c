"""EventBridge Scheduler: schedules in the default group, each with one target.

A schedule is stored as GetSchedule shows it, with the time at which it fires next. If it has a
flexible window, it fires at the window's start. Refused: kinds of target that rules do not support
either, and universal targets (``aws-sdk``).
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.emulator.events import event_rules
from trainyard.emulator.events.schedule_expressions import (
    WrongExpression,
    format_iso,
    parse_schedule,
)
from trainyard.emulator.json_documents import DocumentStore
from trainyard.emulator.request_scope import ApiError, make_arn, make_page, make_validation_error

DEFAULT = "default"
_REQUEST_MEMBERS = (
    *("Description", "EndDate", "FlexibleTimeWindow", "KmsKeyArn", "ScheduleExpression"),
    *("ScheduleExpressionTimezone", "StartDate", "State", "Target", "ActionAfterCompletion"),
)

log = logging.getLogger(__name__)


class Schedules:
    """The schedules of a state directory. Its methods are thread-safe and raise ApiError as AWS
    does.

    ``send(target, text)`` delivers an event.
    """

    def __init__(self, folder: Path, send: event_rules.Send) -> None:
        self._documents = DocumentStore(folder / "schedules")
        self._send = send
        self._lock = threading.RLock()

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "CreateSchedule": self.create_schedule,
            "GetSchedule": lambda request: self._describe_schedule(self._find_schedule(request)),
            "UpdateSchedule": self.update_schedule,
            "DeleteSchedule": self.delete_schedule,
            "ListSchedules": self.list_schedules,
        }

    def fire_due_schedules(self, now: float) -> None:
        """Fire the schedules that are due."""
        with self._lock:
            for schedule in list(self._documents.all.values()):
                if schedule["next"] is not None and schedule["next"] <= now:
                    self._fire_schedule(schedule, now)

    def begin(self, now: float) -> None:
        """Skip the times of recurring schedules that passed while no emulator was running. One-time
        schedules that were due remain due and will fire.
        """
        with self._lock:
            for schedule in self._documents.all.values():
                once = schedule["ScheduleExpression"].startswith("at(")
                if schedule["next"] is not None and schedule["next"] < now and not once:
                    name = schedule["name"]
                    log.warning(
                        "schedule %s was due while no emulator was running; that time is skipped",
                        name,
                    )
                    schedule["next"] = _compute_next_time(schedule, now)

    # operations

    def create_schedule(self, request: dict) -> dict:
        with self._lock:
            name = self._build_key(request)
            if name in self._documents.all:
                text = f"Schedule {request['Name']} already exists."
                raise ApiError("ConflictException", text, 409)
            return self._put_schedule(request)

    def update_schedule(self, request: dict) -> dict:
        with self._lock:
            old = self._find_schedule(request)
            return self._put_schedule(request, old["CreationDate"])

    def delete_schedule(self, request: dict) -> dict:
        with self._lock:
            self._find_schedule(request)
            self._documents.drop(self._build_key(request))
        return {}

    def list_schedules(self, request: dict) -> dict:
        schedules = [
            {**self._summarize_schedule(s), "Target": {"Arn": s["Target"]["Arn"]}}
            for s in self._documents.all.values()
            if request.get("GroupName") in (None, s["group"])
            and s["short"].startswith(request.get("NamePrefix", ""))
            and request.get("State") in (None, s["State"])
        ]
        return make_page("Schedules", schedules, request, 100, lambda entry: entry)

    # internals

    def _put_schedule(self, request: dict, creation_time: float | None = None) -> dict:
        """Store a new or changed schedule; ``creation_time`` is None for a new one."""
        name, group = request["Name"], request.get("GroupName", DEFAULT)
        if group != DEFAULT:
            text = f"Schedule group {group} does not exist: only {DEFAULT} exists here."
            raise ApiError("ResourceNotFoundException", text, 404)
        if reason := event_rules.explain_refused_target(request["Target"]["Arn"]):
            raise make_validation_error(reason)
        now = time.time()
        schedule = {
            key: _convert_integer(request[key])
            for key in _REQUEST_MEMBERS
            if request.get(key) is not None
        }
        schedule |= {"name": self._build_key(request), "short": name, "group": group}
        schedule["CreationDate"] = creation_time or now
        schedule |= {"LastModificationDate": now, "State": request.get("State", "ENABLED")}
        schedule.setdefault("ScheduleExpressionTimezone", "UTC")
        schedule["next"] = _compute_next_time(schedule, now)
        # A rate fires immediately when it is created if its StartDate, which is its first
        # occurrence, has passed or is missing (EventBridge Scheduler's user guide, "Schedule
        # types").
        is_rate = schedule["ScheduleExpression"].startswith("rate(")
        if creation_time is None and is_rate and schedule.get("StartDate", now) <= now:
            schedule["next"] = now
        self._documents.put(schedule)
        return {"ScheduleArn": _make_schedule_arn(group, name)}

    def _fire_schedule(self, schedule: dict, now: float) -> None:
        """Send the event unless the schedule is disabled, and store the next time.

        If there is none, delete the schedule if its ActionAfterCompletion is DELETE.
        """
        arn = _make_schedule_arn(schedule["group"], schedule["short"])
        if schedule["State"] != "DISABLED":
            target = schedule["Target"]
            event = event_rules.make_event("aws.scheduler", "Scheduled Event", {}, [arn])
            event |= {"time": format_iso(schedule["next"]), "detail": "{}"}
            self._send(target, target.get("Input") or json.dumps(event))
        schedule["next"] = _compute_next_time(schedule, now)
        if schedule["next"] is None and schedule.get("ActionAfterCompletion") == "DELETE":
            self._documents.drop(schedule["name"])
        else:
            self._documents.put(schedule)

    def _build_key(self, request: dict) -> str:
        return f"{request.get('GroupName', DEFAULT)}/{request['Name']}"

    def _find_schedule(self, request: dict) -> dict:
        if (key := self._build_key(request)) not in self._documents.all:
            text = f"Schedule {request['Name']} does not exist."
            raise ApiError("ResourceNotFoundException", text, 404)
        return self._documents.all[key]

    def _describe_schedule(self, schedule: dict) -> dict:
        members = {key: schedule[key] for key in _REQUEST_MEMBERS if key in schedule}
        return {**self._summarize_schedule(schedule), **members}

    def _summarize_schedule(self, schedule: dict) -> dict:
        return {
            "Arn": _make_schedule_arn(schedule["group"], schedule["short"]),
            "Name": schedule["short"],
            "GroupName": schedule["group"],
            "State": schedule["State"],
            "CreationDate": schedule["CreationDate"],
            "LastModificationDate": schedule["LastModificationDate"],
        }


def _compute_next_time(schedule: dict, now: float) -> float | None:
    """Return the time at which the schedule fires next. Return None if there is none. Raises
    ``ValidationException``.
    """
    text, start = schedule["ScheduleExpression"], schedule.get("StartDate")
    try:
        expression = parse_schedule(text, schedule["ScheduleExpressionTimezone"])
    except WrongExpression as wrong:
        raise make_validation_error(f"Invalid Schedule Expression {text}. {wrong}") from None
    anchor = start or schedule["LastModificationDate"]
    if text.startswith("at("):  # StartDate and EndDate do not apply to it
        return expression.find_next_time(now, anchor)
    # One second before the start, because the start itself may be an occurrence.
    next_time = expression.find_next_time(max(now, start - 1 if start else 0), anchor)
    end = schedule.get("EndDate")
    return None if next_time is None or (end and next_time > end) else next_time


def _convert_integer(value: Any) -> Any:
    """Return an int as a float, because clients send times as whole seconds."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _make_schedule_arn(group: str, name: str) -> str:
    return make_arn("scheduler", f"schedule/{group}/{name}")
