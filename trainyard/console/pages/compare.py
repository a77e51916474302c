"""Two runs side by side: their inputs, their course, and their results."""

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

from trainyard.aws_clients import error_code
from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import Account, Snapshot, account, each
from trainyard.console.metric_curves import Metrics, read
from trainyard.console.outcomes import by_importance, importance
from trainyard.console.pages.charts import Curve, curve_chart
from trainyard.console.shown_step import defined
from trainyard.console.template_filters import figure
from trainyard.language.steps import Step as Declared
from trainyard.language.steps import steps_of
from trainyard.plan.s3_listing import listed
from trainyard.plan.step_fields import Fields
from trainyard.runs.evaluation_numbers import in_json, is_overwritten, place, read_object
from trainyard.runs.execution import Step
from trainyard.runs.run_differences import (
    EXECUTION,
    JOB,
    LARGEST,
    LARGEST_TEXT,
    Contents,
    Places,
    contents,
    diff,
    file,
    key,
    parameter_fields,
    places,
    step_inputs,
)
from trainyard.runs.step_table import duration

LONG = 3_600.0  # seconds for which a final answer is reused
GOOD = 60.0  # seconds for which a listing of S3 is reused
NUMBERS = 200  # most numbers shown of one property file
OBJECTS = 1_000  # most objects of an input that are compared


@dataclass(frozen=True, slots=True)
class Value:
    """The value that one run has for a name."""

    text: str
    key: str  # key that is equal for equal values; empty if equality cannot be determined
    number: float | None = None
    file: str = ""  # ``<step>/<place>/<path>`` of a file of code


Group = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A step of a run."""

    declared: Declared
    step: Step | None
    job: Mapping[str, Any]  # describe's answer for its job; empty without a job
    places: Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs."""

    name: str  # name ``<pipeline>/<execution>``, as in the address
    snapshot: Snapshot | None = None
    works: Mapping[str, Work] = field(default_factory=dict)
    tables: Mapping[str, Group] = field(default_factory=dict)  # title of a table → its rows
    fault: str = ""  # why it cannot be read

    @property
    def title(self) -> str:
        """Name that people gave the run, or pipeline and time."""
        pipeline, _, execution = self.name.partition("/")
        return self.snapshot.title(pipeline, execution) if self.snapshot else execution


@dataclass(frozen=True, slots=True)
class Row:
    """A name, and the two runs' values for it."""

    name: str
    values: tuple[Value | None, Value | None]

    @property
    def differs(self) -> bool:
        """True if the runs have, or may have, different values."""
        one, other = self.values
        return one is None or other is None or not one.key or one.key != other.key

    @property
    def delta(self) -> str:
        """Difference of the second number from the first, as text."""
        one, other = (value.number if value else None for value in self.values)
        if one is None or other is None or not self.differs or other - one != other - one:
            return ""
        share = f" ({(other - one) / abs(one):+.1%})" if one else ""
        return f"{other - one:+,.4g}{share}"


def rows(sides: Sequence[Side], table: str, *, everything: bool) -> list[Row]:
    """Return the rows of a table in which the runs differ; ``everything``: all rows."""
    first, second = (side.tables.get(table, {}) for side in sides)
    found = (Row(name, (first.get(name), second.get(name))) for name in {**first, **second})
    return [row for row in found if everything or row.differs]


def side(here: Account, name: str) -> Side:
    """Return the run of that name, or why the service refuses it."""
    pipeline, _, execution = name.partition("/")
    try:
        snapshot = here.snapshot(pipeline, execution)
        version, good = repr(snapshot), LONG if snapshot.is_ended else here.seconds
        read = partial(_read, here, name, here.arn(pipeline, execution), snapshot)
        return here.lately(("compare: side", name, version), read, good)
    except ServiceError as error:
        return Side(name=name, fault=str(error))


