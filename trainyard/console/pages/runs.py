"""The page with the executions of all pipelines: the newest first, ``ROWS`` of them per page.

The API lists the executions of one pipeline at a time, without their parameters and end times. So
the page lists the newest executions of the pipelines that ran last, and describes only the
executions that it shows. Search, filters and order apply to these executions only.
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
from trainyard.console import account_cache
from trainyard.console.account_cache import (
    A_DAY,
    Account,
    format_run_title,
    get_account,
    read_concurrently,
)
from trainyard.console.app_hooks import get_application
from trainyard.console.outcomes import Outcome, read_outcome
from trainyard.language.definition_document import END_STATUSES

page = Blueprint("runs", __name__)

STATUSES = ("Executing", "Stopping", *END_STATUSES)

ROWS = 50  # runs on a page
MOST_LISTED = 100  # maximum executions in one response of ListPipelineExecutions
PARAMETER = "p."  # prefix of the names of columns that show a pipeline parameter
COLUMNS = ("status", "metric", "champion", "verdict", "started", "duration", "cost")
"""Columns in addition to the name of the execution and the parameters that differ."""

UNSORTED_COLUMNS = ("metric", "champion", "verdict", "cost")
"""Columns that cannot be sorted: their values are read in the background, after the list."""

MOST = 8  # maximum parameters that are shown as columns
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An execution in the list."""

    pipeline: str
    id: str
    arn: str
    title: str  # name that the user gave it; without one, the pipeline's name and the time
    status: str
    started: datetime | None
    ended: datetime | None
    """Time of the last modification of an ended execution: the API reports no other end time."""
    description: str
    reason: str  # reason of a failure; empty if it has not failed
    parameters: Mapping[str, str]

    @property
    def key(self) -> str:
        """Key ``pipeline/id``, as it appears in the address of a comparison."""
        return f"{self.pipeline}/{self.id}"

    @property
    def seconds(self) -> float:
        """Duration in seconds, until now if the execution has not ended; 0 if it has no start."""
        if self.started is None:
            return 0.0
        return (self.ended.timestamp() if self.ended else time.time()) - self.started.timestamp()

    @property
    def search_text(self) -> str:
        """Text that the search looks in, in lower case."""
        texts = (self.arn, self.pipeline, self.title, self.status, self.description, self.reason)
        parameters = (f"{name}={value}" for name, value in self.parameters.items())
        return "\n".join((*texts, *parameters)).casefold()


@page.get("/runs")
def show_runs() -> Response:
    """Show the executions that the query parameters of the address ask for."""
    aws, args = get_account(), request.args
    before, fault = _parse_time(args.get("before", ""))
    summaries, is_more = list_newest(aws, args.get("pipeline", ""), before)
    run_list = read_concurrently(lambda summary: describe_run(aws, *summary), summaries)
    sort = args.get("sort") or "-started"
    rows = sort_runs(filter_runs(run_list, args.get("q", ""), args.getlist("status")), sort)
    values = {
        "runs": rows,
        "count": len(run_list),
        "older": build_address(before=str(run_list[-1].started or "")) if is_more else "",
        "columns": list_columns(rows),
        "sort": sort,
        "outcomes": {run.arn: _read_outcome_later(aws, run) for run in rows},
        "address": build_address,
    }
    pipelines = sorted(summary["PipelineName"] for summary in aws.list_pipelines())
    form = {"pipelines": pipelines, "statuses": STATUSES, "fault": fault}
    parts = {
        "form": render_template("runs/form.html.j2", **form),
        "progress": render_template("runs/progress.html.j2", **values),
        "runs": render_template("runs/table.html.j2", **values, unsorted=UNSORTED_COLUMNS),
    }
    # The page keeps refreshing itself, because an execution may start at any time.
    return account_cache.make_page_response("runs.html.j2", parts, goes_on=True)


def list_newest(
    aws: Account, pipeline: str, before: datetime | None
) -> tuple[list[tuple[str, Mapping[str, Any]]], bool]:
    """Return the newest executions, and whether there are older ones.

    An execution is returned as (pipeline, its PipelineExecutionSummary).

    Args:
        aws: account to read from.
        pipeline: name of the only pipeline to list; empty for all pipelines.
        before: list only executions that started before this time; None for no limit.
    """
    summaries: list[tuple[str, Mapping[str, Any]]] = []
    pipelines = [
        summary for summary in aws.list_pipelines() if pipeline in ("", summary["PipelineName"])
    ]
    for entry in sorted(
        pipelines, key=lambda entry: entry.get("LastExecutionTime") or NEVER, reverse=True
    ):
        last = entry.get("LastExecutionTime") or NEVER
        # The pipelines are sorted by their last execution: neither this pipeline nor one that
        # follows can have an execution that is newer than those already found.
        if len(summaries) > ROWS and last < _read_start_time(summaries[ROWS]):
            break
        name = entry["PipelineName"]
        summaries += [(name, summary) for summary in _list_executions(aws, name, before)]
        summaries.sort(key=_read_start_time, reverse=True)
    return summaries[:ROWS], len(summaries) > ROWS


