"""Filters of the console's templates for times, durations, sizes and sums."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from trainyard.runs.step_table import duration

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def moment(when: datetime | None) -> Markup:
    """Return an absolute time in this machine's zone, to the second; empty for None."""
    if when is None:
        return Markup()
    local = when.astimezone()
    return Markup('<time datetime="{}">{}</time>').format(
        local.isoformat(), local.strftime("%Y-%m-%d %H:%M:%S %Z")
    )


def lasting(start_time: datetime | None, end_time: datetime | None) -> Markup:
    """Return a duration; that of a running thing counts on in the browser. Empty before the
    start.
    """
    if start_time is None:
        return Markup()
    if end_time is None:
        now = datetime.now(start_time.tzinfo)
        text = duration((now - start_time).total_seconds())
        return Markup('<span data-since="{}">{}</span>').format(start_time.isoformat(), text)
    return Markup("<span>{}</span>").format(duration((end_time - start_time).total_seconds()))


def size(count: float | None) -> str:
    """Return bytes as ``4.2 MB``, in powers of 1,000; empty for None."""
    if count is None:
        return ""
    for unit in _UNITS:
        if abs(count) < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"


def usd(amount: float | None) -> str:
    """Return ``$12.30``; ``< $0.01`` for a smaller sum above 0; empty for None."""
    if amount is None:
        return ""
    return "< $0.01" if 0 < amount < 0.005 else f"${amount:,.2f}"


def costing(amount: float | None, a_second: float | None) -> Markup:
    """Return a sum; if it grows by ``a_second`` USD, the browser counts on."""
    if amount is None:
        return Markup()
    if not a_second:
        return Markup("<span>{}</span>").format(usd(amount))
    since = datetime.now(UTC) - timedelta(seconds=amount / a_second)
    return Markup('<span data-paid-since="{}" data-rate="{}">{}</span>').format(
        since.isoformat(), a_second, usd(amount)
    )


_INVISIBLE = re.compile(
    r"[\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def exact_json(value: Any) -> str:
    """Return indented JSON with invisible characters escaped."""
    return _INVISIBLE.sub(
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(value, indent=2, default=str, ensure_ascii=False),
    )


def figure(value: Any) -> str:
    """Return a number with six digits, ``NaN`` and ``inf`` as such; other values as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,.6g}"


def plain(text: Any) -> str:
    """Return text without terminal escapes, with a mark for each character that is invisible or
    changes the direction of writing.
    """
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", str(text)))


FILTERS: dict[str, Callable[..., Any]] = {
    "moment": moment,
    "duration": duration,
    "size": size,
    "usd": usd,
    "figure": figure,
    "plain": plain,
    "exact_json": exact_json,
}
"""Name in the templates → function."""
