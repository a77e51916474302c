"""Schedule expressions: ``at(…)``, ``rate(…)`` and ``cron(…)`` as EventBridge reads them.

The parser is our own, because EventBridge's cron is Quartz's: six fields with a year, ``?``, ``L``
and ``#``, and weekdays from Sunday = 1. Libraries for crontab read another syntax.
Sources: EventBridge user guide, "Cron expressions reference" and "Rate expressions"; EventBridge
Scheduler user guide, "Schedule types".
"""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UNITS = {"minute": 60, "hour": 3600, "day": 86400}  # seconds
YEARS = range(1970, 2200)
_HORIZON = 366 * 9  # days to look ahead: the next 29th of February may be 8 years away
_MONTHS = [name.upper() for name in calendar.month_abbr]
_DAYS = ["", "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class WrongExpression(Exception):
    """The expression cannot be parsed; the message says why."""


class Expression(Protocol):
    """The times at which a rule or schedule fires."""

    def find_next_time(self, after: float, anchor: float) -> float | None:
        """Return the first time later than ``after``. Return None if there is none.

        Times are in seconds since the epoch. ``anchor`` is the time from which a rate counts.
        """


def parse_schedule(text: str, timezone: str = "UTC") -> Expression:
    """Parse the expression. Raises :class:`WrongExpression`."""
    match = re.fullmatch(r"(at|rate|cron)\((.*)\)", text.strip())
    if not match:
        raise WrongExpression(f"{text!r} is not at(...), rate(...) or cron(...)")
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise WrongExpression(f"the time zone {timezone!r} is not known") from None
    kind, inner = match[1], match[2].strip()
    if kind == "at":
        return OneTime.from_text(inner, zone)
    return Rate.from_text(inner) if kind == "rate" else Cron.from_text(inner, zone)


@dataclass(frozen=True, slots=True)
class OneTime:
    """A single time: ``at(…)``."""

    time: float

    @classmethod
    def from_text(cls, text: str, zone: ZoneInfo) -> "OneTime":
        try:
            return cls(
                datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=zone).timestamp()
            )
        except ValueError:
            raise WrongExpression(f"at({text}): expected at(yyyy-mm-ddThh:mm:ss)") from None

    def find_next_time(self, after: float, anchor: float) -> float | None:
        return self.time if self.time > after else None


@dataclass(frozen=True, slots=True)
class Rate:
    """A fixed interval in seconds, counted from the anchor: ``rate(…)``."""

    seconds: int

    @classmethod
    def from_text(cls, text: str) -> "Rate":
        match = re.fullmatch(r"([1-9]\d*) (minute|hour|day)(s?)", text)
        if not match or (match[1] == "1") == bool(match[3]):
            raise WrongExpression(f"rate({text}): expected e.g. rate(1 minute), rate(5 hours)")
        return cls(int(match[1]) * UNITS[match[2]])

    def find_next_time(self, after: float, anchor: float) -> float | None:
        if after < anchor:
            return anchor
        return anchor + (int((after - anchor) / self.seconds) + 1) * self.seconds


