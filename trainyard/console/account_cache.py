"""The AWS account that the console shows, with a cache of recent answers.

Many pages need the same data at the same time. An answer is reused for ``seconds``; the first
request for it reads it for all.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

from botocore import xform_name
from flask import current_app

from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import ServiceError
from trainyard.language.statuses import ENDED
from trainyard.runs.execution import Execution, Step, search

Result = TypeVar("Result")

READINGS = 1_024
"""Most readings remembered; the least recently used is dropped first."""


@dataclass(slots=True)
class _Reading:
    version: Hashable
    future: Future[Any]
    last: Any = None
    """Result of the previous reading."""


class Beside:
    """Readings in the background, running and finished. Thread-safe.

    ``patient``: wait for each reading, for a page in a file, which cannot be updated later.
    ``most``: readings that may wait; beyond that one must be asked for again.
    """

    def __init__(self, threads: int, *, patient: bool = False, most: int = READINGS) -> None:
        self.patient = patient
        self._readings: OrderedDict[Hashable, _Reading] = OrderedDict()
        self._threads = ThreadPoolExecutor(threads, "beside")
        self._lock = threading.RLock()
        self._begun, self._most = 0, most
        self.finished = 0
        """Number of readings that have ended."""

    def get(
        self, key: Hashable, version: Hashable, read: Callable[[], Result], until: Result
    ) -> Result:
        """Return the result of ``read`` for that version; until it is known, that of an earlier
        version.

        ``until``: the value before the first reading has ended.

        Raises:
            ServiceError: the errors of ``read``. It is still called once per version.
        """
        with self._lock:
            known = self._readings.get(key)
            if known is None or known.version != version:
                last = _result(known, until)
                if self._begun - self.finished >= self._most:
                    return cast(Result, last)
                self._begun += 1
                known = _Reading(version, self._threads.submit(read), last)
                known.future.add_done_callback(self._count)
                self._readings[key] = known
                while len(self._readings) > READINGS:
                    self._readings.popitem(last=False)
            self._readings.move_to_end(key)
        if self.patient or known.future.done():
            return cast(Result, known.future.result())
        return cast(Result, known.last)

    def close(self) -> None:
        """Drop the readings that have not begun; further ones fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, future: Future[Any]) -> None:
        with self._lock:
            self.finished += 1

    def stamp(self, *keys: Hashable) -> Hashable:
        """Return a value that changes when one of these readings ends, or gets another version."""
        with self._lock:
            found = [self._readings.get(key) for key in keys]
        return tuple((one.version, one.future.done()) if one else None for one in found)


def _result(known: _Reading | None, until: Any) -> Any:
    if known is None:
        return until
    if known.future.done() and known.future.exception() is None:
        return known.future.result()
    return known.last


KEPT = 4_096
"""Most answers remembered; the least recently used is dropped first."""

EMULATOR, AWS = 0.5, 5.0
"""Seconds for which an answer is reused: AWS throttles clients that ask more often for long."""

A_DAY = 86_400.0
"""Seconds for which an answer that never changes is reused."""

SETTLED = 5.0
"""Seconds for which the answer about an ended execution is reused: it may be retried."""


