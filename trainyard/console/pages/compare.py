"""Comparison of two executions: their inputs, how they ran, and their results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError
from flask import Blueprint, Response, render_template, request, url_for
from markupsafe import Markup
from werkzeug.exceptions import BadRequest

from trainyard.aws_clients import read_error_code
from trainyard.common.errors import ServiceError
from trainyard.console import account_cache
from trainyard.console.account_cache import Account, Snapshot, get_account, read_concurrently
from trainyard.console.metric_curves import Metrics, read_metrics
from trainyard.console.outcomes import format_number, make_importance_key, sort_by_importance
from trainyard.console.pages.charts import Curve, render_curve_chart
from trainyard.console.shown_step import read_definition
from trainyard.language.definition_document import Step as StepDefinition
from trainyard.language.definition_document import iter_steps
from trainyard.plan.cache_prediction import list_objects
from trainyard.plan.definition_diff import Fields
from trainyard.runs.execution import Step
from trainyard.runs.run_differences import (
    EXECUTION,
    JOB,
    LARGEST,
    LARGEST_TEXT,
    Contents,
    StepUris,
    build_parameter_fields,
    collect_step_inputs,
    compare_versions,
    make_comparison_key,
    read_archive,
    read_archive_file,
    split_code_and_data,
)
from trainyard.runs.run_display import format_duration
from trainyard.runs.run_values import (
    build_property_file_uri,
    is_overwritten,
    iter_json_numbers,
    read_object,
)

LONG = 3_600.0  # seconds for which a final response is reused
GOOD = 60.0  # seconds for which a listing of S3 is reused
NUMBERS = 200  # maximum numbers of one property file that are shown
OBJECTS = 1_000  # maximum objects of an input that are compared


@dataclass(frozen=True, slots=True)
class Value:
    """The value that one execution has for a name."""

    text: str
    key: str  # equal for equal values; empty if it cannot be known whether they are equal
    number: float | None = None
    file: str = ""  # ``<step>/<place>/<path>`` if it is a file of code


Group = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A step of an execution."""

    definition: StepDefinition
    step: Step | None
    job: Mapping[str, Any]  # description of its job; empty without a job
    step_uris: StepUris


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two executions."""

    name: str  # ``<pipeline>/<execution>``, as in the address
    snapshot: Snapshot | None = None
    works: Mapping[str, Work] = field(default_factory=dict)
    tables: Mapping[str, Group] = field(default_factory=dict)  # title of a table to its rows
    fault: str = ""  # why it cannot be read

    @property
    def title(self) -> str:
        """Return the name that the user gave the execution, or its pipeline and time."""
        pipeline, _, execution = self.name.partition("/")
        return self.snapshot.format_title(pipeline, execution) if self.snapshot else execution


@dataclass(frozen=True, slots=True)
class Row:
    """A name, and the values that the two executions have for it."""

    name: str
    values: tuple[Value | None, Value | None]

    @property
    def is_different(self) -> bool:
        """Return whether the executions have, or may have, different values."""
        first, other = self.values
        return first is None or other is None or not first.key or first.key != other.key

    @property
    def delta(self) -> str:
        """Return the second number minus the first, as text."""
        first, other = (value.number if value else None for value in self.values)
        # The last condition is true for NaN, which is also the difference of two infinities.
        if (
            first is None
            or other is None
            or not self.is_different
            or other - first != other - first
        ):
            return ""
        share = f" ({(other - first) / abs(first):+.1%})" if first else ""
        return f"{other - first:+,.4g}{share}"


def select_rows(sides: Sequence[Side], table: str, *, everything: bool) -> list[Row]:
    """Return the rows of a table in which the executions differ, or all if ``everything``."""
    first, second = (side.tables.get(table, {}) for side in sides)
    all_rows = (Row(name, (first.get(name), second.get(name))) for name in {**first, **second})
    return [row for row in all_rows if everything or row.is_different]


def read_side(aws: Account, name: str) -> Side:
    """Read one execution for the comparison; if the service refuses, return only its ``fault``."""
    pipeline, _, execution = name.partition("/")
    try:
        snapshot = aws.read_snapshot(pipeline, execution)
        version, lifetime = repr(snapshot), LONG if snapshot.is_ended else aws.seconds
        read = partial(_read_side, aws, name, aws.find_execution_arn(pipeline, execution), snapshot)
        return aws.read_cached(("compare: side", name, version), read, lifetime)
    except ServiceError as error:
        return Side(name=name, fault=str(error))


def _read_side(aws: Account, name: str, arn: str, snapshot: Snapshot) -> Side:
    """Read all data of one execution that the page compares."""
    run_definition = read_definition(aws, arn)
    steps_by_name = {step.name: step for step in snapshot.steps}
    # Names that occur only in this execution are replaced, because they would make equal values
    # look different.
    stand_ins = {arn.rpartition("/")[2]: EXECUTION}
    for step in snapshot.steps:
        if source := step.source.rpartition("/")[2]:
            stand_ins[source] = EXECUTION
        if step.job:
            stand_ins[step.job[1]] = JOB
    works: dict[str, Work] = {}
    settings = dict(_iter_run_values(snapshot, stand_ins)) | _group_fields(
        build_parameter_fields(run_definition.parameters), stand_ins, ""
    )
    for definition in iter_steps(run_definition.document.get("Steps")):
        step = steps_by_name.get(definition.name)
        job = _read_job(aws, step) if step else {}
        was = collect_step_inputs(definition, run_definition.parameters, job)
        step_places = split_code_and_data(was.uris)
        works[definition.name] = Work(
            definition=definition, step=step, job=job, step_uris=step_places
        )
        status = step.status if step else "not begun"
        settings[f"{definition.name}: status"] = Value(status, status)
        settings |= _group_fields(was.fields, stand_ins, f"{definition.name}: ", step_places.paths)
    times = {step.title: step.seconds for step in snapshot.steps if step.ended}
    tables = {
        "Metrics": dict(_iter_metrics(aws, works)),
        "Parameters and arguments": settings,
        "Code": dict(_iter_code(aws, works)),
        "Data": dict(_iter_data(aws, works)),
        "Times": {
            name: Value(format_duration(s), format_duration(s), s)
            for name, s in times.items()
            if s is not None
        },
    }
    return Side(name=name, snapshot=snapshot, works=works, tables=tables)


def _read_job(aws: Account, step: Step) -> Mapping[str, Any]:
    """Return the description of the step's job, or {} if it cannot be read."""
    try:
        return aws.read_job(step)
    except ServiceError:
        # The job may have been deleted.
        return {}


