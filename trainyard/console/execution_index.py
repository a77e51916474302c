"""An index of all executions of an account, by the API alone.

Search brings 100 executions a call with their parameters, which the List operations lack. It is
read once, from the newest execution back, in the background; then each look asks for what was
modified since the last one. Search of AWS follows a change with a delay, and the List operations do
not: every few seconds they are asked for what was started, and for what runs.
"""

import logging
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
    """Its display name; its id where it has none."""
    status: str
    started: float
    changed: float
    """When it was last modified: of what has ended, its end."""
    description: str
    reason: str
    """Why the execution failed."""
    names: tuple[str, ...]
    """The names of the execution's parameters."""
    values: tuple[str, ...]
    """The parameters' values, one for each of ``names``."""

    @property
    def key(self) -> str:
        """``pipeline/id``, as the console's addresses name it."""
        return f"{self.pipeline}/{self.id}"

    @property
    def is_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.status in ENDED

    @property
    def began(self) -> datetime:
        """When it was started."""
        return datetime.fromtimestamp(self.started, UTC)

    @property
    def ended(self) -> datetime | None:
        """When it ended; None while it runs."""
        return datetime.fromtimestamp(self.changed, UTC) if self.is_ended else None

    def seconds(self, now: float) -> float:
        """How long it took, or has taken until ``now``."""
        return (self.changed if self.is_ended else now) - self.started

    def parameter(self, name: str) -> str | None:
        """The parameter's value; None where the run has none of that name."""
        return self.values[self.names.index(name)] if name in self.names else None

    def shows_as(self, other: "Run | None") -> bool:
        """Whether a list shows both alike: what runs is modified often, and nobody sees it."""
        if other is None or (self.is_ended and self.changed != other.changed):
            return False
        return all(
            getattr(self, field) == getattr(other, field)
            for field in self.__slots__
            if field != "changed"
        )


def recorded(pipeline: str, found: Mapping[str, Any]) -> Run:
    """A run of Search's PipelineExecution, or of DescribePipelineExecution's answer.

    Any member but the ARN may be absent. Texts that many runs share are kept once.
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
    """Seconds since 1970; 0 for None."""
    return when.timestamp() if when else 0.0


log = logging.getLogger(__name__)

RESOURCE = "PipelineExecution"
PAGE = 100
"""The most that Search and the List operations answer at once (botocore: MaxResults)."""

LATELY = 10
"""Executions of a look's first page: seldom were more modified since the last look."""

LATE = 12
"""Looks for which Search of AWS may lag behind: what was modified since then is read again."""

AGAIN = 30.0
"""Seconds until what could not be read is tried again."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What the list of runs needs of a pipeline."""

    name: str
    arn: str
    last: float
    """When its newest execution was started; 0 where there is none."""


class Index:
    """All runs of one account. Any thread may ask; while nobody looks nothing is read."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._runs: dict[str, Run] = {}
        """By ARN."""
        self._pipelines: dict[str, Pipeline] = {}
        """By ARN."""
        self._parameters: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._lock = threading.RLock()
        self._filling: threading.Thread | None = None
        self._modified = 0.0
        """When what was modified last was, as of the last look."""

        self.version = 0
        """Grows when what a list shows has changed."""
        self.is_complete = False
        self.total: int | None = None
        """How many there are, as far as Search said; None before it is asked."""
        self.trouble = ""
        """Why reading does not go on for now."""

    def look(self) -> None:
        """Read what is new, unless that was done lately.

        Raises:
            ServiceError: AWS refuses, or cannot be reached.
        """
        self._account.lately((self, "pipelines"), self._look_at_pipelines, AWS)
        self._account.lately((self, "runs"), self._look_at_runs)

    @property
    def count(self) -> int:
        """How many have been read."""
        return len(self._runs)

    def runs(self) -> list[tuple[str, Run]]:
        """All that have been read, with their ARNs, in no order."""
        with self._lock:
            return list(self._runs.items())

    def pipelines(self) -> list[str]:
        """Names of all pipelines, sorted."""
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
        """What Search may not know yet. The first time all is new, and Search will bring it."""
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
        """Read the newest now, and the others in the background."""
        pages = self._search("CreationTime", PAGE)
        for record in next(pages, []):
            self._keep(record)
        self._filling = threading.Thread(target=self._fill, args=(pages,), daemon=True)
        self._filling.start()

    def _fill(self, pages: Iterator[list[dict[str, Any]]]) -> None:
        pause = self._account.seconds / 20  # of what AWS lets an account ask, most is others'
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
        except Exception:  # the edge of a thread: the page has to say why it goes no further
            log.exception("the runs cannot be read")
            self._tell("A defect of the console: its log says which. The other runs are not read.")
            return
        else:
            self.is_complete = True
        self._filling = None
        self.version += 1

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        self.version += 1

    def _search(self, by: str, size: int) -> Iterator[list[dict[str, Any]]]:
        """Pages of Search's records, from the latest ``by`` back."""
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
        """Remember a run, unless what is known of it is newer; when it was modified."""
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
        """The runs of pipelines that were deleted."""
        if pipelines:
            kept = {a: run for a, run in self._runs.items() if _pipeline_of(a) not in pipelines}
            self._runs, self.version = kept, self.version + 1

    def _running(self) -> dict[str, float]:
        """Pipeline's ARN → when the first of its executions that still run was started."""
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
    """The pipeline's name; AWS writes it in lower case here."""
    return _pipeline_of(arn).rpartition("/")[2]


def index() -> Index:
    """The index of the request that is being answered."""
    return cast(Index, current_app.extensions["trainyard-index"])
