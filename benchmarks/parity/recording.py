"""A run of one case against an endpoint: calls, answers, and the resources to remove."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from benchmarks.parity.scrubbing import Scrubber
from trainyard.aws_clients import error_code
from trainyard.language.definition_document import END_STATUSES

_Seen = TypeVar("_Seen")
_GONE = ("NotFound", "NonExistentQueue", "does not exist", "Could not find")


class Halted(Exception):
    """The recording was interrupted."""


FAILURES = (ClientError, BotoCoreError, TimeoutError, Halted)
"""What a call or a wait may raise."""


@dataclass(kw_only=True)
class Place:
    """Where the cases run. ``client`` returns boto3's client for a service; ``registry`` is AWS's
    registry of the scikit-learn and XGBoost images.
    """

    client: Callable[[str], Any]
    prefix: str
    bucket: str
    role: str
    registry: str
    account: str
    region: str
    names: tuple[str, ...] = ()
    """Further names of the account's owner, which a record must not hold."""
    poll: float = 5.0
    patience: float = 1800.0
    """Seconds until an execution that still runs is stopped."""
    halted: threading.Event = field(default_factory=threading.Event)
    started: Counter[str] = field(default_factory=Counter)
    """Kind of job → number of jobs that were found and removed."""

    def scrubber(self, prefix: str) -> Scrubber:
        own = {self.role: "<role>", self.bucket: "<bucket>", prefix: "<prefix>-"}
        own |= {self.account: "<account>", self.region: "<region>", self.registry: "<registry>"}
        return Scrubber(own, dict.fromkeys(self.names, "<name>"))


