"""The AWS account that the console shows, with a cache of recent answers.

Many pages need the same data at the same time. An answer is reused for ``seconds``; the first
request for it reads it for all.
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

from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import ServiceError
from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution, Step, search

Item = TypeVar("Item")
Result = TypeVar("Result")

CACHE_SIZE = 4_096  # most answers remembered; the least recently used is dropped first

EMULATOR, AWS = 0.5, 5.0
"""Seconds for which an answer is reused: AWS throttles clients that ask more often for long."""

SERVICES = ("sagemaker", "logs", "s3", "cloudwatch", "sts")
THREADS = 8  # readings at a time, in the background or for one page
A_DAY = 86_400.0  # seconds for which an answer that never changes is reused
# Not a day, as for other things that have ended: an ended execution may be retried.
SETTLED_SECONDS = 5.0  # seconds for which the answer about an ended execution is reused
_DEFAULT_NAME = re.compile(r"execution-\d{13}")
"""Display name that SageMaker gives where people give none."""


def run_title(pipeline: str, name: str, start_time: datetime | None, execution: str) -> str:
    """Return the name that people gave a run; else its pipeline and the time of its start."""
    if name and name != execution and not _DEFAULT_NAME.fullmatch(name):
        return name
    return f"{pipeline} {start_time.astimezone():%d %b %H:%M}" if start_time else execution


@dataclass(frozen=True)
class Snapshot:
    """An execution's state at one moment."""

    described: dict[str, Any]  # DescribePipelineExecution's answer
    steps: tuple[Step, ...]

    @property
    def status(self) -> str:
        """Status of the execution, such as ``Executing``."""
        return str(self.described.get("PipelineExecutionStatus", "Unknown"))

    @property
    def is_ended(self) -> bool:
        """True if no part of it runs any more."""
        return self.status in END_STATUSES

    def title(self, pipeline: str, execution: str) -> str:
        """Return the name that people gave the run, or pipeline and time."""
        name = self.described.get("PipelineExecutionDisplayName", "")
        return run_title(pipeline, name, self.described.get("CreationTime"), execution)


class _Answer:
    """A cached answer, or one being read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: Any = None
        self.until = 0.0


class Account:
    """Clients of one account and region, and their recent answers. Thread-safe.

    ``may_write``: pages offer, and carry out, actions that change something. ``patient``: pages
    wait for slow readings; otherwise they show them later.
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
        """Return the client of one of ``SERVICES``, which is created once."""
        if service not in SERVICES:
            raise AttributeError(service)
        # Python asks this only for what is no attribute yet; setdefault keeps the client of the
        # thread that came first.
        with self._lock:
            service_client = self.__dict__.setdefault(service, client(service, self.region))
        return service_client

    def connect(self) -> None:
        """Create all clients, for the present environment; later changes of it have no effect."""
        for service in SERVICES:
            getattr(self, service)

    @property
    def caller(self) -> str:
        """ARN of the user or role whose credentials the console uses."""

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

        ``seconds``: time for which an answer is reused, or a function that returns it for an
        answer.
        """
        with self._lock:
            answer = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > CACHE_SIZE:
                self._answers.popitem(last=False)
        # The answer's own lock, not the account's: a slow reading holds up only who needs it.
        with answer.lock:
            if time.monotonic() >= answer.until:
                answer.value = read()
                good = seconds(answer.value) if callable(seconds) else seconds
                answer.until = time.monotonic() + (self.seconds if good is None else good)
            return cast(Result, answer.value)

    def later(self, key: Hashable, read: Callable[[], Result], instead: Result) -> Result:
        """Return the result of ``read``, which is called once, in the background; until it is
        known ``instead``, and the browser asks for the page again.
        """
        with self._lock:
            if key not in self._readings:
                self._readings[key] = self._threads.submit(read)
            self._readings.move_to_end(key)
            while len(self._readings) > CACHE_SIZE:
                self._readings.popitem(last=False)
            future = self._readings[key]
        # Outside of the lock: a patient page waits here for as long as the reading takes.
        if self._patient or future.done():
            return cast(Result, future.result())
        ask_again()
        return instead

    def close(self) -> None:
        """Drop the readings in the background that have not begun; further ones fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Drop all cached answers, because something was changed."""
        with self._lock:
            self._answers.clear()

    def arn(self, pipeline: str, execution: str) -> str:
        """Return the ARN of the execution with that id."""
        description = self.ask("describe_pipeline", PipelineName=pipeline)
        if not (arn := description.get("PipelineArn")):
            raise ServiceError(f"the service does not return the ARN of pipeline {pipeline}")
        return f"{arn}/execution/{execution}"

    def ask(
        self,
        operation: str,
        seconds: float | Callable[[Any], float] | None = None,
        **request: Any,
    ) -> dict[str, Any]:
        """Return SageMaker's answer to a Describe or List operation, a recent one if there is."""

        def read() -> dict[str, Any]:
            with service_errors(_words(operation, request)):
                answer: dict[str, Any] = getattr(self.sagemaker, operation)(**request)
            return {key: value for key, value in answer.items() if key != "ResponseMetadata"}

        return self.read_cached((operation, *request.items()), read, seconds)

    def all_of(self, operation: str, member: str, **request: Any) -> list[dict[str, Any]]:
        """Return the items of all pages of a List operation, which are its answer's ``member``."""

        def read() -> list[dict[str, Any]]:
            with service_errors(_words(operation, request)):
                pages = self.sagemaker.get_paginator(operation).paginate(**request)
                return [item for page in pages for item in page.get(member) or ()]

        return self.read_cached((operation, *request.items()), read)

    def pipelines(self) -> list[dict[str, Any]]:
        """Return PipelineSummaries of all pipelines."""
        summaries = self.all_of("list_pipelines", "PipelineSummaries")
        return [summary for summary in summaries if summary.get("PipelineName")]

    def execution(self, pipeline: str, execution: str) -> Execution:
        """Return the execution with that id, for data beyond its snapshot."""
        return self.read_cached(
            ("execution", pipeline, execution),
            lambda: self.execution_of(self.arn(pipeline, execution)),
            3_600,
        )

    def execution_of(self, arn: str) -> Execution:
        """Return the execution with that ARN; it uses this account's clients."""
        return Execution(arn, self.region, lambda service, region: getattr(self, service))

    def snapshot(self, pipeline: str, execution: str) -> Snapshot:
        """Return the execution's state, at most ``seconds`` old."""
        run = self.execution(pipeline, execution)
        return self.read_cached(
            ("snapshot", run.arn),
            lambda: Snapshot(run.describe(), tuple(run.steps())),
            lambda snapshot: (
                max(SETTLED_SECONDS, self.seconds) if snapshot.is_ended else self.seconds
            ),
        )

    def job(self, step: Step) -> dict[str, Any]:
        """Return Describe…Job's answer for the step's job; empty if it has no job."""
        if step.job is None:
            return {}
        kind, name = step.job
        # The description of a job that is over never changes: a retry starts another job.
        is_over = step.ended is not None
        good = A_DAY if is_over else 2 * self.seconds
        return self.ask(f"describe_{xform_name(kind)}", good, **{f"{kind}Name": name})

    def describe_charged(self, step: Step) -> dict[str, Any]:
        """Return the description of what the step is charged for: of its job, or of its tuning job
        with all training jobs; empty without one.
        """
        if (name := step.tuning_job) is None:
            return self.job(step)
        good = 2 * self.seconds if step.ended is None else A_DAY
        return self.read_cached(
            ("search", name, step.ended), lambda: search(self.sagemaker, name), good
        )


