"""How a row of gate.json is told to people, as the table of checks says.

A row may be of a kind that this table lacks (a gate of another version), or name no kind at all.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from conditions.champion import NONE
from conditions.table import GateCheck, checks

Row = Mapping[str, Any]
"""A check in gate.json."""


@cache
def entry(kind: str | None) -> GateCheck | None:
    """The first entry of the table of this kind."""
    return next((check for check in checks() if check.kind == kind), None)


def measured(row: Row, gate: Mapping[str, Any]) -> str:
    """The value of a check, or why it has none."""
    against = [check.kind for check in checks() if "champion" in check.needs]
    if row["value"] is None and row.get("kind") in against and gate.get("champion") == NONE:
        return f"no champion, cold_start: {gate.get('cold_start')}"
    return _number(row["value"])


def demanded(row: Row) -> str:
    """What a check demands of its value, or of one of its limits."""
    usual = "at most" if row["direction"] == "lower" else "at least"
    return f"{_limit(row) or usual} {_number(row['threshold'])}"


def limits(row: Row) -> str:
    """``low to high``; empty where a check has none."""
    low, high = row.get("low"), row.get("high")
    if low is None and high is None:
        return ""
    if _limit(row) == "high at most":  # it has no lower one
        return f"at most {_number(high)}"
    return f"{'-∞' if low is None else _number(low)} to {'∞' if high is None else _number(high)}"


def against(row: Row) -> str:
    """Whether the model beats a baseline, as far as the rows can tell (``AgainstBaseline``)."""
    if row["low"] is not None and row["low"] > 0:
        return "yes"
    return "no, it is worse" if row["high"] is not None and row["high"] < 0 else "not shown"


def _limit(row: Row) -> str | None:
    found = entry(row.get("kind"))
    return found.limit if found else None


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4f}"
