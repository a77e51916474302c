"""Lines of a log as HTML: their time, which links to them, and their text."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from flask import url_for
from markupsafe import Markup

from trainyard.console.account_cache import Account
from trainyard.console.logs.log_lines import Line
from trainyard.console.logs.log_streams import Stream, chosen, streams
from trainyard.console.logs.log_tail import polled, tail
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