def _group_fields(
    fields: Fields, stand_ins: Mapping[str, str], prefix: str, without: frozenset[str] = frozenset()
) -> Group:
    """Return the fields as values by ``prefix`` and path, except the paths in ``without``."""
    return {
        f"{prefix}{path}": Value(field.text, make_comparison_key(field.raw, stand_ins))
        for path, field in fields.items()
        if path not in without
    }


def _iter_run_values(
    snapshot: Snapshot, stand_ins: Mapping[str, str]
) -> Iterator[tuple[str, Value]]:
    """Yield the values that belong to the execution itself and not to a step."""
    yield "status", Value(snapshot.status, snapshot.status)
    for name, member in (
        ("failure reason", "FailureReason"),
        ("description", "PipelineExecutionDescription"),
    ):
        if value := snapshot.described.get(member):
            yield name, Value(str(value), make_comparison_key(value, stand_ins))


def _iter_metrics(aws: Account, works: Mapping[str, Work]) -> Iterator[tuple[str, Value]]:
    """Yield the metrics by name, such as ``Train.loss`` or ``Evaluate.report.accuracy.value``."""
    for name, work in works.items():
        for metric in work.job.get("FinalMetricDataList") or ():
            number = float(metric.get("Value", "nan"))
            yield f"{name}.{metric.get('MetricName')}", _make_number_value(number)
        for property_file in work.definition.document.get("PropertyFiles") or ():
            for path, number in _read_numbers(aws, work, property_file):
                yield (
                    f"{name}.{property_file.get('PropertyFileName')}.{path}",
                    _make_number_value(number),
                )


def _make_number_value(number: float) -> Value:
    return Value(format_number(number), repr(number), number)


def _read_numbers(
    aws: Account, work: Work, property_file: Mapping[str, Any]
) -> Sequence[tuple[str, float]]:
    """Return the numbers in a property file, or none if another job has overwritten it."""
    if (uri := build_property_file_uri(work.job, property_file)) is None:
        return ()
    try:
        write_time, content = aws.read_cached(
            ("compare: file", uri), lambda: read_object(aws.s3, uri), GOOD
        )
    except (ClientError, BotoCoreError):
        # The file may not exist, because its step has failed.
        return ()
    if is_overwritten(work.job, write_time):
        return ()
    return list(islice(iter_json_numbers(content), NUMBERS))


