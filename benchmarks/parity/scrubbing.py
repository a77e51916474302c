"""What a record must not hold: whose account it was, and what differs from run to run."""

import re
from datetime import datetime
from typing import Any

_RULES = (
    (re.compile(r"\barn:aws[\w-]*:(?:iam|sts):[^\s\"',\])}]*"), "<principal>"),
    (re.compile(r"\b(?:AKIA|ASIA|AIDA|AROA|AGPA|ANPA)[A-Z0-9]{12,}(?::[\w+=,.@-]+)?"), "<id>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<email>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b(pipelines-)[a-z0-9]{12}(-[\w-]+?-)[A-Za-z0-9]{10}\b"), r"\1<execution>\2<id>"),
    (re.compile(r"(tuning-job/)[a-z0-9]{12}(-[\w-]+?-)[A-Za-z0-9]{10}\b"), r"\1<execution>\2<id>"),
    (re.compile(r"(/execution/)[a-z0-9]{12}\b"), r"\1<execution>"),
    (re.compile(r"\bexecution-\d{13}\b"), "execution-<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "<account>"),
)
_DROPPED = {"ResponseMetadata", "CreatedBy", "LastModifiedBy"}
_LARGE = 10**9
"""Numbers above this are times or names of accounts."""


class Packed(bytes):
    """An archive; a record shows its ``source`` in its place."""

    source: Any = ""


class Scrubber:
    """Replaces the run's own names (account, region, role, bucket, prefix) and other secrets."""

    def __init__(self, own: dict[str, str], words: dict[str, str] | None = None) -> None:
        """``own``: text in answers → its replacement; ``words`` are replaced as whole words only.

        Empty texts are left out.
        """
        self._own = {text: shown for text, shown in own.items() if text}
        self._words = {text: shown for text, shown in (words or {}).items() if text}

    def hide(self, text: str, shown: str) -> None:
        """Replace ``text`` from now on."""
        self._own[text] = shown

    def __call__(self, value: Any) -> Any:
        """Return the value without them; a time becomes ``<time>``, a dictionary is sorted."""
        if isinstance(value, dict):
            kept = {key: found for key, found in value.items() if key not in _DROPPED}
            return {self._text(key): self(found) for key, found in sorted(kept.items())}
        if isinstance(value, list | tuple):
            return [self(found) for found in value]
        if isinstance(value, Packed):
            return self(value.source)
        if isinstance(value, datetime):
            return "<time>"
        if isinstance(value, int) and value > _LARGE:
            return "<number>"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        known = self._own | self._words
        longest = sorted(known, key=len, reverse=True)
        each = (
            re.escape(t) if t in self._own else rf"(?<!\w){re.escape(t)}(?!\w)" for t in longest
        )
        if known:  # in one pass: what has been written is not replaced again
            text = re.sub("|".join(each), lambda found: known[found[0]], text)
        for pattern, written in _RULES:
            text = pattern.sub(written, text)
        return text
