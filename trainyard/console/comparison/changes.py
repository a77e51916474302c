"""How one file of a step's code differs between the runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.console.account import Account
from trainyard.console.comparison.objects import code, content, hashed
from trainyard.console.comparison.sides import Side
from trainyard.runs.comparing.archives import Mark
from trainyard.runs.comparing.texts import Diff, diff

MOST = 10
"""Versions of a file that are compared with the baseline's."""


@dataclass(frozen=True, slots=True)
class Version:
    """What runs with one content of the file have changed against the baseline."""

    runs: tuple[int, ...]
    """Their numbers."""
    what: str
    """``changed``, ``added``, ``removed`` or ``the same``."""
    diff: Diff


@dataclass(frozen=True, slots=True)
class Changes:
    """One file of one step's code."""

    step: str
    name: str
    """Place and path: ``code/train.py``."""
    versions: tuple[Version, ...]
    further: int = 0
    """Versions that are not shown."""


def changes(here: Account, sides: Sequence[Side], base: int, wanted: str) -> Changes | None:
    """The versions of the file ``<step>/<place>/<path>``; None where no run has it."""
    step, _, name = wanted.partition("/")
    place, _, path = name.partition("/")
    works = [side.works.get(step) for side in sides]
    uris = [work.places.code.get(place) if work else None for work in works]
    if not path or not any(uris):
        return None
    marks = [_mark(here, uri, path) for uri in uris]
    if not any(marks):
        return None
    old = _content(here, uris[base], path, marks[base])
    others = list(dict.fromkeys(m and m.digest for m in marks if m != marks[base]))
    versions = []
    for digest in others[:MOST]:
        runs = tuple(i for i, m in enumerate(marks) if (m and m.digest) == digest)
        new = _content(here, uris[runs[0]], path, marks[runs[0]])
        what = "removed" if new is None else "added" if old is None else "changed"
        versions.append(Version(runs, what, diff(old, new)))
    return Changes(step, name, tuple(versions), max(0, len(others) - MOST))


def _mark(here: Account, uri: str | None, path: str) -> Mark | None:
    mark = code(here, uri).files.get(path) if uri else None
    return hashed(here, uri, path, mark) if uri and mark else None


def _content(here: Account, uri: str | None, path: str, mark: Mark | None) -> bytes | None:
    return content(here, uri, path) if uri and mark else None
