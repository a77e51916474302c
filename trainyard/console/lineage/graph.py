"""The graph of a model package: its nodes, and what leads from one to the other."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flask import url_for

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.lineage.entities import producer
from trainyard.console.lineage.jobs import KINDS, Job, is_of, read_job, writer_of
from trainyard.console.registry import models_of, place_of
from trainyard.console.serving import config, endpoints, model, packages_of
from trainyard.console.serving import models_of as models_in
from trainyard.language.steps import Step, steps_of
from trainyard.runs.execution import Step as Begun
from trainyard.service import service_errors

THREADS = 8
MOST = 80
"""Nodes that are drawn."""

MOST_INPUTS = 10
"""Raw inputs of a job that are drawn each for itself."""

UNKNOWN = "cannot be known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is drawn as a box."""

    kind: str
    name: str
    detail: str = ""
    href: str = ""


@dataclass(slots=True)
class Lineage:
    """Nodes by their keys, and edges from what came first to what was made of it."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], str] = field(default_factory=dict)
    """(from, to) → what of it."""

    left_out: int = 0

    def add(self, key: str, node: Node) -> bool:
        """Whether it is new, and there is room for it."""
        if key in self.nodes:
            return False
        if len(self.nodes) >= MOST:
            self.left_out += 1
            return False
        self.nodes[key] = node
        return True

    def join(self, first: str, then: str, what: str = "") -> None:
        """An edge, where both ends are drawn."""
        if first in self.nodes and then in self.nodes and first != then:
            known = self.edges.get((first, then))
            words = [known] if known else []
            self.edges[first, then] = ", ".join(dict.fromkeys([*words, *filter(None, [what])]))


@dataclass(frozen=True, slots=True)
class Run:
    """The run that registered a package: its jobs, and which step waits for which."""

    pipeline: str
    execution: str
    jobs: tuple[Job, ...]
    before: Mapping[str, frozenset[str]]
    """Step → all steps that it depends on."""

    unread: tuple[str, ...]
    """Why jobs of it could not be read."""


def trace(
    account: Account, package: Mapping[str, Any], execution: tuple[str, str] | None
) -> Lineage:
    """From raw data to endpoints; ``execution``: (pipeline, id) of what registered the package."""
    found, arn = Lineage(), package["ModelPackageArn"]
    found.add(arn, _package_node(package))
    run, why = _run(account, execution)
    for uri, what in _sources(package):
        _source(account, found, run, uri, arn, what)
    if ":model-package/" in (other := str(package.get("SourceUri", ""))):
        found.add(other, _package_node({"ModelPackageArn": other}))
        found.join(other, arn, "copied")
    for text in why:
        _gap(found, arn, "its run", text)
    for text in run.unread if run else ():
        _gap(found, arn, "a job of its run", text)
    _served(account, found, arn)
    return found


def _package_node(package: Mapping[str, Any]) -> Node:
    group, version = place_of(package["ModelPackageArn"])
    return Node(
        kind="model package",
        name=f"{group} {version}".removeprefix("- "),
        detail=str(package.get("ModelApprovalStatus", "")),
        href=url_for("models.version", group=group, version=version),
    )


def _sources(package: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(S3 URI, what it is to the package)."""
    found = [(uri, "model") for uri in models_of(package)]
    for kind in (package.get("ModelMetrics") or {}).values():
        for name, at in kind.items():
            if at.get("S3Uri"):
                found.append((at["S3Uri"], name.lower()))
    return found


def _source(
    account: Account, found: Lineage, run: Run | None, uri: str, then: str, what: str
) -> None:
    """Who wrote ``uri``, and what that was made of."""
    writer = (_writer(run, uri) if run else None) or producer(account, uri)
    if writer is None and what == "model":
        writer = writer_of(account, uri)
    if writer is not None:
        _job(account, found, run, writer)
        found.join(_key(writer), then, what)
        return
    _stored(found, uri, then, what)
    if what == "model":
        why = f"no job that is known says that it wrote {uri}"
        _gap(found, uri, "who wrote it", why)


def _job(account: Account, found: Lineage, run: Run | None, job: Job) -> None:
    """The job and, once, all that it was made of."""
    if not found.add(_key(job), _job_node(run, job)):
        return
    for number, (name, source) in enumerate(job.reads):
        writer = _writer(run, source, job) if run else None
        if writer is None and number < MOST_INPUTS and source.startswith("s3://"):
            writer = producer(account, source)
        if writer is not None and writer.name != job.name:
            _job(account, found, run, writer)
            found.join(_key(writer), _key(job), name)
        elif number < MOST_INPUTS:
            _stored(found, source, _key(job), name)
        else:
            found.left_out += 1


