"""What an answer lacks of what was published."""

import json
import re
from typing import Any

_SHOWN = 200
"""Characters of a value in a reason."""


def difference(expected: Any, got: Any, where: str = "") -> str:
    """Return the first difference in a line; empty if the answer has all that is expected."""
    if isinstance(expected, dict):
        return _of_members(expected, got, where)
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return _said(expected, got, where)
        pairs = enumerate(zip(expected, got, strict=True))
        return next(filter(None, (difference(*pair, f"{where}.{n}") for n, pair in pairs)), "")
    if isinstance(expected, str) and expected.startswith("~ "):
        found = re.search(expected[2:], str(got), re.DOTALL) if got is not None else None
        return "" if found else _said(expected, got, where)
    same = got == expected and isinstance(got, bool) == isinstance(expected, bool)
    return (
        ""
        if same or (isinstance(expected, str) and str(got) == expected)
        else _said(expected, got, where)
    )


def _of_members(expected: dict, got: Any, where: str) -> str:
    if "~has" in expected:
        found = isinstance(got, list) and any(not difference(expected["~has"], g) for g in got)
        return "" if found else _said(expected["~has"], got, f"an entry of {where}")
    if "~json" in expected:
        try:
            return difference(expected["~json"], json.loads(got), where)
        except (TypeError, ValueError):
            return _said(expected, got, where)
    if not isinstance(got, dict):
        return _said(expected, got, where)
    parts = ((name, value, got.get(name)) for name, value in expected.items())
    lines = (difference(value, its, f"{where}.{name}".strip(".")) for name, value, its in parts)
    return next(filter(None, lines), "")


def _said(expected: Any, got: Any, where: str) -> str:
    texts = (
        json.dumps(value, default=str, ensure_ascii=False)[:_SHOWN] for value in (got, expected)
    )
    came, published = texts
    return f"{where}: {came}, published is {published}"
