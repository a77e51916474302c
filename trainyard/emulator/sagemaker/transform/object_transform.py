"""Send one S3 object through a container: split it, send batches of records, join the results.

The output object is written completely or not at all.
"""

import csv
import gzip
import io
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from threading import Event
from typing import Any, BinaryIO, cast

from trainyard.emulator.s3.object_folder import CHUNK
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.endpoints.serving_instance import Answer, Instance, NoAnswerError
from trainyard.emulator.sagemaker.jobs.failure_reason import remove_native_frames, shorten_text
from trainyard.emulator.sagemaker.jobs.transfers import Source, join_key, split_uri

MB = 1 << 20
STRATEGIES = {"MultiRecord": "MULTI_RECORD", "SingleRecord": "SINGLE_RECORD"}
"""Mapping of BatchStrategy in a request to its spelling in a container's parameters."""
DEFAULTS = {"MaxConcurrentTransforms": 1, "MaxPayloadInMB": 6, "BatchStrategy": "MULTI_RECORD"}


class ObjectFailed(Exception):
    """An object could not be transformed, so it has no output. The message is the reason, in the
    form of a FailureReason.
    """


class TransformStopError(Exception):
    """The job was stopped."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the requests to the container: at most ``concurrent`` at the same time, of at most
    ``payload`` bytes (0: no limit), with several records each if ``many``.
    """

    concurrent: int
    payload: int
    many: bool

    @property
    def log_text(self) -> str:
        """The settings as AWS's data log shows them."""
        strategy = "MULTI_RECORD" if self.many else "SINGLE_RECORD"
        return (
            f"MaxConcurrentTransforms={self.concurrent}, MaxPayloadInMB={self.payload // MB}, "
            f"BatchStrategy={strategy}"
        )


def resolve_settings(request: dict, container_parameters: dict) -> Settings:
    """Return the settings: those of the request, else those of the container
    (``/execution-parameters``), else the defaults (developer guide, "Use Your Own Inference Code
    with Batch Transform").
    """
    job_parameters = {key: request[key] for key in DEFAULTS if key in request}
    if not job_parameters.get("MaxConcurrentTransforms"):
        job_parameters.pop("MaxConcurrentTransforms", None)  # 0 means the container's value
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