def _writer(run: Run, uri: str, reader: Job | None = None) -> Job | None:
    """The last job of the run that wrote it; one that the reader depends on, by the definition."""
    before = run.before.get(reader.step) if reader else None  # a loop's steps have other names
    jobs = run.jobs[: run.jobs.index(reader)] if reader in run.jobs else run.jobs
    for job in reversed(jobs):
        if before is not None and job.step not in before:
            continue
        if any(is_of(uri, written) for written in job.writes):
            return job
    return None


def _stored(found: Lineage, source: str, then: str, what: str) -> None:
    if source.startswith("s3://"):
        name = "/".join(source.removeprefix("s3://").rstrip("/").split("/")[1:][-2:]) or source
        href = url_for("objects.show", uri=source)
        found.add(source, Node(kind="S3", name=name, detail=source, href=href))
    else:
        found.add(source, Node(kind="data", name=source))
    found.join(source, then, what)


def _gap(found: Lineage, then: str, what: str, why: str) -> None:
    key = f"gap {why}"
    found.add(key, Node(kind=UNKNOWN, name=what, detail=why))
    found.join(key, then)


def _key(job: Job) -> str:
    return f"{job.kind} {job.name}"


def _job_node(run: Run | None, job: Job) -> Node:
    href = ""
    if run and job.step:
        href = url_for("step.step", pipeline=run.pipeline, execution=run.execution, step=job.step)
    return Node(kind=KINDS[job.kind], name=job.step or job.name, detail=job.name, href=href)


def _served(account: Account, found: Lineage, arn: str) -> None:
    """Models that were made of the package, as far as an endpoint serves them now."""
    try:
        for one in endpoints(account):
            if arn in one.packages:
                _endpoint(account, found, arn, one.name, one.config, one.status)
    except ServiceError as error:
        key = "gap endpoints"
        found.add(key, Node(kind=UNKNOWN, name="endpoints", detail=str(error)))
        found.join(arn, key)


def _endpoint(
    account: Account, found: Lineage, arn: str, name: str, used: str, status: str
) -> None:
    here = url_for("models.models") + "#endpoints"
    found.add(f"config {used}", Node(kind="endpoint configuration", name=used, href=here))
    found.add(f"endpoint {name}", Node(kind="endpoint", name=name, detail=status, href=here))
    for each in models_in(config(account, used)):
        if arn in packages_of(model(account, each)):
            found.add(f"model {each}", Node(kind="model", name=each, href=here))
            found.join(arn, f"model {each}")
            found.join(f"model {each}", f"config {used}")
    found.join(f"config {used}", f"endpoint {name}")


def _run(account: Account, execution: tuple[str, str] | None) -> tuple[Run | None, list[str]]:
    """(the run, why it cannot be known)."""
    if execution is None:
        return None, []
    pipeline, number = execution
    try:
        steps = account.snapshot(pipeline, number).steps
        before = _before(_definition(account, account.arn(pipeline, number)))
    except ServiceError as error:
        return None, [f"run {pipeline} {number}: {error}"]
    with ThreadPoolExecutor(THREADS) as pool:
        read = list(pool.map(partial(_job_of, account), steps))
    jobs = tuple(one for one in read if isinstance(one, Job))
    unread = tuple(one for one in read if isinstance(one, str))
    return Run(pipeline, number, jobs, before, unread), []


def _job_of(account: Account, step: Begun) -> Job | str | None:
    """The job of a step; why it cannot be read; None for a step without one."""
    if step.job is None or step.job[0] not in KINDS:
        return None
    try:
        return read_job(account, *step.job, step=step.name)
    except ServiceError as error:
        return str(error)


def _definition(account: Account, arn: str) -> list[Step]:
    def read() -> str:
        with service_errors(f"reading the definition of {arn}"):
            answer = account.sagemaker.describe_pipeline_definition_for_execution(
                PipelineExecutionArn=arn
            )
        return str(answer.get("PipelineDefinition") or "{}")

    document = json.loads(account.lately(("lineage definition", arn), read, 3_600))
    return list(steps_of(document.get("Steps")))


def _before(steps: list[Step]) -> dict[str, frozenset[str]]:
    """Step → all that it waits for, directly or through others."""
    direct = {step.name: set(step.waits_for) for step in steps}
    found: dict[str, frozenset[str]] = {}
    for name in direct:
        todo, seen = list(direct[name]), set[str]()
        while todo:
            if (one := todo.pop()) not in seen:
                seen.add(one)
                todo += direct.get(one, ())
        found[name] = frozenset(seen)
    return found
