"""The log of a step: the page, and its lines as HTML."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, Response, abort, jsonify, render_template, request, url_for
from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console import account_cache, log_lines
from trainyard.console.account_cache import Account, Fragments, get_account
from trainyard.console.log_lines import (
    CUT,
    LINE_LIMIT,
    Line,
    Stream,
    choose_stream,
    label_streams,
    list_step_streams,
)
from trainyard.runs.execution import Step

FEW = 12  # number of log lines on the page of a step
_LINE = Markup(
    '<div class="l{kind}"{id}><a href="{page}line={line}#{line}"><time datetime="{iso}">'
    '<span class="day">{day} </span>{time}</time></a> <span class="said">{text}{more}'
    "</span></div>"
)
_MORE = Markup(' <a class="more" href="{whole}line={line}">whole line, {length:,} characters</a>')


class Rows:
    """Renders lines of one stream's page.

    ``address`` has the pipeline, the execution and the step.
    """

    def __init__(self, address: Mapping[str, str], stream: Stream) -> None:
        by: dict[str, Any] = {**address, "job": stream.job, "host": stream.suffix}
        self.page = url_for("log.show_log", **by) + "&"
        """Address of the stream's page, to which arguments such as ``line=…`` are appended."""
        self.whole = url_for("log.send_whole_log", **by) + "&"
        self.more = url_for("log.send_new_lines", **by) + "&token="
        self._line_ids: set[str] = set()

    def render_lines(self, lines: Iterable[Line], marked_id: str = "") -> Markup:
        """Return the lines as HTML, with the line ``marked_id`` highlighted."""
        return Markup("").join(self._render_line(line, marked_id) for line in lines)

    def _render_line(self, line: Line, marked_id: str) -> Markup:
        """Return one line. Of equal lines in the same millisecond, only the first gets the id."""
        is_first = line.id not in self._line_ids
        self._line_ids.add(line.id)
        when = datetime.fromtimestamp(line.timestamp / 1000).astimezone()
        more = _MORE.format(whole=self.whole, line=line.id, length=line.length)
        return _LINE.format(
            kind=" marked" * (line.id == marked_id),
            id=Markup(' id="{}"').format(line.id) if is_first else "",
            page=self.page,
            line=line.id,
            iso=when.isoformat(timespec="milliseconds"),
            day=when.strftime("%Y-%m-%d"),
            time=when.strftime("%H:%M:%S.") + f"{line.timestamp % 1000:03d}",
            text=line.text,
            more="" if line.length <= CUT else more,
        )


def render_last_lines(account: Account, address: Mapping[str, str], step: Step) -> Markup:
    """Return the last lines of the first instance in the step's newest attempt, with links.

    Return an empty text if there is no log (yet).
    """
    stream = choose_stream(list_step_streams(account, step), "", "")
    if stream is None:
        return Markup()
    key = ("last lines", stream.group, stream.name)
    page = account.read_cached(key, lambda: log_lines.read_end(account, stream, FEW))
    lines = Rows(address, stream).render_lines(page.lines)
    return Markup('<div class="log few">{}</div>').format(lines)


page = Blueprint("log", __name__)

LATE = timedelta(minutes=2)  # time after a step's end in which lines of its job may still arrive
PARTS = ("line", "before", "after", "from")
"""Parameters that ask for a part other than the log's end."""


@dataclass(frozen=True, slots=True)
class _LogRequest:
    """The log, step and stream that the address asks for."""

    account: Account
    where: dict[str, str]
    step: Step
    streams: list[Stream]
    stream: Stream | None


def _read_request(pipeline: str, execution: str, step: str) -> _LogRequest:
    """Return what the address asks for. Raises ServiceError if there is no such step or log."""
    aws = get_account()
    steps = {entry.name: entry for entry in aws.read_snapshot(pipeline, execution).steps}
    if (run_step := steps.get(step)) is None:
        raise ServiceError(f"step {step} of {pipeline}/{execution} has not begun, or is missing")
    every = list_step_streams(aws, run_step)
    log_stream = choose_stream(every, request.args.get("host", ""), request.args.get("job", ""))
    address = {"pipeline": pipeline, "execution": execution, "step": step}
    return _LogRequest(aws, address, run_step, every, log_stream)