def _iter_data(aws: Account, works: Mapping[str, Work]) -> Iterator[tuple[str, Value]]:
    """Yield (name, value) of each input: the number and bytes of the objects at its URI now.

    If some are newer than the step, the input of the execution cannot be known.
    """
    for step, work in works.items():
        for name, uri in work.step_uris.data.items():
            listing = _read_listing(aws, uri)
            began = work.job.get("CreationTime") or (work.step.started if work.step else None)
            newer = sum(
                bool(began and item.get("LastModified", began) > began) for item in listing.objects
            )
            fault = listing.fault or f"{newer} objects were written since" * bool(newer)
            if fault:
                yield f"{step}: {name}", Value(f"{uri}\ncannot be known: {fault}", "")
                continue
            total = sum(item.get("Size", 0) for item in listing.objects)
            text = f"{uri}\n{len(listing.objects):,} objects, {total:,} bytes"
            marks = sorted(listing.marks.items())
            yield f"{step}: {name}", Value(text, repr(marks), float(total))


def _iter_code(aws: Account, works: Mapping[str, Work]) -> Iterator[tuple[str, Value]]:
    """Yield every file of each step's code."""
    for step, work in works.items():
        for name, uri in work.step_uris.code.items():
            contents = list_code_files(aws, uri)
            if contents.fault:
                text = f"{uri}\ncannot be known: {contents.fault}"
                yield f"{step}: {name}", Value(text, "")
            for path, digest in contents.files.items():
                address = f"{step}/{name}/{path}"
                yield f"{step}: {name}/{path}", Value(digest[:8], digest, file=address)


@dataclass(frozen=True, slots=True)
class _Objects:
    """The objects at a URI in S3."""

    objects: Sequence[Mapping[str, Any]] = ()
    marks: Mapping[str, str] = field(default_factory=dict)  # key below the folder to ETag
    fault: str = ""


def _read_listing(aws: Account, uri: str) -> _Objects:
    """Return the objects at a URI."""

    def read() -> _Objects:
        try:
            objects = list_objects(aws.s3, uri, OBJECTS)
        except ClientError as error:
            return _Objects(fault=f"it cannot be listed ({read_error_code(error)})")
        except BotoCoreError as error:
            return _Objects(fault=f"it cannot be listed ({error})")
        folder = uri.removeprefix("s3://").partition("/")[2].rstrip("/")
        marks = {
            item["Key"].removeprefix(folder).lstrip("/")
            or item["Key"].rpartition("/")[2]: item.get("ETag", "").strip('"')
            for item in objects
        }
        more = f"it has {OBJECTS:,} objects or more" if len(objects) == OBJECTS else ""
        return _Objects(objects, marks, more if objects else "it no longer has objects")

    return aws.read_cached(("compare: listing", uri), read, GOOD)


def list_code_files(aws: Account, uri: str) -> Contents:
    """Return the files of the code at ``uri``, which is a folder or an archive."""
    listing = _read_listing(aws, uri)
    if listing.fault or not uri.endswith((".tar.gz", ".tgz", ".tar")):
        return Contents(dict(listing.marks), listing.fault)
    if listing.objects[0].get("Size", 0) > LARGEST:
        return Contents({}, f"the archive has more than {LARGEST:,} bytes")
    marks = tuple(listing.marks.values())
    read = lambda: read_archive(_read_bytes(aws, uri, LARGEST))  # noqa: E731
    return aws.read_cached(("compare: archive", uri, marks), read, LONG)


def read_code_file(aws: Account, work: Work | None, code_name: str, path: str) -> bytes | None:
    """Return one file of a step's code, at most as much as can be shown, or None if missing."""
    uri = work.step_uris.code.get(code_name) if work else None
    if uri is None or path not in list_code_files(aws, uri).files:
        return None
    if uri.endswith((".tar.gz", ".tgz", ".tar")):
        return read_archive_file(_read_bytes(aws, uri, LARGEST), path)
    # The URI may be that of a folder, or that of the file itself.
    return _read_bytes(aws, f"{uri.rstrip('/')}/{path}", LARGEST_TEXT + 1) or _read_bytes(
        aws, uri, LARGEST_TEXT + 1
    )


