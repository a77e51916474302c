"""The AWS account that the console shows, with a cache of recent responses.

Many pages need the same data at the same time. A response is reused for ``seconds``. If several
requests need it, only the first one reads it.
"""

import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from botocore import xform_name
from flask import Response, current_app, g, make_response, render_template, request
from markupsafe import Markup

from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import ServiceError
from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution, Step, describe_tuning_job

Item = TypeVar("Item")
Result = TypeVar("Result")

CACHE_SIZE = 4_096  # maximum number of cached responses; the least recently used is dropped first

EMULATOR, AWS = 0.5, 5.0
"""Seconds for which a response is reused. AWS throttles clients that keep calling it more often."""

SERVICES = ("sagemaker", "logs", "s3", "cloudwatch", "sts")
THREADS = 8  # maximum number of concurrent reads, in the background or for one page
A_DAY = 86_400.0  # seconds for which a response that never changes is reused
# Not A_DAY as for other things that have ended, because an ended execution may be retried.
SETTLED_SECONDS = 5.0  # seconds for which the response about an ended execution is reused
_DEFAULT_NAME = re.compile(r"execution-\d{13}")
"""Display name that SageMaker gives an execution if the user gives none."""


def format_run_title(pipeline: str, name: str, start_time: datetime | None, execution: str) -> str:
    """Return the name that the user gave the execution, or its pipeline and start time."""
    if name and name != execution and not _DEFAULT_NAME.fullmatch(name):
        return name
    return f"{pipeline} {start_time.astimezone():%d %b %H:%M}" if start_time else execution


@dataclass(frozen=True)
class Snapshot:
    """An execution's state at one time."""

    described: dict[str, Any]  # response of DescribePipelineExecution
    steps: tuple[Step, ...]

    @property
    def status(self) -> str:
        """Return the status of the execution, such as ``Executing``."""
        return str(self.described.get("PipelineExecutionStatus", "Unknown"))

    @property
    def is_ended(self) -> bool:
        """Return whether the execution has ended."""
        return self.status in END_STATUSES

    def format_title(self, pipeline: str, execution: str) -> str:
        """Return the name that the user gave the execution, or its pipeline and time."""
        name = self.described.get("PipelineExecutionDisplayName", "")
        return format_run_title(pipeline, name, self.described.get("CreationTime"), execution)