def _read(here: Account, name: str, arn: str, snapshot: Snapshot) -> Side:
    asked = defined(here, arn)
    begun = {step.name: step for step in snapshot.steps}
    own = _own(arn.rpartition("/")[2], snapshot.steps)
    works: dict[str, Work] = {}
    settings = dict(_of_run(snapshot, own)) | _group(parameter_fields(asked.parameters), own, "")
    for one in steps_of(asked.document.get("Steps")):
        step = begun.get(one.name)
        job = _job(here, step) if step else {}
        was = step_inputs(one, asked.parameters, job)
        where = places(was.uris)
        works[one.name] = Work(declared=one, step=step, job=job, places=where)
        status = step.status if step else "not begun"
        settings[f"{one.name}: status"] = Value(status, status)
        settings |= _group(was.fields, own, f"{one.name}: ", where.paths)
    times = {step.title: step.seconds for step in snapshot.steps if step.ended}
    tables = {
        "Metrics": dict(_metrics(here, works)),
        "Parameters and arguments": settings,
        "Code": dict(_code(here, works)),
        "Data": dict(_data(here, works)),
        "Times": {
            name: Value(duration(s), duration(s), s) for name, s in times.items() if s is not None
        },
    }
    return Side(name=name, snapshot=snapshot, works=works, tables=tables)


def _job(here: Account, step: Step) -> Mapping[str, Any]:
    try:
        return here.job(step)
    except ServiceError:  # jobs may have been deleted
        return {}


def _own(execution: str, steps: Sequence[Step]) -> dict[str, str]:
    """Return the texts that only this run has → their placeholders."""
    found = {execution: EXECUTION}
    for step in steps:
        if source := step.source.rpartition("/")[2]:
            found[source] = EXECUTION
        if step.job:
            found[step.job[1]] = JOB
    return found


def _group(
    fields: Fields, own: Mapping[str, str], prefix: str, without: frozenset[str] = frozenset()
) -> Group:
    return {
        f"{prefix}{path}": Value(one.text, key(one.raw, own))
        for path, one in fields.items()
        if path not in without
    }


