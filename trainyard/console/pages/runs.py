"""The executions of all pipelines, the newest first, a page at a time.

The API lists the executions of one pipeline, without their parameters and ends. So a page asks the
pipelines that ran last for their newest executions, and describes the ones that it shows. Search,
filters and order apply to these.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, render_template, request, url_for

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import A_DAY, Account, account, each, run_title
from trainyard.console.app_hooks import application
from trainyard.console.outcomes import Outcome, outcome
from trainyard.language.statuses import ENDED

page = Blueprint("runs", __name__)

STATUSES = ("Executing", "Stopping", *ENDED)

ROWS = 50  # runs on a page
MOST_LISTED = 100  # most executions in one answer of ListPipelineExecutions
PARAMETER = "p."  # prefix of columns that are parameters
COLUMNS = ("status", "metric", "champion", "verdict", "started", "duration", "cost")
"""Columns beside the run's name and the parameters that differ."""

UNSORTED = ("metric", "champion", "verdict", "cost")
"""Columns that are known a moment later than the runs."""

MOST = 8  # most parameters shown
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An execution in the list."""

    pipeline: str
    id: str
    arn: str
    title: str  # name that people gave it, or pipeline and time
    status: str
    started: datetime | None
    ended: datetime | None
    """Time of the last modification of an ended execution: the API has no other end."""
    description: str
    reason: str  # reason of a failure
    parameters: Mapping[str, str]

    @property
    def key(self) -> str:
        """Key ``pipeline/id``, as in the address of a comparison."""
        return f"{self.pipeline}/{self.id}"

    @property
    def seconds(self) -> float:
        """Duration, until now if it still runs."""
        if self.started is None:
            return 0.0
        return (self.ended.timestamp() if self.ended else time.time()) - self.started.timestamp()

    @property
    def text(self) -> str:
        """Text in which it is searched, in lower case."""
        found = (self.arn, self.pipeline, self.title, self.status, self.description, self.reason)
        given = (f"{name}={value}" for name, value in self.parameters.items())
        return "\n".join((*found, *given)).casefold()


@page.get("/runs")
def runs() -> Response:
    """Show the runs that the address asks for."""
    here, args = account(), request.args
    before, fault = _moment(args.get("before", ""))
    listed, is_more = newest(here, args.get("pipeline", ""), before)
    found = each(lambda one: described(here, *one), listed)
    sort = args.get("sort") or "-started"
    shown = ordered(chosen(found, args.get("q", ""), args.getlist("status")), sort)
    values = {
        "runs": shown,
        "count": len(found),
        "older": address(before=str(found[-1].started or "")) if is_more else "",
        "columns": columns(shown),
        "sort": sort,
        "outcomes": {run.arn: _outcome(here, run) for run in shown},
        "address": address,
    }
    pipelines = sorted(one["PipelineName"] for one in here.pipelines())
    form = {"pipelines": pipelines, "statuses": STATUSES, "fault": fault}
    parts = {
        "form": render_template("runs/form.html.j2", **form),
        "progress": render_template("runs/progress.html.j2", **values),
        "runs": render_template("runs/table.html.j2", **values, unsorted=UNSORTED),
    }
    return live_pages.answer("runs.html.j2", parts, goes_on=True)


def newest(
    here: Account, pipeline: str, before: datetime | None
) -> tuple[list[tuple[str, Mapping[str, Any]]], bool]:
    """Return (pipeline, its PipelineExecutionSummary) of the newest executions that began
    ``before``, and whether there are older ones.

    ``pipeline``: only of this one; empty for all.
    """
    found: list[tuple[str, Mapping[str, Any]]] = []
    asked = [one for one in here.pipelines() if pipeline in ("", one["PipelineName"])]
    for one in sorted(asked, key=lambda one: one.get("LastExecutionTime") or NEVER, reverse=True):
        last = one.get("LastExecutionTime") or NEVER
        if len(found) > ROWS and last < _began(found[ROWS]):
            break  # neither it nor the following have one of the newest
        name = one["PipelineName"]
        found += [(name, summary) for summary in _listed(here, name, before)]
        found.sort(key=_began, reverse=True)
    return found[:ROWS], len(found) > ROWS


def _began(one: tuple[str, Mapping[str, Any]]) -> datetime:
    return one[1].get("StartTime") or NEVER


def _listed(here: Account, pipeline: str, before: datetime | None) -> list[dict[str, Any]]:
    """Return summaries of a pipeline's newest executions, more than a page's if there are."""
    # In a request a time has whole seconds: ask for a second more, and leave that out.
    until: dict[str, Any] = {"CreatedBefore": before + timedelta(seconds=1)} if before else {}

    found = here.ask(
        "list_pipeline_executions",
        PipelineName=pipeline,
        SortBy="CreationTime",
        SortOrder="Descending",
        MaxResults=MOST_LISTED,
        **until,
    ).get("PipelineExecutionSummaries", [])
    return [
        one
        for one in found
        if one.get("PipelineExecutionArn")
        and (before is None or one.get("StartTime", NEVER) < before)
    ]


def described(here: Account, pipeline: str, listed: Mapping[str, Any]) -> Run:
    """Return a listed execution with its end and its parameters, as far as AWS returns them."""
    arn = listed["PipelineExecutionArn"]
    id, status = arn.rpartition("/")[2], listed.get("PipelineExecutionStatus") or "Unknown"
    one, started = here.execution_of(arn), listed.get("StartTime")
    ended, parameters = None, {}
    try:
        parameters = here.lately(("parameters", arn), one.parameters, A_DAY)
        if status in ENDED:
            known = here.lately(("ended", arn, status), one.describe, A_DAY)
            ended = known.get("LastModifiedTime") or started
    except ServiceError:  # it was deleted meanwhile
        ended = started if status in ENDED else None
    return Run(
        pipeline=pipeline,
        id=id,
        arn=arn,
        title=run_title(pipeline, listed.get("PipelineExecutionDisplayName", ""), started, id),
        status=status,
        started=started,
        ended=ended,
        description=listed.get("PipelineExecutionDescription", ""),
        reason=listed.get("PipelineExecutionFailureReason", ""),
        parameters=parameters,
    )


def _outcome(here: Account, run: Run) -> Outcome:
    """Return what is known of a run's outcome; that of an ended run is read in the background."""
    if run.ended is None:
        return Outcome()
    read = partial(outcome, here, run.pipeline, run.id, application().judge)
    return here.later(("outcome", run.arn, run.status, run.ended), read, Outcome())


