"""An index of all executions of an account, built from the API alone.

Search returns 100 executions per call with their parameters, which the List operations lack. It is
read once, from the newest execution back, in the background; then each look asks for executions
modified since the last one. AWS's Search follows changes with a delay, the List operations do not:
every few seconds they are asked for new executions, and for running ones.
"""

import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from flask import current_app

from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import AWS, Account
from trainyard.language.statuses import ENDED


@dataclass(frozen=True, slots=True)
class Run:
    """An execution of a pipeline. Times are seconds since 1970."""

    pipeline: str
    id: str
    name: str
    """Display name; the id if it has none."""
    status: str
    started: float
    changed: float
    """Time of the last modification; for an ended execution, its end."""
    description: str
    reason: str
    """Reason of a failure."""
    names: tuple[str, ...]
    """Names of the execution's parameters."""
    values: tuple[str, ...]
    """Values of the parameters, one for each of ``names``."""

    @property
    def title(self) -> str:
        """Name that people gave it, or pipeline and time."""
        return run_title(self.pipeline, self.name, self.began, self.id)

    @property
    def key(self) -> str:
        """Key ``pipeline/id``, as in the console's addresses."""
        return f"{self.pipeline}/{self.id}"

    @property
    def is_ended(self) -> bool:
        """True if no part of it runs any more."""
        return self.status in ENDED

    @property
    def began(self) -> datetime:
        """Time of the start."""
        return datetime.fromtimestamp(self.started, UTC)

    @property
    def ended(self) -> datetime | None:
        """Time of the end; None while it runs."""
        return datetime.fromtimestamp(self.changed, UTC) if self.is_ended else None

    def seconds(self, now: float) -> float:
        """Return its duration in seconds, until ``now`` if it still runs."""
        return (self.changed if self.is_ended else now) - self.started

    def parameter(self, name: str) -> str | None:
        """Return the parameter's value; None if the run has no such parameter."""
        return self.values[self.names.index(name)] if name in self.names else None

    def shows_as(self, other: "Run | None") -> bool:
        """Return whether a list shows both alike; frequent modifications of a running one are
        invisible.
        """
        if other is None or (self.is_ended and self.changed != other.changed):
            return False
        return all(
            getattr(self, field) == getattr(other, field)
            for field in self.__slots__
            if field != "changed"
        )


_UNNAMED = re.compile(r"execution-\d{13}")
"""Display name that SageMaker gives where people give none."""


def run_title(pipeline: str, name: str, started: datetime | None, execution: str) -> str:
    """Return the name that people gave a run; else its pipeline and the time of its start."""
    if name and name != execution and not _UNNAMED.fullmatch(name):
        return name
    return f"{pipeline} {started.astimezone():%d %b %H:%M}" if started else execution


def recorded(pipeline: str, found: Mapping[str, Any]) -> Run:
    """Return the run of Search's PipelineExecution, or of DescribePipelineExecution's answer.

    Any member but the ARN may be missing. Texts shared by many runs are stored once.
    """
    id = found["PipelineExecutionArn"].rpartition("/")[2]
    given = found.get("PipelineParameters") or ()
    started = seconds(found.get("CreationTime"))
    return Run(
        pipeline=sys.intern(pipeline),
        id=id,
        name=found.get("PipelineExecutionDisplayName") or id,
        status=sys.intern(found.get("PipelineExecutionStatus") or "Unknown"),
        started=started,
        changed=seconds(found.get("LastModifiedTime")) or started,
        description=sys.intern(found.get("PipelineExecutionDescription") or ""),
        reason=sys.intern(found.get("FailureReason") or ""),
        names=tuple(sys.intern(one["Name"]) for one in given),
        values=tuple(sys.intern(one.get("Value") or "") for one in given),
    )


def seconds(when: datetime | None) -> float:
    """Return seconds since 1970; 0 for None."""
    return when.timestamp() if when else 0.0


log = logging.getLogger(__name__)

RESOURCE = "PipelineExecution"
PAGE = 100
"""Largest page of Search and the List operations (botocore: MaxResults)."""