def _of_run(snapshot: Snapshot, own: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    yield "status", Value(snapshot.status, snapshot.status)
    for name, member in (
        ("failure reason", "FailureReason"),
        ("description", "PipelineExecutionDescription"),
    ):
        if value := snapshot.described.get(member):
            yield name, Value(str(value), key(value, own))


def _metrics(here: Account, works: Mapping[str, Work]) -> Iterator[tuple[str, Value]]:
    """Return metrics: ``Train.loss``, ``Evaluate.report.accuracy.value`` → number."""
    for name, work in works.items():
        for metric in work.job.get("FinalMetricDataList") or ():
            number = float(metric.get("Value", "nan"))
            yield f"{name}.{metric.get('MetricName')}", _figure(number)
        for one in work.declared.document.get("PropertyFiles") or ():
            for path, number in _numbers(here, work, one):
                yield f"{name}.{one.get('PropertyFileName')}.{path}", _figure(number)


def _figure(number: float) -> Value:
    return Value(figure(number), repr(number), number)


def _numbers(here: Account, work: Work, one: Mapping[str, Any]) -> Sequence[tuple[str, float]]:
    """Return the numbers in a property file, unless another job has overwritten it."""
    if (where := place(work.job, one)) is None:
        return ()
    try:
        written, content = here.lately(
            ("compare: file", where), lambda: read_object(here.s3, where), GOOD
        )
    except (ClientError, BotoCoreError):  # a failed step has not written it
        return ()
    if is_overwritten(work.job, written):
        return ()
    return list(islice(in_json(content), NUMBERS))


def _data(here: Account, works: Mapping[str, Work]) -> Iterator[tuple[str, Value]]:
    """Return the objects now at each input's URI, and whether they are newer than the run's
    start.
    """
    for step, work in works.items():
        for name, uri in work.places.data.items():
            found = _objects(here, uri)
            began = work.job.get("CreationTime") or (work.step.started if work.step else None)
            newer = sum(
                bool(began and one.get("LastModified", began) > began) for one in found.objects
            )
            fault = found.fault or f"{newer} objects were written since" * bool(newer)
            if fault:
                yield f"{step}: {name}", Value(f"{uri}\ncannot be known: {fault}", "")
                continue
            total = sum(one.get("Size", 0) for one in found.objects)
            said = f"{uri}\n{len(found.objects):,} objects, {total:,} bytes"
            marks = sorted(found.marks.items())
            yield f"{step}: {name}", Value(said, repr(marks), float(total))


def _code(here: Account, works: Mapping[str, Work]) -> Iterator[tuple[str, Value]]:
    """Return every file of each step's code."""
    for step, work in works.items():
        for name, uri in work.places.code.items():
            found = code(here, uri)
            if found.fault:
                said = f"{uri}\ncannot be known: {found.fault}"
                yield f"{step}: {name}", Value(said, "")
            for path, digest in found.files.items():
                where = f"{step}/{name}/{path}"
                yield f"{step}: {name}/{path}", Value(digest[:8], digest, file=where)


@dataclass(frozen=True, slots=True)
class _Objects:
    """The objects at a URI in S3."""

    objects: Sequence[Mapping[str, Any]] = ()
    marks: Mapping[str, str] = field(default_factory=dict)  # key below the folder → ETag
    fault: str = ""


def _objects(here: Account, uri: str) -> _Objects:
    def read() -> _Objects:
        try:
            found = listed(here.s3, uri, OBJECTS)
        except ClientError as error:
            return _Objects(fault=f"it cannot be listed ({error_code(error)})")
        except BotoCoreError as error:
            return _Objects(fault=f"it cannot be listed ({error})")
        folder = uri.removeprefix("s3://").partition("/")[2].rstrip("/")
        marks = {
            one["Key"].removeprefix(folder).lstrip("/") or one["Key"].rpartition("/")[2]: one.get(
                "ETag", ""
            ).strip('"')
            for one in found
        }
        more = f"it has {OBJECTS:,} objects or more" if len(found) == OBJECTS else ""
        return _Objects(found, marks, more if found else "it no longer has objects")

    return here.lately(("compare: listing", uri), read, GOOD)


def code(here: Account, uri: str) -> Contents:
    """Return the files of the code at ``uri``: a folder's objects, or an archive's contents."""
    found = _objects(here, uri)
    if found.fault or not uri.endswith((".tar.gz", ".tgz", ".tar")):
        return Contents(dict(found.marks), found.fault)
    if found.objects[0].get("Size", 0) > LARGEST:
        return Contents({}, f"the archive has more than {LARGEST:,} bytes")
    marks = tuple(found.marks.values())
    read = lambda: contents(_bytes(here, uri, LARGEST))  # noqa: E731
    return here.lately(("compare: archive", uri, marks), read, LONG)


def content(here: Account, work: Work | None, place: str, path: str) -> bytes | None:
    """Return one file of a step's code, as far as it can be shown; None if it does not exist."""
    uri = work.places.code.get(place) if work else None
    if uri is None or path not in code(here, uri).files:
        return None
    if uri.endswith((".tar.gz", ".tgz", ".tar")):
        return file(_bytes(here, uri, LARGEST), path)
    return _bytes(here, f"{uri.rstrip('/')}/{path}", LARGEST_TEXT + 1) or _bytes(
        here, uri, LARGEST_TEXT + 1
    )


def _bytes(here: Account, uri: str, most: int) -> bytes:
    """Return at most ``most`` bytes of an object; empty if it is missing."""
    bucket, _, name = uri.removeprefix("s3://").partition("/")
    try:
        with here.s3.get_object(Bucket=bucket, Key=name)["Body"] as body:
            found: bytes = body.read(most)
    except (ClientError, BotoCoreError):  # the listing reports the error
        return b""
    return found


page = Blueprint("compare", __name__)

TABLES = ("Metrics", "Parameters and arguments", "Code", "Data", "Times")
MOST = 4  # most metrics whose curves are drawn
FIRST = 12  # metrics that are shown at once; the others are folded


def _chosen() -> tuple[str, ...]:
    """Return the runs that the address names.

    Raises:
        BadRequest: more than two, or one that is not ``<pipeline>/<execution>``.
    """
    runs = tuple(dict.fromkeys(run for run in request.args.getlist("run") if run.strip()))
    if len(runs) > 2:
        raise BadRequest(f"{len(runs)} runs: only two can be compared; choose two")
    for run in runs:
        if not all(run.partition("/")[::2]) or run.count("/") > 1:
            raise BadRequest(f"run={run}: expected <pipeline>/<execution id>")
    return runs


@page.get("/compare")
def compare() -> Response:
    """Show the runs in the address, each as ``run=<pipeline>/<execution>``."""
    here, runs = account(), _chosen()
    sides = each(partial(side, here), runs)
    everything = "all" in request.args
    common = {"sides": sides, "everything": everything, "address": _address}
    tables = {}
    if len(sides) == 2:
        tables = {name: rows(sides, name, everything=everything) for name in TABLES}
        tables["Metrics"].sort(key=lambda row: importance(row.name))
    changes, wanted = "", request.args.get("file", "")
    if wanted and len(sides) == 2:
        step, place, path = (*wanted.split("/", 2), "", "")[:3]
        found = [content(here, one.works.get(step), place, path) for one in sides]
        common |= {"file": wanted, "found": diff(*found)}
        changes = render_template("compare/changes.html.j2", **common)
    parts = {
        "runs": render_template("compare/runs.html.j2", **common),
        "changes": changes,
        "curves": render_template("compare/curves.html.j2", plots=_curves(here, sides)),
        "tables": render_template("compare/tables.html.j2", **common, tables=tables, first=FIRST),
    }
    goes_on = any(one.snapshot and not one.snapshot.is_ended for one in sides)
    return live_pages.answer("compare.html.j2", parts, goes_on=goes_on)


def _address(**changed: str | None) -> str:
    """Return the page's address with other choices; None removes a choice."""
    args = request.args.to_dict(flat=False) | {
        name: [value] if value else [] for name, value in changed.items()
    }
    return f"{url_for('compare.compare')}?{urlencode(args, doseq=True)}"


def _curves(here: Account, sides: Sequence[Side]) -> list[Markup]:
    """Draw the curves of both runs in one plot each, by their steps' counters."""
    if len(sides) < 2:
        return []
    measured = [_of_side(here, one) for one in sides]
    names = list(dict.fromkeys(name for one in measured for name in one))
    names = by_importance(names)
    titles = [f"{n} {one.title}" for n, one in enumerate(sides, 1)]
    drawn = []
    for i, name in enumerate(names[:MOST]):
        found = [(n, *one[name]) for n, one in enumerate(measured, 1) if name in one]
        metric = name.partition(".")[2]
        curves = [Curve(titles[n - 1], job, metric, metrics) for n, job, metrics in found]
        drawn.append(curve_chart(f"curve-{i}", name, curves))
    return drawn


def _of_side(here: Account, one: Side) -> dict[str, tuple[str, Metrics]]:
    """Return ``<step>.<metric>`` → its training job, and the job's metrics."""
    found: dict[str, tuple[str, Metrics]] = {}
    for step, work in one.works.items():
        job = work.step.job if work.step else None
        if not job or job[0] != "TrainingJob" or not work.job:
            continue
        try:
            metrics = read(here, job[1])
        except ServiceError:  # the tables stand without curves
            continue
        found |= {f"{step}.{name}": (job[1], metrics) for name in list(metrics.samples)}
    return found
