"""Sends one S3 object through a container: split, in batches, assembled; its output is written
whole or not at all.
"""

import gzip
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from threading import Event
from typing import BinaryIO, cast

from trainyard.emulator.jobs.failure_reason import shorten, without_native_frames
from trainyard.emulator.jobs.transfers import Source, join_key, split_uri
from trainyard.emulator.serving.serving_instance import Answer, Instance, NoAnswerError
from trainyard.emulator.storage.blob import CHUNK, Blob
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.emulator.transform.data_processing import (
    DataProcessing,
    TooLarge,
    batches,
    count_records,
    parts,
    records,
)

MB = 1 << 20
STRATEGIES = {"MultiRecord": "MULTI_RECORD", "SingleRecord": "SINGLE_RECORD"}
"""BatchStrategy in a request → its spelling in a container."""
DEFAULTS = {"MaxConcurrentTransforms": 1, "MaxPayloadInMB": 6, "BatchStrategy": "MULTI_RECORD"}


class ObjectFailed(Exception):
    """An object has no output; the message is the reason, as in a FailureReason."""


class TransformStopError(Exception):
    """The job was asked to stop."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of requests: at most ``concurrent`` at a time, of at most ``payload`` bytes (0: any),
    with several records each if ``many``.
    """

    concurrent: int
    payload: int
    many: bool

    @property
    def log_text(self) -> str:
        """The settings as in AWS's data log."""
        strategy = "MULTI_RECORD" if self.many else "SINGLE_RECORD"
        return (
            f"MaxConcurrentTransforms={self.concurrent}, MaxPayloadInMB={self.payload // MB}, "
            f"BatchStrategy={strategy}"
        )


def settings(request: dict, container_parameters: dict) -> Settings:
    """Return the request's settings, else the container's (``/execution-parameters``), else the
    defaults: developer guide, "Use Your Own Inference Code with Batch Transform".
    """
    job_parameters = {key: request[key] for key in DEFAULTS if key in request}
    if not job_parameters.get("MaxConcurrentTransforms"):
        job_parameters.pop("MaxConcurrentTransforms", None)  # 0 also means the container's
    if "BatchStrategy" in job_parameters:
        job_parameters["BatchStrategy"] = STRATEGIES[job_parameters["BatchStrategy"]]
    parameters = (
        DEFAULTS
        | {key: value for key, value in container_parameters.items() if key in DEFAULTS}
        | job_parameters
    )
    return Settings(
        max(1, int(parameters["MaxConcurrentTransforms"])),
        int(parameters["MaxPayloadInMB"]) * MB,
        parameters["BatchStrategy"] == "MULTI_RECORD",
    )


@dataclass(slots=True)
class Count:
    """Numbers of records of an object; None for a type without records."""

    went_in: int | None = 0
    came_out: int | None = 0

    def add(self, went_in: int | None, came_out: int | None) -> None:
        self.went_in, self.came_out = _sum(self.went_in, went_in), _sum(self.came_out, came_out)

    @property
    def log_text(self) -> str:
        if self.went_in is None or self.came_out is None:
            counts = [
                f"{count} records {way}"
                for count, way in ((self.went_in, "in"), (self.came_out, "out"))
                if count is not None
            ]
            side = "in" if self.went_in is None else "out"
            return f"{', '.join(counts) or 'done'}; what went {side} is of a type without records"
        mismatch = "" if self.came_out == self.went_in else ": they do not match record by record"
        return f"{self.went_in} records in, {self.came_out} out{mismatch}"


def _sum(one_count: int | None, two: int | None) -> int | None:
    return None if one_count is None or two is None else one_count + two