class Transformer:
    """Transform objects of one job with one instance. Its methods are thread-safe."""

    def __init__(
        self,
        objects: ObjectStore,
        instance: Instance,
        request: dict,
        limits: Settings,
        senders: Executor,
        stop: Event,
    ) -> None:
        """``senders`` sends the requests, at most as many at the same time as it has threads.
        ``stop`` is set when the job is stopped.
        """
        self._objects, self._instance, self._limits = objects, instance, limits
        self._senders, self._stop = senders, stop
        self._source, self._output = request["TransformInput"], request["TransformOutput"]
        self._processing = DataProcessing(
            request.get("DataProcessing", {}), self._source, self._output
        )
        client = request.get("ModelClientConfig", {})
        self._seconds = client.get("InvocationsTimeoutInSeconds", 600)
        self._tries = 1 + client.get("InvocationsMaxRetries", 3)

    def build_output_uri(self, source: Source) -> str:
        """Return the S3 URI of the object's output."""
        bucket, prefix = split_uri(self._output["S3OutputPath"])
        return f"s3://{bucket}/{join_key(prefix, f'{source.path}.out')}"

    def transform(self, source: Source) -> None:
        """Write the object's output. Raises :class:`ObjectFailed`, :class:`TransformStopError`."""
        bucket, key = split_uri(self.build_output_uri(source))
        stored_bytes = io.BufferedReader(self._objects.open(source.bucket, source.key)[1], CHUNK)
        with stored_bytes, self._objects.create_blob() as blob:
            is_gzip = self._source.get("CompressionType") == "Gzip"
            file = cast(BinaryIO, gzip.GzipFile(fileobj=stored_bytes) if is_gzip else stored_bytes)
            try:
                pieces = iter_records(file, self._source.get("SplitType", "None"))
                batch_stream = iter_batches(pieces, self._limits.many, self._limits.payload)
                for batch, answer in self._iter_answers(batch_stream):
                    blob.write(self._build_output(batch, answer))
            except (TooLarge, gzip.BadGzipFile, EOFError) as error:
                raise ObjectFailed(f"ClientError: {error}") from None
            headers = {"Content-Type": accept} if (accept := self._output.get("Accept")) else {}
            self._objects.commit(bucket, key, blob, headers=headers)

    def _iter_answers(
        self, batch_stream: Iterator[list[bytes]]
    ) -> Iterator[tuple[list[bytes], Answer]]:
        """Iterate over the batches and their responses in order. Up to ``concurrent`` requests are
        sent ahead.
        """
        pending: deque[tuple[list[bytes], Future[Answer]]] = deque()
        try:
            for batch in batch_stream:
                pending.append((batch, self._senders.submit(self._send_batch, batch)))
                if len(pending) >= self._limits.concurrent:
                    first, future = pending.popleft()
                    yield first, future.result()
            while pending:
                first, future = pending.popleft()
                yield first, future.result()
        finally:
            # After a failure, cancel the requests that have not been sent.
            for _, future in pending:
                future.cancel()

    def _send_batch(self, batch: list[bytes]) -> Answer:
        """Send a batch, with retries, and return the response. Raises :class:`ObjectFailed`,
        :class:`TransformStopError`.
        """
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
                raise ObjectFailed(_format_status_failure(answer))
        raise AssertionError("the last attempt has answered or raised")

    def _build_output(self, batch: list[bytes], answer: Answer) -> bytes:
        """Return the bytes to write for a batch: the processed response, with a line end if
        AssembleWith is Line.
        """
        body = answer.body
        if self._processing.is_active:
            body = self._process_answer(batch, answer)
        if self._output.get("AssembleWith") == "Line" and not body.endswith(b"\n"):
            body += b"\n"
        return body

    def _process_answer(self, batch: list[bytes], answer: Answer) -> bytes:
        """Return the response's records, joined with the input and filtered as DataProcessing
        specifies.
        """
        source = self._source.get("ContentType", "")
        inputs = batch if len(batch) > 1 else split_answer(batch[0], source, 1)
        outputs = split_answer(answer.body, self._output.get("Accept") or source, len(inputs))
        if len(outputs) != len(inputs):
            raise ObjectFailed(
                f"ClientError: DataProcessing: the model was asked about {len(inputs)} records and "
                f"answered with {len(outputs)}"
            )
        try:
            pairs = zip(inputs, outputs, strict=True)
            results = [self._processing.build_result(record, output) for record, output in pairs]
        except ValueError as error:
            raise ObjectFailed(f"ClientError: DataProcessing: {error}") from None
        return b"\n".join(results) + (b"\n" if answer.body.endswith(b"\n") else b"")


def _format_status_failure(answer: Answer) -> str:
    kind = "AlgorithmError" if answer.status >= 500 else "ClientError"
    message = shorten_text(remove_native_frames(answer.body.decode(errors="replace")), 600)
    return f"{kind}: Bad HTTP status received from algorithm: {answer.status}: {message}"


# DataProcessing: InputFilter → model → JoinSource → OutputFilter, on records of CSV and JSON. A row
# of CSV is treated as an array; a joined row has the input's columns and then the output's. The
# output is added to a JSON object as ``SageMakerOutput``. Any other JSON input becomes
# ``SageMakerInput`` in a new object that also has ``SageMakerOutput``.

Filter = Callable[[Any], Any]
LIMIT = 63  # maximum characters of a filter: botocore's JsonPath
_PART = re.compile(
    r"\.?\[\s*(?P<inside>(?:'[^']*'|\"[^\"]*\"|[^\]'\"])*)\s*\]|\.(?P<name>\*|[^.\[\]\s]+)"
)
_NAMES = re.compile(r"""(?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*""")
_QUOTED_NAME = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_NUMBER = re.compile(r"-?\d+")
_SLICE = re.compile(r"(-?\d+)?\s*:\s*(-?\d+)?")


class PathError(ValueError):
    """The path is not valid, or it does not exist in a record. The message says which."""


def compile_filter(path: str) -> Filter:
    """Return a function that extracts the part of a record to which the JSONPath refers.

    Both this function and the returned one raise :class:`PathError`.
    """
    if not path.startswith("$") or len(path) > LIMIT:
        raise PathError(f"{path!r}: expected a JSONPath of at most {LIMIT} characters, '$...'")
    steps, position = [], 1
    while position < len(path):
        match = _PART.match(path, position)
        if not match:
            raise PathError(f"{path!r}: {path[position:]!r} is not an operator of a filter")
        steps.append(_compile_path_operator(path, match))
        position = match.end()

    def apply(record: Any) -> Any:
        for step in steps:
            record = step(record)
        return record

    return apply


