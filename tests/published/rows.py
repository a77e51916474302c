"""Rows of ``tests/published/*.yaml``: a request or situation, and the answer that is published.

A file has a ``kind`` (of source), maybe a ``source`` that holds for rows without one, maybe calls
that are made once for all of its rows (``always``), and ``rows``. A row:

    given:  calls whose answers the row needs; each must succeed
    ask:    the call that is judged
    error:  "Code" or "Code: message"; status: the HTTP status, too
    answer: members of the answer
    source: where that is published
    argued: why the emulator may answer otherwise; such a row must differ

A call is ``service.operation: parameters``. ``service.operation until Member`` repeats it while
that member is empty or names something unfinished; ``service.page operation`` reads all pages;
``service.wait waiter`` waits as botocore's waiter does.

In a text, ``$id`` is a name of the row's own, ``$file`` of the file's own; ``$role``, ``$account``
and ``$region`` are the emulator's; ``$Member.0.Name`` is what an earlier answer had. An expected
text that begins with ``~ `` is a regular expression that is searched; ``{~has: x}`` asks for an
entry of a list, ``{~json: x}`` for a text that is JSON; null says that a member is absent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
EXPECTED = ("error", "status", "answer")
_MEMBERS = {"what", "given", "ask", "source", "argued", *EXPECTED}


class RowError(Exception):
    """A row that is not written as a row is, or that nothing could contradict."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    kind: str
    source: str
    ask: dict[str, Any]
    given: list[dict[str, Any]] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)
    argued: str = ""


@dataclass(frozen=True, slots=True)
class File:
    name: str
    kind: str
    always: list[dict[str, Any]]
    rows: list[Row]


def files(folder: Path = FOLDER) -> Iterator[File]:
    """Iterate over the files of rows. Raises :class:`RowError`."""
    for path in sorted(folder.glob("*.yaml")):
        yield read(path.stem, path.read_text())


def read(name: str, text: str) -> File:
    """Return the rows of a file. Raises :class:`RowError`."""
    document = yaml.load(text, yaml.CSafeLoader)
    kind, source = document["kind"], document.get("source", "")
    rows = [
        _row(f"{name}:{number}", kind, source, entry)
        for number, entry in enumerate(document["rows"], 1)
    ]
    return File(name, kind, document.get("always", []), rows)


def _row(name: str, kind: str, source: str, entry: dict[str, Any]) -> Row:
    if unknown := entry.keys() - _MEMBERS:
        raise RowError(f"{name}: a row has no member {sorted(unknown)}")
    expected = {key: entry[key] for key in EXPECTED if key in entry}
    found = entry.get("source", source)
    if not found or len(entry.get("ask") or {}) != 1:
        raise RowError(f"{name}: a row needs a source, and one call to ask")
    if not any(_values(expected)):
        raise RowError(f"{name}: nothing could contradict {expected}")
    label = entry.get("what") or next(iter(entry["ask"]))
    argued, given = entry.get("argued", ""), entry.get("given", [])
    return Row(f"{name} {label}", kind, found, entry["ask"], given, expected, argued)


def _values(expected: Any) -> Iterator[bool]:
    """Iterate over the values that are expected: whether an answer could contradict each."""
    if isinstance(expected, dict):
        for value in expected.values():
            yield from _values(value)
    elif isinstance(expected, list):
        yield True
        for value in expected:
            yield from _values(value)
    else:
        yield expected not in ("", "~ ")