def _read_start_time(entry: tuple[str, Mapping[str, Any]]) -> datetime:
    return entry[1].get("StartTime") or NEVER


def _list_executions(aws: Account, pipeline: str, before: datetime | None) -> list[dict[str, Any]]:
    """Return the summaries of a pipeline's newest executions: up to ``MOST_LISTED``.

    That is more than a page shows, so that the caller knows whether there are older ones.
    """
    # A request carries times in whole seconds: ask for one second more, and filter exactly below.
    until: dict[str, Any] = {"CreatedBefore": before + timedelta(seconds=1)} if before else {}

    summaries = aws.call_sagemaker(
        "list_pipeline_executions",
        PipelineName=pipeline,
        SortBy="CreationTime",
        SortOrder="Descending",
        MaxResults=MOST_LISTED,
        **until,
    ).get("PipelineExecutionSummaries", [])
    return [
        summary
        for summary in summaries
        if summary.get("PipelineExecutionArn")
        and (before is None or summary.get("StartTime", NEVER) < before)
    ]


def describe_run(aws: Account, pipeline: str, summary: Mapping[str, Any]) -> Run:
    """Return a listed execution with its end time and parameters, as far as AWS returns them."""
    arn = summary["PipelineExecutionArn"]
    id, status = arn.rpartition("/")[2], summary.get("PipelineExecutionStatus") or "Unknown"
    execution, start_time = aws.open_execution(arn), summary.get("StartTime")
    end_time, parameters = None, {}
    try:
        parameters = aws.read_cached(("parameters", arn), execution.read_parameters, A_DAY)
        if status in END_STATUSES:
            description = aws.read_cached(("ended", arn, status), execution.describe, A_DAY)
            end_time = description.get("LastModifiedTime") or start_time
    except ServiceError:
        # The execution was deleted after it was listed.
        end_time = start_time if status in END_STATUSES else None
    return Run(
        pipeline=pipeline,
        id=id,
        arn=arn,
        title=format_run_title(
            pipeline, summary.get("PipelineExecutionDisplayName", ""), start_time, id
        ),
        status=status,
        started=start_time,
        ended=end_time,
        description=summary.get("PipelineExecutionDescription", ""),
        reason=summary.get("PipelineExecutionFailureReason", ""),
        parameters=parameters,
    )


def _read_outcome_later(aws: Account, run: Run) -> Outcome:
    """Return the outcome of an ended execution, read in the background; empty until it is known."""
    if run.ended is None:
        return Outcome()
    read = partial(read_outcome, aws, run.pipeline, run.id, get_application().judge)
    return aws.read_in_background(("outcome", run.arn, run.status, run.ended), read, Outcome())


def build_address(**changes: str) -> str:
    """Return the page's address with ``changes`` to its query; empty parameters are left out."""
    args = request.args.to_dict(flat=False) | {name: [value] for name, value in changes.items()}
    query = {name: texts for name, values in args.items() if (texts := [*filter(None, values)])}
    return f"{url_for('runs.show_runs')}?{urlencode(query, doseq=True)}"


def _parse_time(text: str) -> tuple[datetime | None, str]:
    """Return (time that ``text`` contains or None, message about what is wrong with it or "")."""
    try:
        return datetime.fromisoformat(text).astimezone() if text else None, ""
    except (ValueError, OverflowError):
        return None, f"before={text} is not a time such as 2026-11-22T09:30"


def filter_runs(run_list: Sequence[Run], words: str, statuses: Sequence[str]) -> list[Run]:
    """Return the runs that contain all the words, and have one of ``statuses`` if any is given."""
    terms = words.casefold().split()
    return [
        run
        for run in run_list
        if (not statuses or run.status in statuses)
        and all(word in run.search_text for word in terms)
    ]


def list_columns(run_list: Sequence[Run]) -> list[str]:
    """Return the names of the table's columns.

    They are ``COLUMNS``, the pipeline if there are several, and the parameters whose values
    differ between the runs, or all parameters if none differs; at most ``MOST`` parameters.
    """
    values: dict[str, set[str]] = {}
    for run in run_list:
        for name, value in run.parameters.items():
            values.setdefault(name, set()).add(value)
    differing = [name for name, some in values.items() if len(some) > 1] or [*values]
    several = ["pipeline"] * (len({run.pipeline for run in run_list}) > 1)
    return [*COLUMNS, *several, *(f"{PARAMETER}{name}" for name in differing[:MOST])]


def sort_runs(run_list: Sequence[Run], by: str) -> list[Run]:
    """Return the runs sorted by the column ``by``; a leading hyphen sorts the highest first.

    Runs without a value in that column come last in both directions.
    """
    column, descending = by.removeprefix("-"), by.startswith("-")
    keys = {run.arn: _make_sort_key(run, column) for run in run_list}
    having = [run for run in run_list if keys[run.arn] is not None]
    having.sort(key=lambda run: keys[run.arn], reverse=descending)
    return having + [run for run in run_list if keys[run.arn] is None]


def _make_sort_key(run: Run, column: str) -> Any:
    """Return the sort key of a run in a column; None if it has no value. Numbers precede texts."""
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
