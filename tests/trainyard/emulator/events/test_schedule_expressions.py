"""Expressions with at, rate and cron as EventBridge reads them; examples from its user guide."""

import calendar
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.events.schedule_expressions import WrongExpression, parse_schedule

pytestmark = pytest.mark.long


def after(text: str, moment: str, timezone: str = "UTC", anchor: float = 0) -> str:
    """Return the next time in UTC, as ``2026-11-22T10:00``."""
    start = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
    found = parse_schedule(text, timezone).find_next_time(start, anchor)
    return datetime.fromtimestamp(found, UTC).strftime("%Y-%m-%dT%H:%M") if found else "never"


# 2026-11-22 is a Sunday
@pytest.mark.parametrize(
    ("text", "moment", "expected"),
    [
        ("cron(0 10 * * ? *)", "2026-11-22T10:00", "2026-11-23T10:00"),
        ("cron(15 12 * * ? *)", "2026-11-22T10:00", "2026-11-22T12:15"),
        ("cron(0 18 ? * MON-FRI *)", "2026-11-20T18:00", "2026-11-23T18:00"),
        ("cron(0 8 1 * ? *)", "2026-11-22T10:00", "2026-12-01T08:00"),
        ("cron(0/10 * ? * MON-FRI *)", "2026-11-22T10:00", "2026-11-23T00:00"),
        ("cron(0/5 8-17 ? * MON-FRI *)", "2026-11-23T17:55", "2026-11-24T08:00"),
        ("cron(0 9 ? * 2#1 *)", "2026-11-22T10:00", "2026-12-07T09:00"),
        ("cron(0 9 ? * 6L *)", "2026-11-22T10:00", "2026-11-27T09:00"),
        ("cron(0 9 L * ? *)", "2026-11-22T10:00", "2026-11-30T09:00"),
        ("cron(0 0 29 2 ? *)", "2026-11-22T10:00", "2028-02-29T00:00"),
        ("cron(0 0 1 JAN ? 2027)", "2026-11-22T10:00", "2027-01-01T00:00"),
        ("cron(0 0 1 JAN ? 2026)", "2026-11-22T10:00", "never"),
        ("at(2026-11-22T10:30:00)", "2026-11-22T10:00", "2026-11-22T10:30"),
        ("at(2026-11-22T10:30:00)", "2026-11-22T10:30", "never"),
    ],
)
def test_the_next_time(text: str, moment: str, expected: str) -> None:
    assert after(text, moment) == expected


def test_a_time_zone_and_an_hour_that_the_clock_leaps_over() -> None:
    assert after("cron(0 9 * * ? *)", "2026-11-22T10:00", "Europe/Berlin") == "2026-11-23T08:00"
    assert after("cron(30 2 * * ? *)", "2027-03-27T12:00", "Europe/Berlin") == "2027-03-29T00:30"
    assert after("at(2026-12-01T09:00:00)", "2026-11-22T10:00", "Asia/Tokyo") == "2026-12-01T00:00"


@given(st.integers(1, 90), st.sampled_from(["minute", "hour", "day"]), st.integers(0, 10**7))
def test_a_rate_counts_from_its_anchor(value: int, unit: str, later: int) -> None:
    expression = parse_schedule(f"rate({value} {unit}{'' if value == 1 else 's'})")
    step = value * {"minute": 60, "hour": 3600, "day": 86400}[unit]
    found = expression.find_next_time(1000 + later, 1000)
    assert found > 1000 + later >= found - step
    assert (found - 1000) % step == 0
    assert expression.find_next_time(500, 1000) == 1000


@given(st.integers(0, 59), st.integers(0, 23), st.integers(1, 7), st.integers(0, 2 * 10**9))
def test_a_weekday_is_met_within_a_week(minute: int, hour: int, day: int, moment: int) -> None:
    found = parse_schedule(f"cron({minute} {hour} ? * {day} *)").find_next_time(moment, 0)
    met = datetime.fromtimestamp(found, UTC)
    assert 0 < found - moment <= 7 * 86400
    assert (met.hour, met.minute, met.second) == (hour, minute, 0)
    assert calendar.day_name[met.weekday()] == ["Sunday", *calendar.day_name][day - 1]


@pytest.mark.parametrize(
    "text",
    [
        *("", "cron", "rate(0 minutes)", "rate(1 minutes)", "rate(5 minute)", "rate(5 weeks)"),
        *("at(2026-11-22)", "at(tomorrow)", "cron(0 10 * * *)", "cron(0 10 * * * *)"),
        *("cron(0 10 ? * ? *)", "cron(60 10 * * ? *)", "cron(0 10 32 * ? *)", "cron(0 10 x * ? *)"),
        *("cron(0 10 ? * MON-FOO *)", "cron(5-1 10 * * ? *)", "cron(0/0 10 * * ? *)"),
        "cron(0 9 LW * ? *)",
    ],
)
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(WrongExpression):
        parse_schedule(text)


def test_an_unknown_time_zone() -> None:
    with pytest.raises(WrongExpression, match="time zone 'Mars' is not known"):
        parse_schedule("rate(1 day)", "Mars")