def address(**changes: str) -> str:
    """Return the page's address with other arguments; empty ones are left out."""
    args = request.args.to_dict(flat=False) | {name: [value] for name, value in changes.items()}
    given = {name: filled for name, values in args.items() if (filled := [*filter(None, values)])}
    return f"{url_for('runs.runs')}?{urlencode(given, doseq=True)}"


def _moment(text: str) -> tuple[datetime | None, str]:
    """Return the time in an address, and what is wrong with it."""
    try:
        return datetime.fromisoformat(text).astimezone() if text else None, ""
    except (ValueError, OverflowError):
        return None, f"before={text} is not a time such as 2026-11-22T09:30"


def chosen(found: Sequence[Run], words: str, statuses: Sequence[str]) -> list[Run]:
    """Return the runs that have all the words, and one of the statuses, if any is given."""
    wanted = words.casefold().split()
    return [
        run
        for run in found
        if (not statuses or run.status in statuses) and all(word in run.text for word in wanted)
    ]


def columns(found: Sequence[Run]) -> list[str]:
    """Return the usual columns, the pipeline if there are several, and the parameters that differ,
    or all if none does.
    """
    values: dict[str, set[str]] = {}
    for run in found:
        for name, value in run.parameters.items():
            values.setdefault(name, set()).add(value)
    differing = [name for name, some in values.items() if len(some) > 1] or [*values]
    several = ["pipeline"] * (len({run.pipeline for run in found}) > 1)
    return [*COLUMNS, *several, *(f"{PARAMETER}{name}" for name in differing[:MOST])]


def ordered(found: Sequence[Run], by: str) -> list[Run]:
    """Return the runs by a column; with a leading hyphen, the highest first. Those without a value
    come last, in either direction.
    """
    column, descending = by.removeprefix("-"), by.startswith("-")
    keys = {run.arn: _value(run, column) for run in found}
    having = [run for run in found if keys[run.arn] is not None]
    having.sort(key=lambda run: keys[run.arn], reverse=descending)
    return having + [run for run in found if keys[run.arn] is None]


def _value(run: Run, column: str) -> Any:
    """Return a column's sort key; numbers come before texts."""
    if column.startswith(PARAMETER):
        value = run.parameters.get(column.removeprefix(PARAMETER))
        if value is None:
            return None
        try:
            return False, float(value), ""
        except ValueError:
            return True, 0.0, value.casefold()
    return {
        "duration": run.seconds,
        "pipeline": run.pipeline.casefold(),
        "name": run.title.casefold(),
        "status": run.status,
    }.get(column, run.started)
