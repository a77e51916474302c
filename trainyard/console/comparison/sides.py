"""One run as a side of the comparison: what it was given, how it went, and what it made."""

import json
import time
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account, Snapshot
from trainyard.console.comparison.metrics import metrics
from trainyard.console.comparison.works import Group, Work, number
from trainyard.console.wording import usd
from trainyard.language.statuses import JOB_ENDED
from trainyard.language.steps import Step as Declared
from trainyard.language.steps import steps_of
from trainyard.plan.fields import Fields
from trainyard.plan.prices import Prices, load
from trainyard.runs.comparing.arguments import given, parameter_fields, parameters
from trainyard.runs.comparing.differences import Value
from trainyard.runs.comparing.folding import EXECUTION, JOB, key
from trainyard.runs.comparing.places import places
from trainyard.runs.execution import Step
from trainyard.runs.spent import JOBS, spent
from trainyard.runs.table import duration
from trainyard.service import error_code, service_errors

AT_ONCE = 8
"""Runs that are read at the same time."""
LONG = 3_600.0
"""Seconds for which an answer is good that can change no more."""
SETTLED = 60.0
"""Seconds for which an execution that has ended is taken for ended: somebody may retry it."""

MODEL, _GENERATED = "{model name}", "pipelines-"
"""What stands for a model's name, and how one begins that Pipelines has made up."""

