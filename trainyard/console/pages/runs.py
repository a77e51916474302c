"""The executions of all pipelines, sorted, filtered, searched and paged by the address."""

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from werkzeug.datastructures import MultiDict

from trainyard.console import live_pages
from trainyard.console.account_cache import Account, account
from trainyard.console.app_hooks import application
from trainyard.console.execution_index import Index, Run, index
from trainyard.console.outcomes import Judge, Outcome, outcome
from trainyard.language.statuses import ENDED

page = Blueprint("runs", __name__)

STATUSES = ("Executing", "Stopping", *ENDED)


@page.record
def _remember(setup: BlueprintSetupState) -> None:
    """Give each application its own index."""
    setup.app.extensions["trainyard-index"] = Index(setup.app.extensions["trainyard-account"])


def _stamp() -> Hashable:
    index().look()
    return index().version, account().outcomes.finished


@live_pages.page(page, "/runs", template="runs.html.j2", stamp=_stamp)
def runs() -> live_pages.Fragments:
    """Show the runs that the address asks for, among those read so far."""
    index().look()
    query = asked(request.args)
    found = listing(index(), query)
    shown = {"listing": found, "query": query, "index": index(), "address": address}
    shown |= {"outcomes": {arn: _outcome(arn, run) for arn, run in found.runs}}
    return {
        "progress": render_template("runs/progress.html.j2", **shown),
        "form": render_template("runs/form.html.j2", **shown, statuses=STATUSES, row_counts=ROWS),
        "runs": render_template("runs/table.html.j2", **shown, unsorted=UNSORTED),
    }


def _outcome(arn: str, run: Run) -> Outcome:
    """Return what is known of a run's outcome; that of an ended run is read in the background."""
    if not run.is_ended:
        return Outcome()
    here = account()
    read = partial(_read, here, run, application().judge)
    return here.outcomes.get(("outcome", arn), (run.status, run.changed), read, Outcome())


def _read(here: Account, run: Run, judge: Judge) -> Outcome:
    """Read an outcome as soon as no browser has asked for something lately: pages come first."""
    while (rest := here.asked + QUIET - time.monotonic()) > 0:
        if here.ended.wait(rest):
            return Outcome()
    return outcome(here, run.pipeline, run.id, judge)


def address(**changes: str | int) -> str:
    """Return the page's address with other arguments, on the first page unless they name one."""
    args = request.args.to_dict(flat=False) | {"page": []}
    args |= {name: [str(value)] for name, value in changes.items()}
    given = {name: filled for name, values in args.items() if (filled := [*filter(None, values)])}
    return f"{url_for('runs.runs')}?{urlencode(given, doseq=True)}"


ROWS = (50, 100, 200, 500)
"""Possible numbers of runs per page; the first is the default."""

PARAMETER = "p."
"""Prefix of columns and filters that are parameters."""

COLUMNS = ("status", "metric", "champion", "verdict", "started", "duration", "cost")
"""Columns beside the run's name and the parameters that differ."""

UNSORTED = ("metric", "champion", "verdict", "cost")
"""Columns that are known only of the runs shown."""

QUIET = 0.3
"""Seconds after a browser's last request in which no outcome is read."""

BARS = 60
"""Most bars in the picture of the newest runs."""

MOST = 8
"""Most parameters shown."""


@dataclass(frozen=True, slots=True)
class Query:
    """The filters and order in an address."""

    words: tuple[str, ...] = ()
    """Words that must all occur in a run, in lower case."""
    pipeline: str = ""
    statuses: tuple[str, ...] = ()
    since: float = -math.inf
    until: float = math.inf
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Parameter → ``=1``, or a text that its value contains."""
    sort: str = "-started"
    """Column to sort by; with a leading hyphen, the highest first."""
    page: int = 1
    rows: int = ROWS[0]
    faults: tuple[str, ...] = ()
    """Errors in the address."""

    @property
    def filled(self) -> int:
        """Number of filters beside the search."""
        chosen = (self.pipeline, self.statuses, self.since > -math.inf, self.until < math.inf)
        return sum(map(bool, chosen)) + len(self.conditions)


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the runs found."""

    runs: Sequence[tuple[str, Run]]
    """Runs with their ARNs."""
    found: int
    page: int
    pages: int
    columns: Sequence[str]
    parameters: Sequence[str]
    """The parameters of the runs found, those with the most different values first."""
    newest: Sequence[tuple[Run, float]]
    """The newest runs found, the oldest of them first; duration as a share of the longest."""


def asked(args: MultiDict[str, str]) -> Query:
    """Return the query of an address; missing or wrong parts get their defaults."""
    faults: list[str] = []
    conditions = {
        name.removeprefix(PARAMETER): value.strip()
        for name, value in args.items()
        if name.startswith(PARAMETER) and value.strip()
    }
    rows = _whole(args, "rows", faults)
    return Query(
        words=tuple(args.get("q", "").casefold().split()),
        pipeline=args.get("pipeline", ""),
        statuses=tuple(args.getlist("status")),
        since=_moment(args, "since", -math.inf, faults),
        until=_moment(args, "until", math.inf, faults),
        conditions=conditions,
        sort=args.get("sort") or "-started",
        page=max(1, _whole(args, "page", faults) or 1),
        rows=min(max(1, rows or ROWS[0]), ROWS[-1]),
        faults=tuple(faults),
    )