def _compile_path_operator(path: str, match: re.Match[str]) -> Filter:
    """Return the function that applies one operator of the path to a record."""
    inside = (match["inside"] or "").strip()
    if "*" in (match["name"], inside):
        return _select_all
    if match["name"]:
        return lambda record: _select_member(record, match["name"])
    if _NAMES.fullmatch(inside):
        names = [single or double for single, double in _QUOTED_NAME.findall(inside)]
        return lambda record: _select_members(record, names)
    picks = [part.strip() for part in inside.split(",")]
    if not all(_NUMBER.fullmatch(pick) or _SLICE.fullmatch(pick) for pick in picks):
        raise PathError(f"{path!r}: [{inside}] is neither names in quotes nor numbers")
    return lambda record: _select_elements(record, picks)


def _select_all(record: Any) -> Any:
    if isinstance(record, dict):
        return list(record.values())
    if isinstance(record, list):
        return record
    raise PathError(f"* of {_shorten_repr(record)}, which is neither an object nor an array")


def _select_member(record: Any, name: str) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise PathError(f"{name!r} is missing in {_shorten_repr(record)}")
    return record[name]


def _select_members(record: Any, names: list[str]) -> Any:
    if len(names) == 1:
        return _select_member(record, names[0])
    return {name: _select_member(record, name) for name in names}


def _select_elements(record: Any, picks: list[str]) -> Any:
    """Return one element, or a list if ``picks`` has several numbers or a slice."""
    if not isinstance(record, list):
        raise PathError(f"[{','.join(picks)}] of {_shorten_repr(record)}, which is not an array")
    if len(picks) == 1 and ":" not in picks[0]:
        return _select_element(record, picks[0])
    elements: list[Any] = []
    for pick in picks:
        if match := _SLICE.fullmatch(pick):
            low, high = (int(text) if text else None for text in match.groups())
            elements += record[low:high]
        else:
            elements.append(_select_element(record, pick))
    return elements


def _select_element(record: list, pick: str) -> Any:
    try:
        return record[int(pick)]
    except IndexError:
        raise PathError(f"[{pick}] is outside an array of {len(record)}") from None


def _shorten_repr(record: Any) -> str:
    text = repr(record)
    return text if len(text) < 80 else f"{text[:77]}..."


LINES = ("text/csv", "application/jsonlines", "application/x-jsonlines", "application/jsonl")
"""Content types in which each line is a record."""


class TooLarge(ValueError):
    """A record is larger than MaxPayloadInMB allows for a request."""


def parse_media_type(header: str | None) -> str:
    """Return the type without its parameters: ``text/csv`` for ``text/csv; label_size=0``."""
    return (header or "").partition(";")[0].strip().lower()


def iter_records(file: BinaryIO, split: str) -> Iterator[bytes]:
    """Iterate over the object's records without line ends: its lines if ``split`` is ``Line``,
    otherwise the whole object as one record.
    """
    if split == "Line":
        for line in file:
            yield line.removesuffix(b"\n")
    else:
        yield file.read()


def iter_batches(pieces: Iterable[bytes], many: bool, limit: int) -> Iterator[list[bytes]]:
    """Iterate over lists of records, one list per request: one record, or if ``many``, as many as
    fit into ``limit`` bytes.

    ``limit`` 0 means no limit. Raises :class:`TooLarge` if a single record exceeds it.
    """
    batch: list[bytes] = []
    size = 0
    for number, record in enumerate(pieces):
        if limit and len(record) > limit:
            raise TooLarge(
                f"record {number} has {len(record)} bytes, more than MaxPayloadInMB allows: {limit}"
            )
        if batch and (not many or (limit and size + len(record) > limit)):
            yield batch
            batch, size = [], 0
        batch.append(record)
        # One more byte for the line end between two records.
        size += len(record) + 1
    if batch:
        yield batch


