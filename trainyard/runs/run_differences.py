"""Get a step's inputs in one execution in a form that can be compared with another execution's.

The inputs are the step's definition with the execution's values, as flat fields. Another step's
result is a reference, such as ``{Shard.train}``, because its location may differ although the
definition does not. IDs of executions, names of jobs and times differ between any two executions
and mean nothing: ``make_comparison_key`` leaves them out. "Run" means an execution of the pipeline.

The module also compares files in archives of code.
"""

import difflib
import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from trainyard.language.definition_document import Step
from trainyard.language.evaluation import UnstartedScope, evaluate_value
from trainyard.language.expressions import format_parameter_value
from trainyard.plan.definition_diff import (
    Field,
    Fields,
    flatten_fields,
    format_path,
    format_reference,
    format_value,
    list_fields,
    render_value,
)

STAMP = re.compile(r"\b(?:\d{4}(?:-\d\d){5}-\d{3}|\d{6}-\d{4}-[0-9a-f]{4})\b")
"""Suffix that SDKs add to a name: ``2026-11-22-21-43-03-123`` (name_from_base: sagemaker_timestamp)
and ``261122-2143-1a2b`` (a tuning job's: sagemaker_short_timestamp and four hexadecimal digits)."""

EXECUTION, JOB = "{execution id}", "{job name}"


CODE = (
    "code",
    "sm_drivers",
    "entrypoint",
    "aux",
    "sm_rf_user_ws",
    "sagemaker_remote_function_bootstrap",
    "pre_exec_script_and_dependencies",
)
"""Names of channels and inputs by which the SDKs pass code: sagemaker.train.constants and
sagemaker.core.processing of SDK 3.27. The last three are those of ``@step``
(sagemaker.core.remote_function.job)."""

_SOURCE = re.compile(
    r"(?:.*\.)?(?:InputDataConfig|ProcessingInputs)\[(?P<name>.+)\](?:\.\w+)*\.S3Uri"
    r"|(?:.*\.)?(?P<transform>TransformInput)(?:\.\w+)*\.S3Uri"
)
_SUBMIT_DIRECTORY = re.compile(
    r"(?i:(?:.*\.)?(?:Static)?(?:HyperParameters|Environment)\.(sagemaker_submit_directory))"
)
_SCRIPT = re.compile(r"\S+\.(?:py|sh|ipynb|R|jar|tar\.gz)")
_ARCHIVE = re.compile(r"(?:.*/)?source(?:dir)?\.tar\.gz")


WIRE, OWN_MARK = "\ue000", "\ue001"
"""Marks before the text that replaces a reference: ``WIRE`` if it refers to another step's result,
``OWN_MARK`` if to a value of the execution itself, such as its ID. The characters are of Unicode's
private use area, so no text of a definition contains them."""


def make_comparison_key(value: Any, stand_ins: Mapping[str, str]) -> str:
    """Return ``value`` as text without what differs in every run, for comparing two runs.

    Args:
        value: a value of a field.
        stand_ins: mapping of a name that only this run has, such as its ID, to the text that
            replaces it.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    result = render_value(value)
    # The longest name is replaced first, because a name may be part of another.
    for name in sorted(stand_ins, key=len, reverse=True):
        result = result.replace(name, stand_ins[name])
    return STAMP.sub("{time}", result)


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs of a step in a run."""

    fields: Fields
    """Mapping of a path, as ``format_path`` writes it, to its value, in which references to other
    steps are kept."""

    uris: Mapping[str, str]
    """Mapping of a path to its S3 URI, with references resolved."""