def account() -> Account:
    """Return the account of the current request."""
    return cast(Account, current_app.extensions["trainyard-account"])


def _words(operation: str, request: Mapping[str, Any]) -> str:
    """Return what was asked, for a message: ``describe pipeline churn``."""
    return " ".join([*operation.split("_"), *map(str, request.values())])


def read_items(read: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return what ``read`` returns for each item, in order; several are read at a time."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(read, items))


def ask_again() -> None:
    """Let the browser ask for the present page again: a part of it is still being read."""
    g.unfinished = True


# Pages of named fragments of HTML.
#
# While something goes on, a browser asks for the page again every few seconds, with the version
# that it has: the answer is 304, or the page, whose changed fragments the script swaps.

Fragments = Mapping[str, str]  # id of an element → HTML inside it
EVERY = 2.0  # least seconds between two requests of a browser for one page
_COUNTER = re.compile(r"<span data-(?:paid-)?since=[^>]*>[^<]*")
"""Text that the browser counts on: it differs at each reading although nothing has changed."""


def answer(template: str, fragments: Fragments, *, goes_on: bool, **values: Any) -> Response:
    """Return the page, or status 304 if the browser has this version of it.

    The template extends ``page.html.j2`` and has ``{{ live("id") }}`` for each fragment, or ``{{
    still("id") }}`` for one that must not be replaced, such as a form being filled in.

    ``goes_on``: the browser asks again, as it does while a part is read in the background.
    """
    poll = int(1000 * max(EVERY, account().seconds)) if goes_on or g.get("unfinished") else 0
    digest = _digest(f"{poll}{fragments}")
    if request.if_none_match.contains(digest):
        return Response(status=304)

    def live(name: str) -> Markup:
        # A template has made it, and escaped it.
        inner = Markup(fragments[name])
        return Markup('<div id="{}" data-live="{}">{}</div>').format(name, _digest(inner), inner)

    def still(name: str) -> Markup:
        return Markup(fragments[name])

    html = render_template(template, live=live, still=still, poll=poll, digest=digest, **values)
    page = make_response(html)
    page.set_etag(digest)
    return page


def _digest(html: str) -> str:
    return hashlib.sha256(_COUNTER.sub("", html).encode()).hexdigest()[:12]