@dataclass(frozen=True)
class Snapshot:
    """An execution's state at one moment."""

    described: dict[str, Any]
    """DescribePipelineExecution's answer."""
    steps: tuple[Step, ...]

    @property
    def status(self) -> str:
        """Status of the execution, such as ``Executing``."""
        return str(self.described.get("PipelineExecutionStatus", "Unknown"))

    @property
    def is_ended(self) -> bool:
        """True if no part of it runs any more."""
        return self.status in ENDED

    @cached_property
    def version(self) -> Hashable:
        """Value that differs between moments when something has changed."""
        return repr((self.described, self.steps))


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
        self.beside = Beside(4, patient=patient)
        self.outcomes = Beside(2, patient=patient, most=200)
        """Outcomes of listed runs: so many that other readings must not wait for them."""
        self.asked = 0.0
        """Time of a browser's last request (``time.monotonic``)."""
        self.ended = threading.Event()
        """Set when the console ends: readings in the background stop."""
        self.is_emulator = bool(os.environ.get("AWS_ENDPOINT_URL"))
        self.seconds = EMULATOR if self.is_emulator else AWS
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._lock = threading.Lock()

    @cached_property
    def sagemaker(self) -> Any:
        """The client of SageMaker."""
        return client("sagemaker", self.region)

    @cached_property
    def logs(self) -> Any:
        """The client of CloudWatch Logs."""
        return client("logs", self.region)

    @cached_property
    def s3(self) -> Any:
        """The client of S3."""
        return client("s3", self.region)

    @cached_property
    def cloudwatch(self) -> Any:
        """The client of CloudWatch's metrics."""
        return client("cloudwatch", self.region)

    @cached_property
    def sts(self) -> Any:
        """The client of STS."""
        return client("sts", self.region)

    def connect(self) -> None:
        """Create all clients, for the present environment; later changes of it have no effect.

        Raises:
            ServiceError: the region is missing.
        """
        for name in ("sagemaker", "logs", "s3", "cloudwatch", "sts"):
            getattr(self, name)

    @property
    def caller(self) -> str:
        """ARN of the user or role whose credentials the console uses.

        Raises:
            ServiceError: no credentials, or AWS cannot be reached.
        """

        def read() -> str:
            with service_errors("asking who the caller is"):
                return str(self.sts.get_caller_identity().get("Arn", "unknown"))

        return self.lately("caller", read, 60)

    def lately(
        self,
        key: Hashable,
        read: Callable[[], Result],
        seconds: float | Callable[[Result], float] | None = None,
    ) -> Result:
        """Return the cached result of ``read`` for ``key``; call ``read`` if it is too old.

        ``seconds``: time for which an answer is reused, or a function that returns it for an
        answer.

        Raises:
            ServiceError: the errors of ``read``, which are not cached.
        """
        with self._lock:
            answer = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        with answer.lock:
            if time.monotonic() >= answer.until:
                answer.value = read()
                good = seconds(answer.value) if callable(seconds) else seconds
                answer.until = time.monotonic() + (self.seconds if good is None else good)
            return cast(Result, answer.value)

    def shared(
        self, key: Hashable, version: Hashable, make: Callable[[], Result], seconds: float
    ) -> Result:
        """Return the result of ``make`` for ``key`` and version, at most ``seconds`` old.

        Pages of several addresses that show the same share the work. Only the last version is kept.

        Raises:
            ServiceError: the errors of ``make``, which are not cached.
        """

        def versioned() -> tuple[Hashable, Result]:
            return version, make()

        was, found = self.lately(key, versioned, seconds)
        if was == version:
            return found
        with self._lock:
            self._answers.pop(key, None)
        return self.lately(key, versioned, seconds)[1]

    def forget(self) -> None:
        """Drop all cached answers, because something was changed."""
        with self._lock:
            self._answers.clear()

    def arn(self, pipeline: str, execution: str) -> str:
        """Return the ARN of the execution with that id.

        Raises:
            ServiceError: the pipeline does not exist.
        """
        if not (arn := self.pipeline(pipeline).get("PipelineArn")):
            raise ServiceError(f"the service does not return the ARN of pipeline {pipeline}")
        return f"{arn}/execution/{execution}"

    def pipeline(self, name: str) -> dict[str, Any]:
        """Return DescribePipeline's answer.

        Raises:
            ServiceError: the pipeline does not exist.
        """

        def read() -> dict[str, Any]:
            with service_errors(f"reading pipeline {name}"):
                return cast(dict[str, Any], self.sagemaker.describe_pipeline(PipelineName=name))

        return self.lately(("pipeline", name), read, 60)

    def execution(self, pipeline: str, execution: str) -> Execution:
        """Return the execution with that id, for data beyond its snapshot."""
        return self.lately(
            ("execution", pipeline, execution),
            lambda: self.execution_of(self.arn(pipeline, execution)),
            3_600,
        )

    def execution_of(self, arn: str) -> Execution:
        """Return the execution with that ARN; it uses this account's clients."""
        return Execution(arn, self.region, lambda service, region: getattr(self, service))

    def known_execution(self, arn: str, pipeline: str, execution: str) -> Execution:
        """Return the execution with that ARN; its pipeline need not exist any more."""
        return self.lately(
            ("execution", pipeline, execution), lambda: Execution(arn, self.region), A_DAY
        )

    def snapshot(self, pipeline: str, execution: str) -> Snapshot:
        """Return the execution's state, at most ``seconds`` old.

        Raises:
            ServiceError: the execution does not exist.
        """
        one = self.execution(pipeline, execution)
        key = ("snapshot", one.arn)
        found = self.lately(key, lambda: Snapshot(one.describe(), tuple(one.steps())))
        if found.is_ended:
            self._keep(key, SETTLED)
        return found

    def step(self, pipeline: str, execution: str, name: str) -> Step:
        """Return the step of that name.

        Raises:
            ServiceError: it has not begun, or does not exist.
        """
        for step in self.snapshot(pipeline, execution).steps:
            if step.name == name:
                return step
        raise ServiceError(f"step {name} of {pipeline}/{execution} has not begun, or is missing")

    def job(self, step: Step) -> dict[str, Any]:
        """Return Describe…Job's answer for the step's job; empty if it has no job.

        Raises:
            ServiceError: the job no longer exists, or AWS refused.
        """
        if step.job is None:
            return {}
        kind, name = step.job

        def read() -> dict[str, Any]:
            with service_errors(f"reading {kind} {name}"):
                ask = getattr(self.sagemaker, f"describe_{xform_name(kind)}")
                return cast(dict[str, Any], ask(**{f"{kind}Name": name}))

        good = 2 * self.seconds if step.ended is None else A_DAY
        return self.lately(("job", kind, name, step.ended), read, good)

    def charged(self, step: Step) -> dict[str, Any]:
        """Return the description of what the step is charged for: of its job, or of its tuning job
        with all training jobs; empty without one.

        Raises:
            ServiceError: the job no longer exists, or AWS refused.
        """
        if (name := step.tuning_job) is None:
            return self.job(step)
        good = 2 * self.seconds if step.ended is None else A_DAY
        return self.lately(("search", name, step.ended), lambda: search(self.sagemaker, name), good)

    def _keep(self, key: Hashable, seconds: float) -> None:
        """Extend the time for which the answer is reused, counted from when it was read."""
        with self._lock:
            if (answer := self._answers.get(key)) is not None:
                answer.until = max(answer.until, answer.until - self.seconds + seconds)


def account() -> Account:
    """Return the account of the current request."""
    return cast(Account, current_app.extensions["trainyard-account"])