def _whole(args: Mapping[str, str], name: str, faults: list[str]) -> int | None:
    text = args.get(name, "")
    if text and not (text.isdecimal() and len(text) < 10):
        faults.append(f"{name}={text} is not a whole number")
        return None
    return int(text) if text else None


def _moment(args: Mapping[str, str], name: str, otherwise: float, faults: list[str]) -> float:
    if not (text := args.get(name, "")):
        return otherwise
    try:
        return datetime.fromisoformat(text).timestamp()  # without a zone: this machine's
    except (ValueError, OverflowError):
        faults.append(f"{name}={text} is not a time such as 2026-11-22T09:30")
        return otherwise


def listing(index: Index, query: Query) -> Listing:
    """Return the requested page of matching runs, at most the last one."""
    found = [(arn, run) for arn, run in index.runs() if _is_asked(query, arn, run)]
    parameters = _parameters(run for _, run in found)
    _sort(found, query.sort)
    pages = max(1, math.ceil(len(found) / query.rows))
    page = min(query.page, pages)
    return Listing(
        runs=found[(page - 1) * query.rows : page * query.rows],
        found=len(found),
        page=page,
        pages=pages,
        columns=_default(parameters, len({run.pipeline for _, run in found})),
        parameters=list(parameters),
        newest=_newest([run for _, run in found]),
    )


def _newest(runs: Sequence[Run]) -> list[tuple[Run, float]]:
    now = time.time()
    chosen = heapq.nlargest(BARS, runs, key=lambda run: run.started)[::-1]
    longest = max((run.seconds(now) for run in chosen), default=0.0) or 1.0
    return [(run, run.seconds(now) / longest) for run in chosen]


def _default(parameters: Mapping[str, int], pipelines: int) -> list[str]:
    """Return the usual columns, the pipeline if there are several, and the parameters that differ,
    or all if none does.
    """
    differing = [name for name, values in parameters.items() if values > 1]
    several = ["pipeline"] if pipelines > 1 else []
    return [
        *COLUMNS,
        *several,
        *(f"{PARAMETER}{name}" for name in (differing or [*parameters])[:MOST]),
    ]


def _parameters(runs: Iterable[Run]) -> dict[str, int]:
    """Return parameter → number of different values, those of the most runs first."""
    seen: dict[tuple[str, ...], list[set[str]]] = {}
    having: Counter[tuple[str, ...]] = Counter()
    for run in runs:
        values = seen.get(run.names)
        if values is None:
            values = seen[run.names] = [set() for _ in run.names]
        having[run.names] += 1
        for known, value in zip(values, run.values, strict=True):
            known.add(value)
    found: dict[str, set[str]] = {}
    often: Counter[str] = Counter()
    for names, each in seen.items():
        for name, known in zip(names, each, strict=True):
            found.setdefault(name, set()).update(known)
            often[name] += having[names]
    return {name: len(found[name]) for name, _ in often.most_common()}


def _is_asked(query: Query, arn: str, run: Run) -> bool:
    return (
        (not query.pipeline or run.pipeline == query.pipeline)
        and (not query.statuses or run.status in query.statuses)
        and query.since <= run.started <= query.until
        and all(_holds(run.parameter(name), said) for name, said in query.conditions.items())
        and (not query.words or _has(text_of(arn, run), query.words))
    )


def text_of(arn: str, run: Run) -> str:
    """Return the text in which a run is searched, in lower case."""
    found = (arn, run.pipeline, run.name, run.status, run.description, run.reason)
    given = (f"{name}={value}" for name, value in zip(run.names, run.values, strict=True))
    return "\n".join((*found, *given)).casefold()


def _has(text: str, words: Iterable[str]) -> bool:
    return all(word in text for word in words)


def _holds(value: str | None, condition: str) -> bool:
    """Return whether a value contains a text, or equals it after ``=``; numbers compare as
    numbers.
    """
    if value is None:
        return False
    if not condition.startswith("="):
        return condition.casefold() in value.casefold()
    wanted = condition[1:].strip()
    one, other = _number(value), _number(wanted)
    return value == wanted if one is None or other is None else one == other


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _sort(found: list[tuple[str, Run]], by: str) -> None:
    """Sort in place; runs without a value in the column come last, in either direction."""
    column, descending = by.removeprefix("-"), by.startswith("-")
    value = _value(column)
    found.sort(key=lambda one: one[1].started, reverse=True)  # where the column is the same
    having = [(known, one) for one in found if (known := value(*one)) is not None]
    lacking = [one for one in found if value(*one) is None]
    having.sort(key=lambda pair: pair[0], reverse=descending)
    found[:] = [one for _, one in having] + lacking


def _value(column: str) -> Callable[[str, Run], Any]:
    """Return a column's sort key; numbers come before texts."""
    now = time.time()
    if column.startswith(PARAMETER):
        return lambda arn, run: _comparable(run.parameter(column.removeprefix(PARAMETER)))
    return {
        "duration": lambda arn, run: run.seconds(now),
        "pipeline": lambda arn, run: run.pipeline.casefold(),
        "name": lambda arn, run: run.title.casefold(),
        "status": lambda arn, run: run.status,
    }.get(column, lambda arn, run: run.started)


def _comparable(value: str | None) -> tuple[bool, float, str] | None:
    if value is None:
        return None
    number = _number(value)
    return number is None, number or 0.0, value.casefold()