class _Answer:
    """A cached response, or one that is being read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: Any = None
        self.until = 0.0


class Account:
    """Clients of one account and region, and their recent responses. Thread-safe.

    ``may_write``: whether pages offer actions that change something. ``patient``: whether pages
    wait for slow reads; otherwise they show the data later.
    """

    def __init__(
        self, region: str | None = None, *, may_write: bool = False, patient: bool = False
    ) -> None:
        self.region, self.may_write = region, may_write
        self._patient = patient
        self._readings: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, "reading")
        self.is_emulator = bool(os.environ.get("AWS_ENDPOINT_URL"))
        self.seconds = EMULATOR if self.is_emulator else AWS
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._lock = threading.Lock()

    def __getattr__(self, service: str) -> Any:
        """Return the client of one of ``SERVICES``. It is created at the first use."""
        if service not in SERVICES:
            raise AttributeError(service)
        # Python calls this only for attributes that do not exist yet. setdefault keeps the client
        # of the first thread.
        with self._lock:
            service_client = self.__dict__.setdefault(service, create_client(service, self.region))
        return service_client

    def connect(self) -> None:
        """Create all clients for the current environment. Later changes to it have no effect."""
        for service in SERVICES:
            getattr(self, service)

    @property
    def caller(self) -> str:
        """Return the ARN of the user or role whose credentials the console uses."""

        def read() -> str:
            with service_errors("asking who the caller is"):
                return str(self.sts.get_caller_identity().get("Arn", "unknown"))

        return self.read_cached("caller", read, 60)

    def read_cached(
        self,
        key: Hashable,
        read: Callable[[], Result],
        seconds: float | Callable[[Result], float] | None = None,
    ) -> Result:
        """Return the cached result of ``read`` for ``key``; call ``read`` if it is too old.

        ``seconds`` is the time for which a result is reused, or a function that returns it for a
        result.
        """
        with self._lock:
            answer = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > CACHE_SIZE:
                self._answers.popitem(last=False)
        # The lock of this response, not the account's, so that a slow read blocks only those who
        # need it.
        with answer.lock:
            if time.monotonic() >= answer.until:
                answer.value = read()
                lifetime = seconds(answer.value) if callable(seconds) else seconds
                answer.until = time.monotonic() + (self.seconds if lifetime is None else lifetime)
            return cast(Result, answer.value)

    def read_in_background(
        self, key: Hashable, read: Callable[[], Result], instead: Result
    ) -> Result:
        """Call ``read`` once for ``key``, in the background, and return its result.

        Until the result is known, return ``instead``, and make the browser ask for the page again.
        """
        with self._lock:
            if key not in self._readings:
                self._readings[key] = self._threads.submit(read)
            self._readings.move_to_end(key)
            while len(self._readings) > CACHE_SIZE:
                self._readings.popitem(last=False)
            future = self._readings[key]
        # Outside of the lock, because a patient page waits here for the result.
        if self._patient or future.done():
            return cast(Result, future.result())
        mark_unfinished()
        return instead

    def close(self) -> None:
        """Cancel the background reads that have not started. Further ones will fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def clear_cache(self) -> None:
        """Clear the cache. To be called after something was changed."""
        with self._lock:
            self._answers.clear()

    def find_execution_arn(self, pipeline: str, execution: str) -> str:
        """Return the ARN of the execution with that id."""
        description = self.call_sagemaker("describe_pipeline", PipelineName=pipeline)
        if not (arn := description.get("PipelineArn")):
            raise ServiceError(f"the service does not return the ARN of pipeline {pipeline}")
        return f"{arn}/execution/{execution}"

    def call_sagemaker(
        self, operation: str, seconds: float | Callable[[Any], float] | None = None, **request: Any
    ) -> dict[str, Any]:
        """Return SageMaker's response to a Describe or List operation, from the cache if recent."""

        def read() -> dict[str, Any]:
            with service_errors(_format_operation(operation, request)):
                answer: dict[str, Any] = getattr(self.sagemaker, operation)(**request)
            return {key: value for key, value in answer.items() if key != "ResponseMetadata"}

        return self.read_cached((operation, *request.items()), read, seconds)

    def list_all(self, operation: str, member: str, **request: Any) -> list[dict[str, Any]]:
        """Return the items of all pages of a List operation: the response's field ``member``."""

        def read() -> list[dict[str, Any]]:
            with service_errors(_format_operation(operation, request)):
                pages = self.sagemaker.get_paginator(operation).paginate(**request)
                return [item for page in pages for item in page.get(member) or ()]

        return self.read_cached((operation, *request.items()), read)

    def list_pipelines(self) -> list[dict[str, Any]]:
        """Return the PipelineSummaries of all pipelines."""
        summaries = self.list_all("list_pipelines", "PipelineSummaries")
        return [summary for summary in summaries if summary.get("PipelineName")]

    def find_execution(self, pipeline: str, execution: str) -> Execution:
        """Return the execution with that id, for data that is not in its snapshot."""
        return self.read_cached(
            ("execution", pipeline, execution),
            lambda: self.open_execution(self.find_execution_arn(pipeline, execution)),
            3_600,
        )

    def open_execution(self, arn: str) -> Execution:
        """Return the execution with that ARN. It uses this account's clients."""
        return Execution(arn, self.region, lambda service, region: getattr(self, service))

    def read_snapshot(self, pipeline: str, execution: str) -> Snapshot:
        """Return the execution's state. It is at most ``self.seconds`` old while it runs."""
        run = self.find_execution(pipeline, execution)
        return self.read_cached(
            ("snapshot", run.arn),
            lambda: Snapshot(run.describe(), tuple(run.list_steps())),
            lambda snapshot: (
                max(SETTLED_SECONDS, self.seconds) if snapshot.is_ended else self.seconds
            ),
        )

    def read_job(self, step: Step) -> dict[str, Any]:
        """Return the response of Describe…Job for the step's job, or {} if it has no job."""
        if step.job is None:
            return {}
        kind, name = step.job
        # The description of a job that has ended never changes, because a retry starts another job.
        is_over = step.ended is not None
        lifetime = A_DAY if is_over else 2 * self.seconds
        return self.call_sagemaker(
            f"describe_{xform_name(kind)}", lifetime, **{f"{kind}Name": name}
        )

    def describe_charged(self, step: Step) -> dict[str, Any]:
        """Return the description of what the step is charged for.

        That is its job, or its tuning job with all training jobs; {} if it has neither.
        """
        if (name := step.tuning_job) is None:
            return self.read_job(step)
        lifetime = 2 * self.seconds if step.ended is None else A_DAY
        return self.read_cached(
            ("search", name, step.ended),
            lambda: describe_tuning_job(self.sagemaker, name),
            lifetime,
        )


