"""What differs between a record and the emulator's: rows to read, and for ``tests/published``."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_SECRET = re.compile(r"<(?:uuid|execution|id|time|number|token|queue|principal|name)>")
_NAMES = {
    "<role>": "${role}",
    "<account>": "${account}",
    "<region>": "${region}",
    "<bucket>": "${file}",
    "<prefix>-": "${id}-",
    "<registry>": "683313688378.dkr.ecr.us-east-1.amazonaws.com",
}
"""Placeholders of a record → what a published row says."""
_EARLIER = {
    "PipelineExecutionArn": "PipelineExecutionArn",
    "SourcePipelineExecutionArn": "PipelineExecutionArn",
    "ModelPackageName": "ModelPackageArn",
    "QueueUrl": "QueueUrl",
    "SqsQueueUrl": "QueueUrl",
}
"""Member of a request → the member of an earlier answer that it has."""


@dataclass(frozen=True, slots=True)
class Difference:
    case: str
    index: int
    """The call's place in its case."""

    call: str
    field: str
    there: Any
    """The record's value; None if it has none."""

    here: Any

    def __str__(self) -> str:
        shown = (json.dumps(value, sort_keys=True) for value in (self.there, self.here))
        return "\t".join((f"{self.case}[{self.index}]", self.call, self.field, *shown))


def differences(record: dict[str, Any], own: dict[str, Any]) -> Iterator[Difference]:
    """Iterate over what differs in the cases that the record has; ``own``: the emulator's."""
    for name, entries in sorted(record["cases"].items()):
        ours = own["cases"].get(name, [])
        for index in range(max(len(entries), len(ours))):
            there = entries[index] if index < len(entries) else {}
            here = ours[index] if index < len(ours) else {}
            call = there.get("call") or here.get("call", "")
            answers = ({k: v for k, v in each.items() if k != "request"} for each in (there, here))
            for field, left, right in _compared("", *answers):
                yield Difference(name, index, call, field, left, right)


def _compared(place: str, there: Any, here: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted({*there, *here}):
            where = f"{place}.{key}".lstrip(".")
            yield from _compared(where, there.get(key), here.get(key))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (left, right) in enumerate(zip(there, here, strict=True)):
            yield from _compared(f"{place}.{index}", left, right)
    elif there != here:
        yield place, there, here


def published(record: dict[str, Any], found: list[Difference]) -> str:
    """Return a file of ``tests/published``: a row for each call in which something differs.

    The row makes the case's calls before it that were answered, and expects what the record has. A
    call that needs what a record does not hold, such as a callback's token, has no row.
    """
    rows = []
    for name, index in dict.fromkeys((each.case, each.index) for each in found):
        entries = record["cases"][name]
        absent = [e.field for e in found if (e.case, e.index) == (name, index) and e.there is None]
        if index < len(entries) and not _SECRET.search(json.dumps(row := _row(entries, index))):
            what = {"what": f"{name.replace('_', ' ')}, call {index + 1}"}
            rows.append({**what, **row, **_expected_of(entries[index], absent)})
    head = {"kind": "recorded on AWS (benchmarks.parity)", "source": "a record of an account"}
    always = [{"s3.create_bucket": {"Bucket": "$file"}}]
    return yaml.safe_dump({**head, "always": always, "rows": rows}, sort_keys=False, width=1000)


def _row(entries: list[dict[str, Any]], index: int) -> dict[str, Any]:
    given = [_asked(earlier) for earlier in entries[:index] if "answer" in earlier]
    return {"given": given, "ask": _asked(entries[index])}


def _expected_of(entry: dict[str, Any], absent: list[str]) -> dict[str, Any]:
    """Return a row's ``error`` or ``answer``; ``absent`` members of the answer are null."""
    if error := entry.get("error"):
        told = f"{error['Code']}: {_expected(error['Message'])}"
        return {"error": told, "status": entry["status"]} if "status" in entry else {"error": told}
    answer = _expected(entry["answer"])
    for path in absent:
        *parents, last = path.split(".")[1:]
        place = answer
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        place[last] = None
    return {"answer": answer}


def _asked(entry: dict[str, Any]) -> dict[str, Any]:
    until = f" until {entry['until']}" if "until" in entry else ""
    return {f"{entry['call']}{until}": _filled(entry["request"])}


def _filled(value: Any, member: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _filled(found, key) for key, found in value.items()}
    if isinstance(value, list):
        return [_filled(found) for found in value]
    if member in _EARLIER and isinstance(value, str) and _SECRET.search(value):
        return f"${_EARLIER[member]}"
    return _named(value) if isinstance(value, str) else value


def _expected(value: Any) -> Any:
    """Return the value with a pattern for each text of which a part differs from run to run."""
    if isinstance(value, dict):
        return {key: _document(key, each) or _expected(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_expected(found) for found in value]
    if not isinstance(value, str) or not _SECRET.search(value):
        return _named(value) if isinstance(value, str) else value
    parts = (re.escape(part).replace("\\-", "-") for part in _SECRET.split(value))
    return _named(f"~ ^{'.+'.join(parts)}$")


def _document(member: str, value: Any) -> dict[str, Any] | None:
    """Return what a JSON text says: a message, or a pipeline's definition; else None."""
    if member == "Body" and isinstance(value, dict):
        return {"~json": _expected(value)}
    return {"~json": _expected(json.loads(value))} if member == "PipelineDefinition" else None


def _named(text: str) -> str:
    for placeholder, name in _NAMES.items():
        text = text.replace(placeholder, name)
    return text
