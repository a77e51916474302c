"""Takes out of answers what differs from run to run and from account to account."""

import re
from datetime import datetime
from typing import Any

_RULES = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b(pipelines-)[a-z0-9]{12}(-[\w-]+?-)[A-Za-z0-9]{10}\b"), r"\1<execution>\2<id>"),
    (re.compile(r"(/execution/)[a-z0-9]{12}\b"), r"\1<execution>"),
    (re.compile(r"\bexecution-\d{13}\b"), "execution-<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:?\d\d)?"), "<time>"),
)
_DROPPED = {"ResponseMetadata", "CreatedBy", "LastModifiedBy"}


class Scrubber:
    """Knows the run's own names: of the account, the region, the role, the bucket, the prefix."""

    def __init__(self, own: dict[str, str]) -> None:
        """``own``: what stands in answers → what is written for it, e.g. the account's number."""
        self._own = sorted(own.items(), key=lambda item: -len(item[0]))

    def __call__(self, value: Any) -> Any:
        """The same, without them; a time becomes ``<time>``, a dictionary is sorted."""
        if isinstance(value, dict):
            kept = {key: self(found) for key, found in value.items() if key not in _DROPPED}
            return dict(sorted(kept.items()))
        if isinstance(value, list):
            return [self(found) for found in value]
        if isinstance(value, datetime):
            return "<time>"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for found, written in self._own:
            text = text.replace(found, written)
        for pattern, written in _RULES:
            text = pattern.sub(written, text)
        return text