def _read_bytes(aws: Account, uri: str, limit: int) -> bytes:
    """Return at most ``limit`` bytes of an object; empty if it cannot be read."""
    bucket, _, name = uri.removeprefix("s3://").partition("/")
    try:
        with aws.s3.get_object(Bucket=bucket, Key=name)["Body"] as body:
            data: bytes = body.read(limit)
    except (ClientError, BotoCoreError):
        # The listing has already reported the error.
        return b""
    return data


page = Blueprint("compare", __name__)

TABLES = ("Metrics", "Parameters and arguments", "Code", "Data", "Times")
MOST = 4  # maximum number of metrics whose curves are drawn
FIRST = 12  # number of metrics that are shown at first; the others are folded


def _get_runs() -> tuple[str, ...]:
    """Return the executions that the address names.

    Raises:
        BadRequest: there are more than two, or one is not ``<pipeline>/<execution>``.
    """
    runs = tuple(dict.fromkeys(run for run in request.args.getlist("run") if run.strip()))
    if len(runs) > 2:
        raise BadRequest(f"{len(runs)} runs: only two can be compared; choose two")
    for run in runs:
        if not all(run.partition("/")[::2]) or run.count("/") > 1:
            raise BadRequest(f"run={run}: expected <pipeline>/<execution id>")
    return runs


@page.get("/compare")
def show_comparison() -> Response:
    """Show the executions in the address, each as ``run=<pipeline>/<execution>``."""
    aws, runs = get_account(), _get_runs()
    sides = read_concurrently(partial(read_side, aws), runs)
    everything = "all" in request.args
    common = {"sides": sides, "everything": everything, "address": _build_address}
    tables = {}
    if len(sides) == 2:
        tables = {name: select_rows(sides, name, everything=everything) for name in TABLES}
        tables["Metrics"].sort(key=lambda row: make_importance_key(row.name))
    changes, file_address = "", request.args.get("file", "")
    if file_address and len(sides) == 2:
        step, code_name, path = (*file_address.split("/", 2), "", "")[:3]
        contents = [
            read_code_file(aws, run_side.works.get(step), code_name, path) for run_side in sides
        ]
        common |= {"file": file_address, "found": compare_versions(*contents)}
        changes = render_template("compare/changes.html.j2", **common)
    parts = {
        "runs": render_template("compare/runs.html.j2", **common),
        "changes": changes,
        "curves": render_template("compare/curves.html.j2", plots=_render_curves(aws, sides)),
        "tables": render_template("compare/tables.html.j2", **common, tables=tables, first=FIRST),
    }
    goes_on = any(run_side.snapshot and not run_side.snapshot.is_ended for run_side in sides)
    return account_cache.make_page_response("compare.html.j2", parts, goes_on=goes_on)


def _build_address(**arguments: str | None) -> str:
    """Return the page's address with changes to its query; None removes a parameter."""
    args = request.args.to_dict(flat=False) | {
        name: [value] if value else [] for name, value in arguments.items()
    }
    return f"{url_for('compare.show_comparison')}?{urlencode(args, doseq=True)}"


def _render_curves(aws: Account, sides: Sequence[Side]) -> list[Markup]:
    """Return a plot for each of the most important metrics, with the curves of both executions."""
    if len(sides) < 2:
        return []
    curves_by_side = [_read_side_metrics(aws, run_side) for run_side in sides]
    names = list(dict.fromkeys(name for side_curves in curves_by_side for name in side_curves))
    names = sort_by_importance(names)
    titles = [f"{n} {run_side.title}" for n, run_side in enumerate(sides, 1)]
    charts = []
    for i, name in enumerate(names[:MOST]):
        entries = [
            (n, *side_curves[name])
            for n, side_curves in enumerate(curves_by_side, 1)
            if name in side_curves
        ]
        metric = name.partition(".")[2]
        curves = [Curve(titles[n - 1], job, metric, metrics) for n, job, metrics in entries]
        charts.append(render_curve_chart(f"curve-{i}", name, curves))
    return charts


def _read_side_metrics(aws: Account, run_side: Side) -> dict[str, tuple[str, Metrics]]:
    """Return {``<step>.<metric>``: (training job, metrics of the job)}."""
    curves: dict[str, tuple[str, Metrics]] = {}
    for step, work in run_side.works.items():
        job = work.step.job if work.step else None
        if not job or job[0] != "TrainingJob" or not work.job:
            continue
        try:
            metrics = read_metrics(aws, job[1])
        except ServiceError:
            # The tables are shown anyway, without these curves.
            continue
        curves |= {f"{step}.{name}": (job[1], metrics) for name in list(metrics.samples)}
    return curves