def split_answer(answer: bytes, content_type: str, expected_count: int) -> list[bytes]:
    """Split a response into its records: its lines, the elements of a JSON array, or the whole
    response as one.

    ``expected_count`` is the number of records in the request. A JSON response to several records
    is an array with one element for each, or one line for each.
    """
    kind = parse_media_type(content_type)
    if kind == "application/json" and expected_count > 1:
        return _split_elements(answer, expected_count)
    if kind in LINES:
        return answer.removesuffix(b"\n").split(b"\n") if answer else []
    return [answer.removesuffix(b"\n")]


def _split_elements(answer: bytes, expected_count: int) -> list[bytes]:
    """Return the elements of a JSON array, also as the only member of an object; or the lines."""
    try:
        document = json.loads(answer)
    except ValueError:
        return answer.removesuffix(b"\n").split(b"\n")
    if isinstance(document, dict) and len(document) == 1:
        [document] = document.values()  # {"predictions": [...]}
    if isinstance(document, list):
        return [json.dumps(element).encode() for element in document]
    return [answer]


WHOLE_RECORD = "$"
KINDS = (*LINES, "application/json")


class DataProcessing:
    """The DataProcessing of a job: its filters and the join with the input.

    Raises ValueError if the job's request cannot have filters, or if a record does not fit them.
    """

    def __init__(self, processing: dict, source: dict, output: dict) -> None:
        """Check the members DataProcessing, TransformInput and TransformOutput, and compile the
        filters.
        """
        self.joins = processing.get("JoinSource", "None") == "Input"
        first, last = (
            processing.get("InputFilter") or WHOLE_RECORD,
            processing.get("OutputFilter") or WHOLE_RECORD,
        )
        self._first = None if first == WHOLE_RECORD else compile_filter(first)
        self._last = None if last == WHOLE_RECORD else compile_filter(last)
        self._kind = parse_media_type(source.get("ContentType"))
        self._answer_kind = parse_media_type(output.get("Accept")) or self._kind
        if self.is_active and self._kind not in KINDS:
            raise ValueError(
                f"DataProcessing: TransformInput.ContentType {self._kind!r}: expected text/csv, "
                "application/json or application/jsonlines"
            )
        if self.joins:
            _check_join(self._kind, self._answer_kind, source, output)

    @property
    def is_active(self) -> bool:
        """Whether responses are processed record by record."""
        return bool(self.joins or self._first or self._last)

    def filter_input(self, record: bytes) -> bytes:
        """Return the part of a record that is sent to the model."""
        if not self._first:
            return record
        return _format_record(self._first(_parse_record(record, self._kind)), self._kind)

    def build_result(self, record: bytes, answer: bytes) -> bytes:
        """Return the output for a record and the model's response to it."""
        if not self.joins:
            if not self._last:
                return answer
            return _format_record(
                self._last(_parse_record(answer, self._answer_kind)), self._answer_kind
            )
        if self._kind == "text/csv" and not self._last:
            return record.removesuffix(b"\r") + b"," + answer
        joined_record = _join_answer(
            self._kind, _parse_record(record, self._kind), _parse_record(answer, self._answer_kind)
        )
        return _format_record(
            self._last(joined_record) if self._last else joined_record, self._kind
        )


def _check_join(kind: str, answer_kind: str, source: dict, output: dict) -> None:
    """Raise ValueError if the output's format does not fit JoinSource Input."""
    if kind != answer_kind:
        raise ValueError(
            f"JoinSource Input: Accept {answer_kind!r} must be the ContentType {kind!r}"
        )
    split, assemble = source.get("SplitType", "None"), output.get("AssembleWith", "None")
    if split != assemble:
        raise ValueError(f"JoinSource Input: AssembleWith {assemble} must be the SplitType {split}")


def _join_answer(kind: str, record: Any, answer: Any) -> Any:
    if kind == "text/csv":
        return [*record, *answer]
    if isinstance(record, dict):
        return record | {"SageMakerOutput": answer}
    return {"SageMakerInput": record, "SageMakerOutput": answer}


def _parse_record(record: bytes, kind: str) -> Any:
    try:
        text = record.decode()
        if kind == "text/csv":
            return next(csv.reader([text]), [])
        return json.loads(text)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"a record is not {kind}: {error}: {record[:80]!r}") from None


def _format_record(value: Any, kind: str) -> bytes:
    if kind != "text/csv":
        return json.dumps(value).encode()
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(value if isinstance(value, list) else [value])
    return row.getvalue().encode()