class Run:
    """The run of one case; what it calls is in ``recorded``. ``number`` makes its names its own."""

    def __init__(self, place: Place, number: int = 0) -> None:
        self.place = place
        self._prefix = f"{place.prefix}{number}-"
        self.recorded: list[dict[str, Any]] = []
        self.scrub = place.scrubber(self._prefix)
        self.tokens: dict[str, str] = {}
        """ARN of an execution → the token of its callback step."""
        self._started: list[str] = []
        self._running: set[str] = set()
        self._cleanup: list[tuple[str, dict[str, Any]]] = []
        self._cleaning = False

    def name(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.place.region}:{self.place.account}:{resource}"

    def image(self, name: str) -> str:
        return f"{self.place.registry}/{name}"

    def quietly(self, operation: str, **request: Any) -> dict[str, Any]:
        """Call ``service.operation`` without a record. Raises ClientError."""
        service, _, method = operation.partition(".")
        return getattr(self.place.client(service), method)(**request)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Call ``service.operation`` and return the answer; empty when it was refused.

        Either is recorded.
        """
        entry: dict[str, Any] = {"call": operation, "request": self._shown(request)}
        self.recorded.append(entry)
        try:
            answer = self.quietly(operation, **request)
        except ClientError as refused:
            error = refused.response["Error"]
            entry["error"] = self.scrub({"Code": error["Code"], "Message": error["Message"]})
            entry["status"] = refused.response["ResponseMetadata"]["HTTPStatusCode"]
            return {}
        except ParamValidationError as wrong:  # the client itself refused the request's shape
            entry["error"] = {"Code": "ParamValidationError", "Message": self.scrub(str(wrong))}
            return {}
        entry["answer"] = self.scrub(answer)
        return answer

    def note(self, operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """Record an answer, or the part of it that is the same in each run."""
        shown = {"request": self._shown(request), "answer": self.scrub(answer)}
        self.recorded.append({"call": operation, **shown})

    def later(self, operation: str, **request: Any) -> None:
        """Call an operation when all is done; the last one first."""
        self._cleanup.append((operation, request))

    def create(self, name: str, text: str) -> bool:
        """Call CreatePipeline; return whether it was done. The pipeline is removed at the end."""
        made = self.call(
            "sagemaker.create_pipeline", PipelineName=self.name(name), PipelineDefinition=text,
            RoleArn=self.place.role,
        )  # fmt: skip
        if made:
            self.later("sagemaker.delete_pipeline", PipelineName=self.name(name))
        return bool(made)

    def start(self, name: str, **more: Any) -> str:
        """Return the ARN of a started execution; empty when it was refused."""
        start = "sagemaker.start_pipeline_execution"
        arn = self.call(start, PipelineName=self.name(name), **more).get("PipelineExecutionArn", "")
        if arn:
            self._started.append(arn)
            self._running.add(arn)
        return arn

    def executed(self, name: str, **more: Any) -> str:
        """Return the ARN of an execution that has ended; its description and steps are recorded."""
        arn = self.start(name, **more)
        if arn:
            self.ended(arn)
        return arn

    def ended(self, arn: str) -> None:
        """Wait for the execution's end, and record how it ended.

        Raises:
            TimeoutError: it still runs after ``patience`` seconds.
        """
        request = {"PipelineExecutionArn": arn}
        found = self.until(lambda: self._end(arn), f"the end of {arn}")
        self.note("sagemaker.describe_pipeline_execution", request, found)
        self.recorded[-1]["until"] = "PipelineExecutionStatus"
        self._running.discard(arn)
        steps = "sagemaker.list_pipeline_execution_steps"
        self.call(steps, **request, SortOrder="Ascending")

    def _end(self, arn: str) -> dict[str, Any] | None:
        describe = "sagemaker.describe_pipeline_execution"
        found = self.quietly(describe, PipelineExecutionArn=arn)
        return found if found["PipelineExecutionStatus"] in END_STATUSES else None

    def until(self, seen: Callable[[], _Seen | None], what: str) -> _Seen:
        """Return the first thing that is seen. Raises TimeoutError or :class:`Halted`."""
        end = time.monotonic() + self.place.patience
        while (found := seen()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"{what} has not come in {self.place.patience:g} s")
            self.pause(self.place.poll)
        return found

    def pause(self, seconds: float) -> None:
        """Sleep. Raises :class:`Halted`."""
        if self._cleaning:
            time.sleep(seconds)
        elif self.place.halted.wait(seconds):
            raise Halted

    def clean(self) -> Iterator[str]:
        """Stop and remove what was made; yield a line for each thing that could not be removed."""
        self._cleaning = True
        for arn in sorted(self._running):
            try:
                self._stopped(arn)
            except FAILURES as why:
                yield f"{arn}: {why}"
        for arn in self._started:
            try:
                self._cleanup += self._jobs_and_logs(arn.rpartition("/")[2])
            except FAILURES as why:
                yield f"jobs and logs of {arn}: {why}"
        for operation, request in reversed(self._cleanup):
            try:
                self.quietly(operation, **request)
            except FAILURES as refused:
                if not any(word in str(refused) for word in _GONE):
                    yield f"{operation} {request}: {refused}"
        self._cleanup.clear()

    def _stopped(self, arn: str) -> None:
        with suppress(ClientError):  # it has ended, or stops already
            self.quietly("sagemaker.stop_pipeline_execution", PipelineExecutionArn=arn)
        if token := self.tokens.get(arn):
            with suppress(ClientError):  # it was answered: only one that waits needs this
                fail = "sagemaker.send_pipeline_execution_step_failure"
                self.quietly(fail, CallbackToken=token)
        self.until(lambda: self._end(arn), f"the end of {arn}")

    def _jobs_and_logs(self, execution: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Iterate over the calls that delete what the execution's jobs left, the last one first.

        The names of jobs contain the execution's; SageMaker deletes no transform jobs.
        """
        for kind in ("Transform", "Processing", "Training", "HyperParameterTuning"):
            method = f"{xform_name(kind)}_job"
            listed = self.quietly(f"sagemaker.list_{method}s", NameContains=execution)
            for job in listed[f"{kind}JobSummaries"]:
                self.place.started[kind.lower()] += 1
                name = job[f"{kind}JobName"]
                yield from self._log_streams(f"/aws/sagemaker/{kind}Jobs", name)
                if kind != "Transform":
                    yield f"sagemaker.delete_{method}", {f"{kind}JobName": name}

    def _log_streams(self, group: str, job: str) -> Iterator[tuple[str, dict[str, Any]]]:
        where = {"logGroupName": group}
        try:
            found = self.quietly(
                "logs.describe_log_streams", **where, logStreamNamePrefix=f"{job}/"
            )
        except ClientError as missing:  # no job of that kind has written a log yet
            if error_code(missing) != "ResourceNotFoundException":
                raise
            return
        for stream in found["logStreams"]:
            yield "logs.delete_log_stream", where | {"logStreamName": stream["logStreamName"]}

    def _shown(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request with a definition as what it says, if it can be read."""
        shown = self.scrub(request)
        try:
            return shown | {"PipelineDefinition": json.loads(shown["PipelineDefinition"])}
        except (KeyError, ValueError):
            return shown