def collect_step_inputs(
    step: Step, parameter_values: Mapping[str, Any], job: Mapping[str, Any]
) -> StepInputs:
    """Return the inputs of a step in a run.

    Args:
        step: the step in the run's definition.
        parameter_values: mapping of a parameter's name to its value in the run.
        job: response of the Describe operation for the job that the step started, from which
            the URIs of references are read; empty if there is none.
    """
    scope = UnstartedScope(parameter_values, otherwise=_mark_reference)
    inputs: Fields = {}
    uris: dict[str, str] = {}
    job_fields: dict[str, Any] | None = None
    for path, field in list_fields(step.document).items():
        value = evaluate_value(field.raw, scope, lenient=True)
        name = format_path(path)
        marked_text = value
        if not isinstance(value, str):
            # With ensure_ascii, the marks would be escaped and not be found.
            marked_text = json.dumps(value, default=str, ensure_ascii=False)
        if WIRE in marked_text or OWN_MARK in marked_text:
            if job_fields is None:
                # botocore's responses contain datetime objects.
                plain = json.loads(json.dumps(job, default=str))
                job_fields = {
                    format_path(path): field.raw for path, field in flatten_fields(plain).items()
                }
            actual = job_fields.get(name)
            if isinstance(actual, str) and _is_uri(actual):
                uris[name] = actual.strip('"')
            elif actual is not None and WIRE in marked_text:
                value = actual
        elif _is_uri(value):
            uris[name] = value.strip('"')
        value = _remove_marks(value)
        inputs[name] = Field(value, format_value(path, value))
    return StepInputs(inputs, uris)


def _mark_reference(name: str) -> str:
    """Return the text that replaces a reference that has no value in the definition."""
    return f"{OWN_MARK if name.startswith('Execution.') else WIRE}{format_reference(name)}"


def _is_uri(value: Any) -> bool:
    return isinstance(value, str) and value.strip('"').startswith("s3://")


def _remove_marks(value: Any) -> Any:
    """Return the value without the marks of references in its texts, at any depth."""
    if isinstance(value, str):
        return value.replace(WIRE, "").replace(OWN_MARK, "")
    if isinstance(value, list):
        return [_remove_marks(item) for item in value]
    if isinstance(value, dict):
        return {name: _remove_marks(item) for name, item in value.items()}
    return value


def build_parameter_fields(parameter_values: Mapping[str, Any]) -> Fields:
    """Return the parameters of a run as fields."""
    return {
        name: Field(
            value,
            format_value(name, format_parameter_value(value) if isinstance(value, bool) else value),
        )
        for name, value in parameter_values.items()
    }


@dataclass(frozen=True, slots=True)
class StepUris:
    """The code and the data of one step: mappings of a channel's or input's name to its S3 URI."""

    code: Mapping[str, str]
    data: Mapping[str, str]
    paths: frozenset[str]
    """Fields that contain the URIs."""


def split_code_and_data(uris: Mapping[str, str]) -> StepUris:
    """Split a step's URIs into those of its code and those of its data.

    ``uris`` maps a field's path to its URI. URIs in other fields, such as outputs, are left out.
    Code is in a channel or an input with a name that the SDKs use for it, or in an archive
    ``sourcedir.tar.gz`` that the toolkits of SDK 2 download (``sagemaker_submit_directory``), or in
    a file that is named like a script.
    """
    code: dict[str, str] = {}
    data: dict[str, str] = {}
    paths = set()
    for path, uri in uris.items():
        submit_match = _SUBMIT_DIRECTORY.fullmatch(path)
        source = None if submit_match else _SOURCE.fullmatch(path)
        if submit_match:
            code[submit_match[1].lower()] = uri
        elif source:
            name = source["name"] or source["transform"]
            (code if is_code(name, uri) else data)[name] = uri
        else:
            continue
        paths.add(path)
    return StepUris(code, data, frozenset(paths))


def is_code_variable(key: str) -> bool:
    """Return whether a hyperparameter or variable named ``key`` contains the URI of code."""
    return _SUBMIT_DIRECTORY.fullmatch(f"Environment.{key}") is not None


def is_code(name: str, uri: str) -> bool:
    """Return whether a channel or an input with this name and URI contains code."""
    if _SCRIPT.fullmatch(uri) and not uri.endswith(".tar.gz"):
        return True
    return name in CODE or _ARCHIVE.fullmatch(uri) is not None


# Read archives in memory, without unpacking them to disk.
#
# An archive is not trusted: it may unpack to more than a disk can hold, contain paths outside the
# target folder, or not be an archive. Only regular files are read, no path is followed, and limits
# below apply to the number of bytes that are really read.


LARGEST = 20_000_000
"""Largest number of bytes of an archive that is downloaded."""
LARGEST_TEXT = 1_000_000
"""Largest number of bytes of a file that is shown as text."""
UNPACKED = 50_000_000
"""Largest number of bytes that an archive may unpack to; the rest is not read."""
MOST_FILES = 5_000