@dataclass(frozen=True, slots=True)
class Cron:
    """``cron(minutes hours day-of-month month day-of-week year)``."""

    minutes: frozenset[int]
    hours: frozenset[int]
    month_day: str
    months: frozenset[int]
    week_day: str
    years: frozenset[int]
    zone: ZoneInfo

    @classmethod
    def from_text(cls, text: str, zone: ZoneInfo) -> "Cron":
        fields = text.upper().split()
        if len(fields) != 6:
            raise WrongExpression(f"cron({text}): {len(fields)} fields; expected 6")
        minutes, hours, month_day, months, week_day, years = fields
        if (month_day == "?") == (week_day == "?"):
            message = "one of day-of-month and day-of-week must be ?, and only one"
            raise WrongExpression(f"cron({text}): {message}")
        cron = cls(
            _parse_numbers(minutes, range(60), "minutes"),
            _parse_numbers(hours, range(24), "hours"),
            month_day,
            _parse_numbers(months, range(1, 13), "month", _MONTHS),
            week_day,
            _parse_numbers(years, YEARS, "year"),
            zone,
        )
        for month in range(1, 13):  # parse the days now, so that an error is raised here
            cron._select_days(2024, month)
        return cron

    def find_next_time(self, after: float, anchor: float) -> float | None:
        start = datetime.fromtimestamp(after, self.zone)
        day = start.date()
        for _ in range(_HORIZON):
            in_month = day.year in self.years and day.month in self.months
            if in_month and day.day in self._select_days(day.year, day.month):
                for time in self._iter_times(day):
                    if time > after:
                        return time
            day += timedelta(days=1)
        return None

    def _iter_times(self, day: date) -> Iterator[float]:
        """Iterate over the times of a day, without those that do not exist because daylight saving
        time starts.
        """
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone)
                timestamp = local.timestamp()
                if datetime.fromtimestamp(timestamp, self.zone).hour == hour:
                    yield timestamp

    def _select_days(self, year: int, month: int) -> set[int]:
        last = calendar.monthrange(year, month)[1]
        if self.week_day == "?":
            return _select_month_days(self.month_day, last)
        return _select_week_days(self.week_day, year, month, last)


def _parse_numbers(
    text: str, values: range, field: str, names: list[str] | None = None
) -> frozenset[int]:
    """Return the numbers that a field selects: ``*``, ``5``, ``1-5``, ``MON-FRI``, ``0/15``, or a
    list of these.
    """
    result: set[int] = set()
    for part in text.split(","):
        start, slash, step = part.partition("/")
        low, dash, high = start.partition("-")
        try:
            first = values[0] if low == "*" else _parse_number(low, names)
            last = (
                _parse_number(high, names) if dash else values[-1] if slash or low == "*" else first
            )
            numbers = range(first, last + 1, int(step) if slash else 1)
        except ValueError:
            raise WrongExpression(f"{field} {text!r} cannot be parsed") from None
        if not numbers or first not in values or last not in values:
            bounds = f"{values[0]} to {values[-1]}"
            raise WrongExpression(f"{field} {text!r} is not within {bounds}")
        result.update(numbers)
    return frozenset(result)


def _parse_number(text: str, names: list[str] | None) -> int:
    return names.index(text) if names and text in names[1:] else int(text)


def _select_month_days(text: str, last: int) -> set[int]:
    if text == "L":
        return {last}
    if text.endswith("W"):
        raise WrongExpression(f"day-of-month {text}: W is not supported here: name a day, or L")
    return {day for day in _parse_numbers(text, range(1, 32), "day-of-month") if day <= last}


def _select_week_days(text: str, year: int, month: int, last: int) -> set[int]:
    if text == "L":  # the last day of the week
        text = "7"
    if "#" in text:
        name, _, nth = text.partition("#")
        [weekday], [number] = (
            _parse_numbers(name, range(1, 8), "day", _DAYS),
            _parse_numbers(nth, range(1, 6), "#"),
        )
        return set(_list_weekday_dates(year, month, last, weekday)[number - 1 : number])
    if text.endswith("L"):
        [weekday] = _parse_numbers(text[:-1], range(1, 8), "day", _DAYS)
        return {_list_weekday_dates(year, month, last, weekday)[-1]}
    weekdays = _parse_numbers(text, range(1, 8), "day-of-week", _DAYS)
    return {day for weekday in weekdays for day in _list_weekday_dates(year, month, last, weekday)}


def _list_weekday_dates(year: int, month: int, last: int, weekday: int) -> list[int]:
    """Return the days of the month that fall on this weekday (Sunday is 1)."""
    first = (calendar.weekday(year, month, 1) + 1) % 7 + 1
    return list(range(1 + (weekday - first) % 7, last + 1, 7))


def format_iso(time: float) -> str:
    """Return the time as ``2026-11-22T10:00:00Z``."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