def get_account() -> Account:
    """Return the account of the current request."""
    return cast(Account, current_app.extensions["trainyard-account"])


def _format_operation(operation: str, request: Mapping[str, Any]) -> str:
    """Return an operation as words for a message, such as ``describe pipeline churn``."""
    return " ".join([*operation.split("_"), *map(str, request.values())])


def read_concurrently(read: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call ``read`` for each item, several at a time; return the results in order."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(read, items))


def mark_unfinished() -> None:
    """Mark the current page as unfinished, so that the browser soon requests it again."""
    g.unfinished = True


# Pages consist of named fragments of HTML.
#
# While something is running, the browser asks for the page again every few seconds, and sends the
# version that it has. The response is 304, or the page, of which the script replaces the changed
# fragments.

Fragments = Mapping[str, str]  # id of an element to the HTML inside it
EVERY = 2.0  # minimum seconds between two requests of a browser for one page
_COUNTER = re.compile(r"<span data-(?:paid-)?since=[^>]*>[^<]*")
"""Text that the browser counts up. It differs at each read although nothing has changed."""


def make_page_response(
    template: str, fragments: Fragments, *, goes_on: bool, **values: Any
) -> Response:
    """Return the page, or status 304 if the browser has this version of it.

    The template extends ``page.html.j2``. It has ``{{ live("id") }}`` for each fragment, or ``{{
    still("id") }}`` for one that must not be replaced, such as a form that is being filled in.

    If ``goes_on``, the browser asks again later, as it does while a part is being read.
    """
    poll = int(1000 * max(EVERY, get_account().seconds)) if goes_on or g.get("unfinished") else 0
    digest = _hash_html(f"{poll}{fragments}")
    if request.if_none_match.contains(digest):
        return Response(status=304)

    def render_live(name: str) -> Markup:
        """Return a fragment whose HTML the browser replaces when it changes."""
        # The HTML was rendered, and escaped, by a template.
        inner = Markup(fragments[name])
        return Markup('<div id="{}" data-live="{}">{}</div>').format(name, _hash_html(inner), inner)

    def render_still(name: str) -> Markup:
        """Return a fragment that the browser does not replace."""
        return Markup(fragments[name])

    html = render_template(
        template, live=render_live, still=render_still, poll=poll, digest=digest, **values
    )
    page = make_response(html)
    page.set_etag(digest)
    return page


def _hash_html(html: str) -> str:
    return hashlib.sha256(_COUNTER.sub("", html).encode()).hexdigest()[:12]