CONTEXT = 3
MOST_LINES = 4_000
"""Largest number of lines of a diff that are shown."""
LONGEST_LINE = 2_000
"""Largest number of characters of a line that are shown."""
MOST_PAIRS = 25_000_000
"""Largest product of the two versions' numbers of lines: difflib's time may grow with it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of an archive or a folder."""

    files: dict[str, str]
    """Mapping of a file's name to the SHA-256 of its content, or its ETag."""
    fault: str = ""
    """Reason why there may be more files than these; empty if these are all."""


class _BoundedStream(io.RawIOBase):
    """A stream that raises ``tarfile.ReadError`` if more than ``max_bytes`` bytes are read from
    it.
    """

    def __init__(self, inner: io.BufferedIOBase, max_bytes: int) -> None:
        self._inner, self._remaining = inner, max_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._remaining:
            # Read one byte more than the limit to find out whether there is more.
            size = self._remaining + 1
        chunk = self._inner.read(size)
        self._remaining -= len(chunk)
        if self._remaining < 0:
            raise tarfile.ReadError(f"it unpacks to more than {UNPACKED:,} bytes")
        return chunk


FAULTS = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError)
"""Exceptions that reading a broken archive may raise."""


def read_archive(archive: bytes) -> Contents:
    """Return the regular files of a ``.tar.gz``, and the reason if not all could be read."""
    texts: dict[str, str] = {}
    try:
        for name, stream in _iter_members(archive):
            if len(texts) == MOST_FILES:
                return Contents(texts, f"only its first {MOST_FILES:,} files were read")
            texts[name] = hashlib.sha256(stream.read()).hexdigest()
    except FAULTS as error:
        return Contents(texts, f"the archive cannot be read to its end: {error}")
    return Contents(texts)


def read_archive_file(archive: bytes, path: str) -> bytes | None:
    """Return the content of one file of an archive; None if there is no such file.

    At most one byte more than ``LARGEST_TEXT`` is returned, which shows that it is too large.
    """
    content = None
    try:
        for name, stream in _iter_members(archive):
            # Do not stop at the first: if two files have the same name, unpacking keeps the later.
            if name == path:
                content = stream.read(LARGEST_TEXT + 1)
    except FAULTS:
        # Use what was read before the archive's fault.
        return content
    return content


def _iter_members(archive: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    """Iterate over (name, content) of the regular files of an archive."""
    # Detect gzip by its magic number: tarfile's own detection would unpack without a limit.
    is_gzip = archive[:2] == b"\x1f\x8b"
    raw = io.BytesIO(archive)
    stream = _BoundedStream(gzip.GzipFile(fileobj=raw) if is_gzip else raw, UNPACKED)
    with tarfile.open(fileobj=stream, mode="r|", errors="replace") as tar:
        for member in tar:
            if member.isreg() and not member.issparse():
                content = tar.extractfile(member)
                if content is not None:
                    yield member.name.removeprefix("./"), content


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference between two versions of a file."""

    lines: tuple[str, ...] = ()
    """Lines of a unified diff, after its first two."""
    note: str = ""
    """Remark on what is not shown, and why."""


def compare_versions(old: bytes | None, new: bytes | None) -> Diff:
    """Return the changes from ``old`` to ``new``; a version is None if the file did not exist."""
    sides: list[list[str]] = []
    for content in (old or b"", new or b""):
        if len(content) > LARGEST_TEXT:
            return Diff(note=f"a version has more than {LARGEST_TEXT:,} bytes")
        try:
            sides.append(content.decode().split("\n") if content else [])
        except UnicodeDecodeError:
            return Diff(note="a binary file")
    if b"\0" in (old or b"") + (new or b""):
        return Diff(note="a binary file")
    if len(sides[0]) * len(sides[1]) > MOST_PAIRS:
        return Diff(note="the versions are too long to be compared line by line")
    lines = list(difflib.unified_diff(sides[0], sides[1], n=CONTEXT, lineterm=""))[2:]
    more = len(lines) - MOST_LINES
    note = f"{more:,} further lines of the difference are not shown" if more > 0 else ""
    return Diff(tuple(line[:LONGEST_LINE] for line in lines[:MOST_LINES]), note)
