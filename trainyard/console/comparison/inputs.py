"""The code and the data of the runs' steps, as rows of the comparison."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from trainyard.console.account import Account
from trainyard.console.comparison.objects import code, hashed, listing
from trainyard.console.comparison.sides import AT_ONCE, Side
from trainyard.console.comparison.works import Work
from trainyard.console.wording import size
from trainyard.plan.listing import MOST
from trainyard.runs.comparing import data
from trainyard.runs.comparing.archives import Contents, Mark
from trainyard.runs.comparing.differences import Row, Value, order
from trainyard.runs.comparing.places import BY_CONTENT

Uris = Mapping[str, str]
Steps = dict[str, list[Row]]
"""Step → its rows."""


def data_rows(here: Account, sides: Sequence[Side], *, everything: bool) -> Steps:
    """For each step and each of its inputs: what lies at the runs' URIs."""
    found: Steps = {}
    _read_ahead(sides, lambda work: work.places.data, partial(listing, here))
    for step, name in _names(sides, lambda work: work.places.data):
        works = [side.works.get(step) for side in sides]
        prints = [_print(here, work, name) for work in works]
        row = Row(name, tuple(data.values(prints)))
        if everything or row.differs:
            found.setdefault(step, []).append(row)
    return found


def _read_ahead(
    sides: Sequence[Side], which: Callable[[Work], Uris], read: Callable[[str], object]
) -> None:
    """Read what lies at all these URIs, several at a time; it is remembered for whoever asks."""
    uris = {uri for side in sides for work in side.works.values() for uri in which(work).values()}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(read, uris))


def _names(sides: Sequence[Side], which: Callable[[Work], Uris]) -> Iterator[tuple[str, str]]:
    """(step, name of one of its places) of all runs, each once."""
    for step in order([side.works for side in sides]):
        works = [side.works[step] for side in sides if step in side.works]
        for name in order([which(work) for work in works]):
            yield step, name


def _print(here: Account, work: Work | None, name: str) -> data.Print | None:
    if work is None or name not in work.places.data:
        return None
    uri = work.places.data[name]
    found = listing(here, uri)
    fault = found.fault
    if not fault and not found.objects:
        fault = "nothing lies there any more"
    if not fault and found.is_cut:
        fault = f"only the first {MOST:,} objects were looked at"
    if not fault and (newer := found.since(work.read)):
        fault = f"{newer:,} of {len(found.objects):,} objects were written after the run read them"
    if not fault and name in work.places.manifests:
        fault = "it is a manifest, and what it lists is not looked at"
    return data.fingerprint(uri, found.objects, fault)


def code_rows(here: Account, sides: Sequence[Side], *, everything: bool) -> Steps:
    """For each step: the files of its code, where they are not the same in all runs."""
    found: Steps = {}
    _read_ahead(sides, lambda work: work.places.code, partial(code, here))
    for step, name in _names(sides, lambda work: work.places.code):
        works = [side.works.get(step) for side in sides]
        uris = [work.places.code.get(name) if work else None for work in works]
        rows = [*_packages(here, name, works, uris), *_files(here, name, uris)]
        if shown := [row for row in rows if everything or row.differs]:
            found.setdefault(step, []).extend(shown)
    return found


def _packages(
    here: Account, name: str, works: Sequence[Work | None], uris: Sequence[str | None]
) -> Iterator[Row]:
    """A row that says of which runs nobody knows all of the code."""
    faults = [_fault(here, *pair) if pair[1] else None for pair in zip(works, uris, strict=True)]
    values = [
        Value(f"{uri}\ncannot be known: {fault}", "", known=False) if fault else None
        for uri, fault in zip(uris, faults, strict=True)
    ]
    if any(values):
        yield Row(f"{name}: all of it", tuple(values))


def _fault(here: Account, work: Work | None, uri: str | None) -> str:
    if uri is None or work is None:
        return ""
    if fault := code(here, uri).fault:
        return fault
    newer = 0 if BY_CONTENT.fullmatch(uri) else listing(here, uri).since(work.read)
    return f"{newer:,} of its objects were written after the run read them" if newer else ""


def _files(here: Account, name: str, uris: Sequence[str | None]) -> Iterator[Row]:
    found = {uri: code(here, uri) for uri in dict.fromkeys(uris) if uri}
    for path in order([one.files for one in found.values()]):
        marks = _comparable(here, found, path)
        values = (_file(marks.get(uri)) if uri else None for uri in uris)
        yield Row(f"{name}/{path}", tuple(values))


def _comparable(here: Account, found: Mapping[str, Contents], path: str) -> dict[str, Mark]:
    """URI → the file's mark; by the content where ETags differ, for one content may have many."""
    marks = {uri: one.files[path] for uri, one in found.items() if path in one.files}
    if len({mark.digest for mark in marks.values()}) > 1:
        return {uri: hashed(here, uri, path, mark) for uri, mark in marks.items()}
    return marks


def _file(mark: Mark | None) -> Value | None:
    if mark is None:
        return None
    return Value(f"{size(mark.size)}, {mark.digest[:8]}", mark.digest, float(mark.size))
