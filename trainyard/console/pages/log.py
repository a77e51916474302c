"""The log of a step: the page, and its lines as HTML."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from flask import Blueprint, Response, abort, render_template, request, url_for
from markupsafe import Markup

from trainyard.console import live_pages, log_lines
from trainyard.console.account_cache import Account, account
from trainyard.console.log_lines import KEPT, Line, polled, tail
from trainyard.console.log_streams import Stream, chosen, labels, streams, tuning_of
from trainyard.runs.execution import Step

FEW = 12
"""Number of lines on the page of a step."""

SHARED = 2_048
"""Lines whose HTML is cached, for pages that follow one log at the same time."""

_LINE = Markup(
    '<div class="l{kind}"{id}><a href="{page}line={line}#{line}"><time datetime="{iso}">'
    '<span class="day">{day} </span>{time}</time></a><b>{mark}</b><span class="said">{text}{more}'
    "</span></div>"
)
_MORE = Markup(
    ' <a class="more" href="{whole}line={line}">whole line, {length:,} characters{again}</a>'
)


class Rows:
    """Renders lines of one stream's page. ``where``: pipeline, execution, step."""

    def __init__(self, where: Mapping[str, str], stream: Stream, wrap: str = "") -> None:
        by: dict[str, Any] = {**where, "job": stream.job, "host": stream.own}
        by |= {"wrap": wrap} if wrap else {}
        self.page = url_for("log.log", **by) + "&"
        """Address of the stream's page, to which ``line=…`` and the like are added."""
        self.whole = url_for("log.whole", **by) + "&"
        self._known: set[str] = set()

    def __call__(self, line: Line, marked: str = "") -> Markup:
        """Return one line as HTML; ``marked``: id of the line to highlight."""
        return self.later(line, marked)()

    def later(self, line: Line, marked: str = "") -> Callable[[], Markup]:
        """Return a function that renders the line. Of equal lines in one millisecond, only the
        first gets the id.
        """
        is_first = line.id not in self._known
        self._known.add(line.id)
        return partial(_made, self.page, self.whole, line, line.id == marked, is_first)


@lru_cache(SHARED)
def _made(page: str, whole: str, line: Line, is_marked: bool, is_first: bool) -> Markup:
    level = line.level
    kind = (f" {level}" if level else "") + (" marked" if is_marked else "")
    when = datetime.fromtimestamp(line.at / 1000).astimezone()
    abbr = Markup('<abbr title="{}">{}</abbr>').format(level, level[:1].upper())
    return _LINE.format(
        kind=kind,
        id=Markup(' id="{}"').format(line.id) if is_first else "",
        page=page,
        line=line.id,
        iso=when.isoformat(timespec="milliseconds"),
        day=when.strftime("%Y-%m-%d"),
        time=when.strftime("%H:%M:%S.") + f"{line.at % 1000:03d}",
        mark=abbr if level else "",
        text=line.text,
        more="" if line.is_whole else _more(whole, line),
    )


def _more(whole: str, line: Line) -> Markup:
    again = f", begun anew {line.overwritten:,} times" if line.overwritten else ""
    return _MORE.format(whole=whole, line=line.id, length=line.length, again=again)


def last_lines(account: Account, where: Mapping[str, str], step: Step) -> Markup:
    """Return the last lines of the first instance in the step's newest attempt, each with its
    address.

    Empty if it has no log (yet).
    """
    stream = chosen(streams(account, step), "", "")
    if stream is None:
        return Markup()
    polled(account, stream)
    row = Rows(where, stream)
    found = [row(line) for _, line in tail(account, stream).lines[-FEW:]]
    return Markup('<div class="log few">{}</div>').format(Markup("").join(found))


page = Blueprint("log", __name__)

LATE = timedelta(minutes=2)
"""Time after a step's end in which lines of its job may still arrive."""

FOUND = 200
"""Most lines shown by a search."""

PARTS = ("line", "before", "after", "from", "q")
"""Parameters that ask for another part than the log's end."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The choices in the address."""

    account: Account
    where: dict[str, str]
    step: Step
    streams: list[Stream]
    stream: Stream | None