LATELY = 10
"""Executions on a look's first page: rarely more were modified since the last look."""

LATE = 12
"""Looks by which AWS's Search may lag: executions modified since then are read again."""

AGAIN = 30.0
"""Seconds until a failed reading is repeated."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline, with the members that the list of runs needs."""

    name: str
    arn: str
    last: float
    """Start of its newest execution; 0 if there is none."""


class Index:
    """The runs of one account. Thread-safe; it reads nothing while no page is open."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._runs: dict[str, Run] = {}
        """Runs by ARN."""
        self._pipelines: dict[str, Pipeline] = {}
        """Pipelines by ARN."""
        self._parameters: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._lock = threading.RLock()
        self._filling: threading.Thread | None = None
        self._modified = 0.0
        """Time of the last modification, as of the last look."""

        self.version = 0
        """Number that grows when a list changes."""
        self.is_complete = False
        self.total: int | None = None
        """Number of executions, as reported by Search; None before it is asked."""
        self.trouble = ""
        """Why reading has stopped for now; empty if it has not."""

    def look(self) -> None:
        """Read changes, unless that was done recently.

        Raises:
            ServiceError: AWS refuses, or cannot be reached.
        """
        self._account.lately((self, "pipelines"), self._look_at_pipelines, AWS)
        self._account.lately((self, "runs"), self._look_at_runs)

    @property
    def count(self) -> int:
        """Number of executions read."""
        return len(self._runs)

    def runs(self) -> list[tuple[str, Run]]:
        """Return all runs read so far, with their ARNs, in no order."""
        with self._lock:
            return list(self._runs.items())

    def pipelines(self) -> list[str]:
        """Return the names of all pipelines, sorted."""
        with self._lock:
            return sorted(pipeline.name for pipeline in self._pipelines.values())

    # what is new

    def _look_at_runs(self) -> None:
        with service_errors("listing the runs"):
            if self._filling is None and not self.is_complete:
                self._begin()
            until = self._modified - LATE * self._account.seconds
            is_first = not self._modified
            for page in self._search("LastModifiedTime", LATELY):
                changed = [self._keep(record) for record in page]
                self._modified = max([self._modified, *changed])
                if is_first or not changed or min(changed) < until:
                    return

    def _look_at_pipelines(self) -> None:
        """Look for executions that Search may not know yet. The first time Search will return them
        all.
        """
        with service_errors("listing the pipelines"):
            found = {one.arn: one for one in map(_pipeline, self._listed_pipelines())}
            with self._lock:
                known, self._pipelines = self._pipelines, found
                self._forget(set(known) - set(found))
            running = self._running()
            for arn, pipeline in found.items():
                since = [running[arn]] if arn in running else []
                if known and pipeline.last > (known[arn].last if arn in known else 0.0):
                    since.append(pipeline.last)
                if since:
                    self._look_at_pipeline(pipeline, min(since) - 1)

    def _look_at_pipeline(self, pipeline: Pipeline, since: float) -> None:
        pages = self._account.sagemaker.get_paginator("list_pipeline_executions").paginate(
            PipelineName=pipeline.name, CreatedAfter=since, PaginationConfig={"PageSize": PAGE}
        )
        for page in pages:
            for one in page.get("PipelineExecutionSummaries", ()):
                if not (arn := one.get("PipelineExecutionArn")):
                    continue
                known = self._runs.get(arn)
                if known is None or known.status != one.get("PipelineExecutionStatus"):
                    self._describe(arn, known)

    def _describe(self, arn: str, known: Run | None) -> None:
        sagemaker = self._account.sagemaker
        found = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
        if known is None:
            pages = sagemaker.get_paginator("list_pipeline_parameters_for_execution").paginate(
                PipelineExecutionArn=arn
            )
            given = [one for page in pages for one in page.get("PipelineParameters", ())]
        else:
            given = [
                {"Name": name, "Value": value}
                for name, value in zip(known.names, known.values, strict=True)
            ]
        self._keep(found | {"PipelineExecutionArn": arn, "PipelineParameters": given})

    # all of it

    def _begin(self) -> None:
        """Read the newest executions now, and the others in the background."""
        pages = self._search("CreationTime", PAGE)
        for record in next(pages, []):
            self._keep(record)
        self._filling = threading.Thread(target=self._fill, args=(pages,), daemon=True)
        self._filling.start()

    def _fill(self, pages: Iterator[list[dict[str, Any]]]) -> None:
        pause = self._account.seconds / 20  # leave most of the account's request quota to others
        try:
            with service_errors("reading all runs"):
                for page in pages:
                    for record in page:
                        self._keep(record)
                    if self._account.ended.wait(pause):
                        return
        except ServiceError as error:
            log.warning("%s", error)
            self._tell(str(error))
            self._account.ended.wait(AGAIN)
            self._tell("")
        except Exception:  # the edge of a thread: the page must say why it stops
            log.exception("the runs cannot be read")
            self._tell("A defect of the console; see its log. The other runs are not read.")
            return
        else:
            self.is_complete = True
        self._filling = None
        self.version += 1

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        self.version += 1

    def _search(self, by: str, size: int) -> Iterator[list[dict[str, Any]]]:
        """Iterate over pages of Search's records, from the latest ``by`` back."""
        request = {"Resource": RESOURCE, "SortBy": by, "SortOrder": "Descending"}
        more: dict[str, str] = {}
        while True:
            answer = self._account.sagemaker.search(**request, MaxResults=size, **more)
            self.total = answer.get("TotalHits", {}).get("Value", self.total)
            records = [found.get(RESOURCE, {}) for found in answer.get("Results", ())]
            yield [record for record in records if record.get("PipelineExecutionArn")]
            if not answer.get("NextToken"):
                return
            more = {"NextToken": answer["NextToken"]}

    def _keep(self, record: Mapping[str, Any]) -> float:
        """Store a run, unless a newer state is known; return when it was modified."""
        arn = record["PipelineExecutionArn"]
        pipeline = self._pipelines.get(_pipeline_of(arn))
        run = recorded(pipeline.name if pipeline else _name_of(arn), record)
        with self._lock:
            names = self._parameters.setdefault(run.names, run.names)
            run, known = replace(run, names=names), self._runs.get(arn)
            if known is None or run.changed >= known.changed:
                self._runs[arn] = run
                self.version += not run.shows_as(known)
        return run.changed

    def _forget(self, pipelines: set[str]) -> None:
        """Remove the runs of deleted pipelines."""
        if pipelines:
            kept = {a: run for a, run in self._runs.items() if _pipeline_of(a) not in pipelines}
            self._runs, self.version = kept, self.version + 1

    def _running(self) -> dict[str, float]:
        """Return pipeline's ARN → start of its first execution that still runs."""
        found: dict[str, float] = {}
        for arn, run in self.runs():
            if not run.is_ended:
                pipeline = _pipeline_of(arn)
                found[pipeline] = min(run.started, found.get(pipeline, run.started))
        return found

    def _listed_pipelines(self) -> Iterator[dict[str, Any]]:
        pages = self._account.sagemaker.get_paginator("list_pipelines").paginate(
            PaginationConfig={"PageSize": PAGE}
        )
        for page in pages:
            yield from (one for one in page.get("PipelineSummaries", ()) if one.get("PipelineArn"))


def _pipeline(one: Mapping[str, Any]) -> Pipeline:
    arn = one["PipelineArn"]
    name = one.get("PipelineName") or _name_of(f"{arn}/execution/")
    return Pipeline(name, arn, seconds(one.get("LastExecutionTime")))


def _pipeline_of(arn: str) -> str:
    return arn.rpartition("/execution/")[0]


def _name_of(arn: str) -> str:
    """Return the pipeline's name; in AWS's ARNs it is in lower case."""
    return _pipeline_of(arn).rpartition("/")[2]


def index() -> Index:
    """Return the index of the current request."""
    return cast(Index, current_app.extensions["trainyard-index"])