def _can_grow(step: Step) -> bool:
    """Return whether lines may still be added to the step's log."""
    return step.ended is None or datetime.now(UTC) - step.ended < LATE


@page.get("/runs/<pipeline>/<execution>/<step>/log")
def show_log(pipeline: str, execution: str, step: str) -> Response:
    """Show the requested part of the log, and links to other parts."""
    log_request, args = _read_request(pipeline, execution, step), request.args
    is_end = not any(args.get(name) for name in PARTS)
    row = Rows(log_request.where, log_request.stream) if log_request.stream else None
    head = render_template(
        "log/head.html.j2", asked=log_request, labels=label_streams(log_request.streams), row=row
    )
    parts: Fragments = {"about": "", "lines": ""}
    if log_request.stream and row:
        parts = _render_part(log_request.account, log_request.stream, row, is_end)
    return account_cache.make_page_response(
        "log.html.j2",
        {"head": head, **parts},
        goes_on=is_end and _can_grow(log_request.step),
        is_end=is_end,
        step=step,
    )


@page.get("/runs/<pipeline>/<execution>/<step>/log/more")
def send_new_lines(pipeline: str, execution: str, step: str) -> Response:
    """Return the lines after ``token``, the token to continue with, and the step's status."""
    log_request = _read_request(pipeline, execution, step)
    if log_request.stream is None:
        abort(404, f"step {step} has no log")
    lines, token = log_lines.read_newer(
        log_request.account, log_request.stream, request.args.get("token", "")
    )
    html = Rows(log_request.where, log_request.stream).render_lines(lines)
    status, goes_on = log_request.step.status, _can_grow(log_request.step)
    return jsonify({"html": html, "token": token, "status": status, "goes_on": goes_on})


def _render_part(account: Account, stream: Stream, row: Rows, is_end: bool) -> Fragments:
    """Render the log's end or beginning, or the lines before, after or around a given line."""
    args = request.args
    marked_id = args.get("line", "")
    if marked_id:
        page = log_lines.read_around(account, stream, marked_id, LINE_LIMIT)
    elif args.get("before"):
        page = log_lines.read_before(account, stream, args["before"], LINE_LIMIT)
    elif args.get("after"):
        page = log_lines.read_after(account, stream, args["after"], LINE_LIMIT)
    else:
        page = (log_lines.read_end if is_end else log_lines.read_beginning)(
            account, stream, LINE_LIMIT
        )
    about = render_template(
        "log/about.html.j2",
        page=row.page,
        older=page.lines[0].id if page.has_older and page.lines else "",
        newer=page.lines[-1].id if page.has_newer and page.lines else "",
        is_end=is_end,
    )
    lines = row.render_lines(page.lines, marked_id)
    if not is_end:
        return {"about": about, "lines": lines}
    growing = Markup('{}<div data-more="{}" data-token="{}">{}</div>')
    return {"about": "", "lines": growing.format(Markup(about), row.more, page.token, lines)}


@page.get("/runs/<pipeline>/<execution>/<step>/log/whole")
def send_whole_log(pipeline: str, execution: str, step: str) -> Response:
    """Return the whole line ``line`` or, without it, the whole log, as plain text."""
    log_request, line = _read_request(pipeline, execution, step), request.args.get("line", "")
    stream = log_request.stream
    if stream is None:
        abort(404, f"step {step} has no log")
    if line:
        text = log_lines.find_event(log_request.account, stream, line).get("message", "")
        return Response(text, content_type="text/plain; charset=utf-8")

    def iter_messages(stream: Stream) -> Iterator[str]:
        for event in log_lines.iter_events(log_request.account, stream, None, startFromHead=True):
            yield event.get("message", "") + "\n"

    name = re.sub(r"[^\w.-]", "_", f"{step}-{stream.suffix}.log")
    answer = Response(iter_messages(stream), content_type="text/plain; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