def _asked(pipeline: str, execution: str, step: str) -> _Asked:
    here = account()
    found = here.step(pipeline, execution, step)
    every = streams(here, found)
    one = chosen(every, request.args.get("host", ""), request.args.get("job", ""))
    where = {"pipeline": pipeline, "execution": execution, "step": step}
    return _Asked(here, where, found, every, one)


def _stamp(pipeline: str, execution: str, step: str) -> Hashable:
    if any(request.args.get(name) for name in PARTS):
        return None
    asked = _asked(pipeline, execution, step)
    ended = asked.step.ended
    if ended is not None and datetime.now(UTC) - ended > LATE:
        return None
    return polled(asked.account, asked.stream) if asked.stream else "no log yet"


@live_pages.page(
    page, "/runs/<pipeline>/<execution>/<step>/log", template="log.html.j2", stamp=_stamp
)
def log(pipeline: str, execution: str, step: str) -> live_pages.Fragments:
    """Show the requested part of the log, and links to other parts."""
    asked, args = _asked(pipeline, execution, step), request.args
    row = Rows(asked.where, asked.stream, args.get("wrap", "")) if asked.stream else None
    values = {
        "asked": asked,
        "labels": labels(asked.streams, tuning_of(asked.step)),
        "row": row,
        "words": args.get("q", ""),
    }
    head = render_template("log/head.html.j2", **values, wrap=args.get("wrap", ""))
    if asked.stream is None or row is None:
        return {"head": head, "about": "", "lines": live_pages.Growing("", ())}
    if args.get("q", "").strip():
        return {"head": head, **_searched(asked.account, asked.stream, row)}
    if any(args.get(name) for name in PARTS):
        return {"head": head, **_part(asked.account, asked.stream, row)}
    polled(asked.account, asked.stream)  # the reading while it was followed may be incomplete
    end = tail(asked.account, asked.stream)
    shown = end.lines
    first = shown[0][1].id if shown and end.has_older else ""
    above = render_template("log/about.html.j2", page=row.page, older=first, newer="", is_end=True)
    numbered = [(n, row.later(line)) for n, line in shown]
    return {"head": head, "about": "", "lines": live_pages.Growing(end.epoch, numbered, above)}


def _part(account: Account, stream: Stream, row: Rows) -> live_pages.Fragments:
    """Show the lines before, after or around another line, or the log's first lines."""
    args = request.args
    marked = args.get("line", "")
    if marked:
        found = log_lines.around(account, stream, marked, KEPT)
    elif args.get("before"):
        found = log_lines.before(account, stream, args["before"], KEPT)
    elif args.get("after"):
        found = log_lines.after(account, stream, args["after"], KEPT)
    else:
        found = log_lines.beginning(account, stream, KEPT)
    older = found.lines[0].id if found.has_older and found.lines else ""
    newer = found.lines[-1].id if found.has_newer and found.lines else ""
    return {
        "about": render_template(
            "log/about.html.j2", page=row.page, older=older, newer=newer, is_end=False
        ),
        "lines": Markup("").join(row(line, marked) for line in found.lines),
    }


def _searched(account: Account, stream: Stream, row: Rows) -> live_pages.Fragments:
    words = request.args["q"].strip()
    found, token = log_lines.search(account, stream, words, FOUND, request.args.get("from", ""))
    values = {"page": row.page, "count": len(found), "words": words, "token": token}
    return {
        "about": render_template("log/found.html.j2", **values),
        "lines": Markup("").join(row(line) for line in found),
    }


@page.get("/runs/<pipeline>/<execution>/<step>/log/whole")
def whole(pipeline: str, execution: str, step: str) -> Response:
    """Return one line or, without ``line``, the whole log as plain text."""
    asked, line = _asked(pipeline, execution, step), request.args.get("line", "")
    stream = asked.stream
    if stream is None:
        abort(404, f"step {step} has no log")
    if line:
        text = log_lines.event(asked.account, stream, line).get("message", "")
        return Response(text, content_type="text/plain; charset=utf-8")

    def every(stream: Stream) -> Iterator[str]:
        for event in log_lines.events(asked.account, stream):
            yield event.get("message", "") + "\n"

    name = re.sub(r"[^\w.-]", "_", f"{step}-{stream.own}.log")
    answer = Response(every(stream), content_type="text/plain; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