class Transformer:
    """Sends objects of one job through one instance. Its methods are thread-safe."""

    def __init__(
        self,
        objects: ObjectStore,
        instance: Instance,
        request: dict,
        how: Settings,
        senders: Executor,
        stop: Event,
    ) -> None:
        """``senders`` makes the requests, as many at a time as it has threads."""
        self._objects, self._instance, self._how = objects, instance, how
        self._senders, self._stop = senders, stop
        self._source, self._output = request["TransformInput"], request["TransformOutput"]
        self._processing = DataProcessing(
            request.get("DataProcessing", {}), self._source, self._output
        )
        client = request.get("ModelClientConfig", {})
        self._seconds = client.get("InvocationsTimeoutInSeconds", 600)
        self._tries = 1 + client.get("InvocationsMaxRetries", 3)

    def output(self, source: Source) -> str:
        """Return the S3 URI of the object's output."""
        bucket, prefix = split_uri(self._output["S3OutputPath"])
        return f"s3://{bucket}/{join_key(prefix, f'{source.path}.out')}"

    def transform(self, source: Source) -> Count:
        """Write the object's output, whole. Raises :class:`ObjectFailed`, :class:`Ended`."""
        bucket, key = split_uri(self.output(source))
        stored_bytes = io.BufferedReader(self._objects.open(source.bucket, source.key)[1], CHUNK)
        with stored_bytes, self._objects.blob() as blob:
            is_gzip = self._source.get("CompressionType") == "Gzip"
            file = cast(BinaryIO, gzip.GzipFile(fileobj=stored_bytes) if is_gzip else stored_bytes)
            try:
                count = self._through(file, blob)
            except (TooLarge, gzip.BadGzipFile, EOFError) as error:
                raise ObjectFailed(f"ClientError: {error}") from None
            headers = {"Content-Type": accept} if (accept := self._output.get("Accept")) else {}
            self._objects.commit(bucket, key, blob, headers=headers)
        return count

    def _through(self, file: BinaryIO, blob: Blob) -> Count:
        pieces = records(file, self._source.get("SplitType", "None"))
        count = Count()
        for batch, answer in self._answers(batches(pieces, self._how.many, self._how.payload)):
            blob.write(self._assemble_answer(batch, answer, count))
        return count

    def _answers(self, batch_stream: Iterator[list[bytes]]) -> Iterator[tuple[list[bytes], Answer]]:
        """Iterate over the batches' answers in order, with as many requests ahead as allowed."""
        waiting: deque[tuple[list[bytes], Future[Answer]]] = deque()
        try:
            for batch in batch_stream:
                waiting.append((batch, self._senders.submit(self._ask, batch)))
                if len(waiting) >= self._how.concurrent:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()

    def _ask(self, batch: list[bytes]) -> Answer:
        try:
            body = b"\n".join(self._processing.filter_input(record) for record in batch)
        except ValueError as error:
            raise ObjectFailed(f"ClientError: InputFilter: {error}") from None
        names = {"Content-Type": self._source.get("ContentType"),
                 "Accept": self._output.get("Accept")}  # fmt: skip
        headers = {name: value for name, value in names.items() if value}
        for number in range(self._tries):
            if self._stop.is_set():
                raise TransformStopError
            last = number + 1 == self._tries
            try:
                answer = self._instance.invoke(body, headers, self._seconds)
            except NoAnswerError as error:
                if self._stop.is_set():
                    raise TransformStopError from None
                if last or self._instance.status == "Failed":
                    reason = self._instance.failure or str(error)
                    raise ObjectFailed(f"AlgorithmError: {reason}") from None
                continue
            if answer.status < 400:
                return answer
            if last or answer.status < 500:
                raise ObjectFailed(_bad(answer))
        raise AssertionError("the last attempt has answered or raised")

    def _assemble_answer(self, batch: list[bytes], answer: Answer, count: Count) -> bytes:
        kind = self._output.get("Accept") or answer.content_type
        if self._source.get("SplitType", "None") == "None":
            went_in = count_records(batch[0], self._source.get("ContentType", ""), 1)
        else:
            went_in = len(batch)
        count.add(went_in, count_records(answer.body, kind, went_in or 1))
        body = answer.body
        if self._processing.active:
            body = self._process_answer(batch, answer)
        if self._output.get("AssembleWith") == "Line" and not body.endswith(b"\n"):
            body += b"\n"
        return body

    def _process_answer(self, batch: list[bytes], answer: Answer) -> bytes:
        """Return the answer's records, filtered and joined."""
        source = self._source.get("ContentType", "")
        inputs = batch if len(batch) > 1 else parts(batch[0], source, 1)
        outputs = parts(answer.body, self._output.get("Accept") or source, len(inputs))
        if len(outputs) != len(inputs):
            raise ObjectFailed(
                f"ClientError: DataProcessing: the model was asked about {len(inputs)} records and "
                f"answered with {len(outputs)}"
            )
        try:
            pairs = zip(inputs, outputs, strict=True)
            results = [self._processing.result(record, output) for record, output in pairs]
        except ValueError as error:
            raise ObjectFailed(f"ClientError: DataProcessing: {error}") from None
        return b"\n".join(results) + (b"\n" if answer.body.endswith(b"\n") else b"")


def _bad(answer: Answer) -> str:
    kind = "AlgorithmError" if answer.status >= 500 else "ClientError"
    message = shorten(
        without_native_frames(answer.cause or answer.body.decode(errors="replace")), 600
    )
    return f"{kind}: Bad HTTP status received from algorithm: {answer.status}: {message}"