TUNING = {"TuningJob": "HyperParameterTuningJob"}
"""Kinds of jobs whose operations have another name than the Metadata's member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run."""

    name: str
    """``<pipeline>/<execution>``, as in the address."""
    snapshot: Snapshot | None = None
    works: Mapping[str, Work] = field(default_factory=dict)
    run: Group = field(default_factory=dict)
    """Status, reason of a failure, and the definition's own fields."""
    parameters: Group = field(default_factory=dict)
    times: Group = field(default_factory=dict)
    costs: Group = field(default_factory=dict)
    metrics: Group = field(default_factory=dict)
    fault: str = ""
    """Why it cannot be read."""

    @property
    def is_ended(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.snapshot is None or self.snapshot.is_ended


def sides(here: Account, names: tuple[str, ...]) -> list[Side]:
    """The runs of these names, in their order."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(partial(side, here), names))


def stamp(here: Account, names: tuple[str, ...]) -> Hashable:
    """Differs when one of the runs has changed; while one runs, every second, too, since what its
    jobs measure changes nothing that an execution tells."""
    found = [_moment(here, name) for name in names]
    runs = any(snapshot is not None and not snapshot.is_ended for snapshot, _ in found)
    ticks = int(time.monotonic() / max(1.0, here.seconds)) if runs else None
    return hash((ticks, *(version for _, version in found)))


def _moment(here: Account, name: str) -> tuple[Snapshot | None, Hashable]:
    """Its snapshot, and what differs from that of another moment; of a run that has ended as it was
    a minute ago. Without a snapshot: why there is none."""
    pipeline, _, execution = name.partition("/")

    def read() -> tuple[Snapshot | None, Hashable]:
        try:
            found = here.snapshot(pipeline, execution)
        except ServiceError as error:
            return None, str(error)
        return found, hash(found.version)

    def good(found: tuple[Snapshot | None, Hashable]) -> float:
        is_ended = found[0] is not None and found[0].is_ended
        return SETTLED if is_ended else here.seconds / 2

    return here.lately(("compare: moment", name), read, good)


def side(here: Account, name: str) -> Side:
    """The run of that name; where the service refuses, why."""
    snapshot, version = _moment(here, name)
    if snapshot is None:
        return Side(name=name, fault=str(version))
    good = LONG if snapshot.is_ended else here.seconds
    try:
        return here.lately(
            ("compare: side", name, version), lambda: _read(here, name, snapshot), good
        )
    except ServiceError as error:
        return Side(name=name, fault=str(error))


def _read(here: Account, name: str, snapshot: Snapshot) -> Side:
    pipeline, _, execution = name.partition("/")
    arn = here.arn(pipeline, execution)
    document = here.lately(("compare: definition", arn), lambda: _definition(here, arn), LONG)
    listed = here.lately(("compare: parameters", arn), lambda: _parameters(here, arn), LONG)
    known = parameters(document, listed)
    begun = {step.name: step for step in snapshot.steps}
    jobs = {step.name: described(here, step) for step in snapshot.steps}
    own = names_of(execution, begun.values())
    works = {
        one.name: _work(one, begun.get(one.name), known, jobs.get(one.name, {}), own)
        for one in steps_of(document.get("Steps"))
    }
    return Side(
        name=name,
        snapshot=snapshot,
        works=works,
        run=dict(_of_run(snapshot, own)),
        parameters=_group(parameter_fields(known), own),
        times=_times(snapshot),
        costs=costs_of(here, begun, jobs),
        metrics=metrics(here, works),
    )


def _definition(here: Account, arn: str) -> dict[str, Any]:
    with service_errors(f"reading the definition of {arn}"):
        answer = here.sagemaker.describe_pipeline_definition_for_execution(PipelineExecutionArn=arn)
    try:
        found = json.loads(answer.get("PipelineDefinition") or "{}")
    except ValueError as error:
        raise ServiceError(f"the definition of {arn} is no JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _parameters(here: Account, arn: str) -> dict[str, str]:
    with service_errors(f"reading the parameters of {arn}"):
        pages = here.sagemaker.get_paginator("list_pipeline_parameters_for_execution")
        return {
            one["Name"]: one.get("Value", "")
            for page in pages.paginate(PipelineExecutionArn=arn)
            for one in page.get("PipelineParameters", ())
            if "Name" in one
        }


def described(here: Account, step: Step) -> Mapping[str, Any]:
    """Describe's answer for the step's job; empty without one, and for one that is gone."""
    kind, name = step.job or _tuning(step)
    if not kind:
        return {}
    api = TUNING.get(kind, kind)

    def good(job: Mapping[str, Any]) -> float:
        return LONG if not job or job.get(f"{api}Status") in JOB_ENDED else here.seconds

    return here.lately(("compare: job", api, name), partial(_described, here, api, name), good)


def _tuning(step: Step) -> tuple[str, str]:
    found = ((kind, step.metadata.get(kind, {}).get("Arn")) for kind in TUNING)
    return next(((kind, arn.rpartition("/")[2]) for kind, arn in found if arn), ("", ""))


def _described(here: Account, api: str, name: str) -> dict[str, Any]:
    operation = {
        "TrainingJob": "describe_training_job",
        "ProcessingJob": "describe_processing_job",
        "TransformJob": "describe_transform_job",
        "HyperParameterTuningJob": "describe_hyper_parameter_tuning_job",
    }[api]
    with service_errors(f"reading {name}"):
        try:
            answer: dict[str, Any] = getattr(here.sagemaker, operation)(**{f"{api}Name": name})
        except ClientError as error:
            if error_code(error) in ("ResourceNotFound", "ValidationException"):
                return {}  # jobs outlive no account's clean-up
            raise
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def names_of(execution: str, begun: Any) -> dict[str, str]:
    """What only this run has in its texts → what stands for it."""
    found = {execution: EXECUTION}
    for step in begun:
        if source := step.source.rpartition("/")[2]:
            found[source] = EXECUTION
        kind, name = step.job or _tuning(step)
        if kind:
            found[name] = JOB
        model = str((step.metadata.get("Model") or {}).get("Arn", "")).rpartition("/")[2]
        if model.startswith(_GENERATED):
            found[model] = MODEL
    return found


def _group(fields: Fields, own: Mapping[str, str], without: frozenset[str] = frozenset()) -> Group:
    return {
        path: Value(one.text, key(one.raw, own), number(one.raw))
        for path, one in fields.items()
        if path not in without
    }


def _work(
    declared: Declared,
    step: Step | None,
    known: Mapping[str, Any],
    job: Mapping[str, Any],
    own: Mapping[str, str],
) -> Work:
    was = given(declared, known, job)
    kinds = {p: one.text for p, one in was.fields.items() if p.endswith(".S3DataType")}
    where = places(was.uris, kinds)
    group = dict(_outcome(step, own)) | _group(was.fields, own, where.paths)
    return Work(declared=declared, step=step, job=job, places=where, group=group)


def _outcome(step: Step | None, own: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    if step is None:
        yield "status", Value("not begun", "not begun")
        return
    yield "status", Value(step.status, step.status)
    how = "cached" if step.cached else "reused" if step.reused else "ran"
    yield "result", Value(how, how)
    if step.reason:
        yield "failure reason", Value(step.reason, key(step.reason, own))


def _of_run(snapshot: Snapshot, own: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    yield "status", Value(snapshot.status, snapshot.status)
    for name, member in (
        ("failure reason", "FailureReason"),
        ("description", "PipelineExecutionDescription"),
        ("parallel steps", "ParallelismConfiguration"),
    ):
        value = snapshot.described.get(member)
        if isinstance(value, dict):
            value = value.get("MaxParallelExecutionSteps")
        if value:
            yield name, Value(str(value), key(value, own))


def _times(snapshot: Snapshot) -> Group:
    """Of what has ended; what runs still has no time that could be compared."""
    found = {step.title: step.seconds for step in snapshot.steps if step.ended}
    started = snapshot.described.get("CreationTime")
    ended = max((step.ended for step in snapshot.steps if step.ended), default=None)
    if snapshot.is_ended and started and ended:
        found = {"whole run": (ended - started).total_seconds(), **found}
    return {name: Value(duration(s), duration(s), s) for name, s in found.items() if s is not None}


def _prices(here: Account) -> Prices:
    return here.lately("compare: prices", lambda: load(here.sagemaker.meta.region_name), LONG)


def costs_of(here: Account, begun: Mapping[str, Step], jobs: Mapping[str, Any]) -> Group:
    """USD of the run and of its steps, by their titles; of a step without a price nothing."""
    found: dict[str, float | None] = {}
    for name, step in begun.items():
        kind = (step.job or ("", ""))[0]
        if kind in JOBS and (step.cached or step.reused):
            found[step.title] = 0.0
        elif kind in JOBS and jobs.get(name):
            found[step.title] = spent(kind, jobs[name], _prices(here), datetime.now(UTC)).usd
    priced = {name: cost for name, cost in found.items() if cost is not None}
    whole = {"whole run": sum(priced.values())} if priced else {}
    return {name: Value(usd(cost), usd(cost), cost) for name, cost in {**whole, **priced}.items()}
