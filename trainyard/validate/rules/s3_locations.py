"""Check S3 locations, volumes, and the keys that encrypt volumes and outputs."""

import json
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from trainyard.language.definition_document import Document, Step
from trainyard.language.evaluation import Unknown
from trainyard.language.expressions import (
    GET,
    JOIN,
    ExpressionError,
    iter_expressions,
    look_up_path,
)
from trainyard.validate.rules.job_view import (
    Job,
    as_list,
    iter_jobs,
    join_member,
    select_processing_jobs,
    select_training_jobs,
)
from trainyard.validate.rules.rule import Violation, rule, select_document, select_steps
from trainyard.validate.step_dependencies import map_predecessors

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
OF_BUCKET = re.compile(r"([a-z0-9][a-z0-9.-]*)?")
"""Match the beginning of a bucket's name whose end is known only when the pipeline runs."""
S3_FIELDS = ("S3Uri", "S3OutputPath", "ModelDataUrl", "S3OutputUri")
LARGEST_VOLUME = 16384


def _iter_location_fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, unresolved value) of the S3 locations in ``value``."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _iter_location_fields(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            item_path = join_member(path, str(key))
            if key in S3_FIELDS:
                yield item_path, item
            else:
                yield from _iter_location_fields(item, item_path)


def _iter_locations(value: Any, path: str) -> Iterator[tuple[str, str, bool]]:
    """Iterate over (path, text, whether the text is complete) of the S3 locations in ``value``.

    Of a Join, the text is the part before the first expression. Other expressions are skipped.
    """
    for item_path, item in _iter_location_fields(value, path):
        if text := _find_constant_beginning(item):
            yield item_path, *text


def _find_constant_beginning(value: Any) -> tuple[str, bool] | None:
    """Return (constant beginning of ``value``, whether it is all of it); None if there is none."""
    if not (isinstance(value, dict) and isinstance(value.get(JOIN), dict)):
        return (value, True) if isinstance(value, str) else None
    parts, on = as_list(value[JOIN].get("Values")), value[JOIN].get("On", "")
    fixed_parts = list(takewhile(lambda part: isinstance(part, str), parts))
    if not fixed_parts or not isinstance(on, str):
        return None
    whole_text = len(fixed_parts) == len(parts)
    return on.join(fixed_parts) + ("" if whole_text else on), whole_text


@rule(
    "error",
    select=select_steps,
    reason="the service refuses the location",
    fix="write s3://bucket/key, the bucket in lower case, 3 to 63 characters",
    source="API reference, S3Uri; S3 user guide, bucket naming rules",
)
def malformed_s3_location(step: Step) -> Iterator[Violation]:
    for path, text, is_all in _iter_locations(step.own_arguments, f"{step.path}.Arguments"):
        scheme, separator, rest = text.partition("://")
        if path.endswith("ModelDataUrl") and scheme == "https":
            continue
        bucket, slash, _ = rest.partition("/")
        # The text ends inside "s3://": the expression after it has the rest.
        if not is_all and "s3://".startswith(text):
            continue
        if scheme != "s3" or not separator:
            yield Violation(step=step, path=path, problem=f"{text!r} does not begin with s3://")
        elif not (BUCKET if is_all or slash else OF_BUCKET).fullmatch(bucket):
            problem = f"{text!r}: {bucket!r} is not a bucket's name"
            yield Violation(step=step, path=path, problem=problem)


@rule(
    "warning",
    select=select_steps,
    reason="S3 takes the empty part as a folder without a name: other tools do not find the "
    "objects",
    fix="write one slash",
    source="S3 user guide, object keys: a key is taken as it is",
)
def empty_key_part(step: Step) -> Iterator[Violation]:
    for path, text, _ in _iter_locations(step.own_arguments, f"{step.path}.Arguments"):
        if "//" in text.partition("://")[2]:
            yield Violation(step=step, path=path, problem=f"{text!r} has two slashes in its key")


def _iter_outputs(document: Document) -> Iterator[tuple[Job, str, Any]]:
    """Iterate over (job, field, URI) of the outputs of processing and transform jobs.

    Training jobs are left out: SageMaker appends the job's name to their location, so it is unique.
    """
    for job in iter_jobs(document):
        for index, item in job.iter_items("ProcessingOutputConfig.Outputs"):
            s3 = item.get("S3Output")
            if isinstance(s3, dict) and s3.get("S3Uri"):
                yield job, f"ProcessingOutputConfig.Outputs[{index}].S3Output.S3Uri", s3["S3Uri"]
        if job.read_raw("TransformOutput.S3OutputPath"):
            field = "TransformOutput.S3OutputPath"
            yield job, field, job.read_raw(field)


@rule(
    "warning",
    select=select_document,
    reason="the later of the two overwrites the earlier, or both mix",
    fix="give each output its own prefix",
    source="S3 has one object per key; SageMaker uploads without checking",
)
def outputs_collide(document: Document) -> Iterator[Violation]:
    writers: dict[str, list[Step]] = {}
    for job, field, uri in _iter_outputs(document):
        others = writers.setdefault(json.dumps(uri, sort_keys=True).rstrip('/"'), [])
        # One finding for each output is enough, so it is compared with the first writer only.
        for other in others[:1]:
            if other is job.step:
                yield job.make_violation(field, "another output of the step has the same location")
            elif not _are_exclusive(other, job.step):
                yield job.make_violation(field, f"step {other.name} writes to the same location")
        others.append(job.step)


def _iter_inputs(document: Document) -> Iterator[tuple[Job, str, Any]]:
    """Iterate over (job, field, URI) of the prefixes that jobs read.

    They include the prefixes of checkpoints, which SageMaker copies into the job when it starts.
    """
    for job in iter_jobs(document):
        sources = [f"ProcessingInputs[{n}].S3Input" for n, _ in job.iter_items("ProcessingInputs")]
        sources += [
            f"InputDataConfig[{n}].DataSource.S3DataSource"
            for n, _ in job.iter_items("InputDataConfig")
        ]
        for field in (*sources, "TransformInput.DataSource.S3DataSource", "CheckpointConfig"):
            source = _find_argument(job.arguments, field)
            if isinstance(source, dict) and source.get("S3DataType", "S3Prefix") == "S3Prefix":
                yield job, f"{field}.S3Uri", source.get("S3Uri")


def _find_argument(arguments: Any, path: str) -> Any:
    """Return the value at ``path`` in ``arguments``; None if there is none."""
    try:
        return look_up_path(arguments, path, "")
    except ExpressionError:
        return None


def _format_location(document: Document, value: Any) -> str:
    """Return the text of a location; parts that are known only at run time are in braces.

    A reference to another step's output is replaced by the location in that step's arguments.
    """
    if isinstance(value, dict) and isinstance(value.get(GET), str):
        step, _, path = value[GET].removeprefix("Steps.").partition(".")
        arguments = next((s.own_arguments for s in document.steps if s.name == step), {})
        value = _find_argument(arguments, path) or value
    text = document.resolve_value(value)
    parts = (text.parts or (text,)) if isinstance(text, Unknown) else (text,)
    return "".join(part if isinstance(part, str) else f"{{{part}}}" for part in parts)


@rule(
    "warning",
    select=select_document,
    reason="the location is a prefix of keys, not a folder: the job gets the other's objects, too",
    fix="end it with a slash; for a step's output use Join(on='', values=[the output, '/'])",
    source="API reference, S3DataSource.S3DataType: all objects that match the specified key name "
    "prefix; #3557 #3612 #87; for checkpoints syne-tune#363",
)
def prefix_of_another_location(document: Document) -> Iterator[Violation]:
    inputs = list(_iter_inputs(document))
    outputs = [*_iter_outputs(document), *_iter_model_outputs(document)]
    locations = {_format_location(document, uri): job.step for job, _, uri in (*inputs, *outputs)}
    for job, field, uri in inputs:
        prefix = _format_location(document, uri)
        for other, step in locations.items():
            if prefix.endswith("/") or not prefix or not other.startswith(prefix):
                continue
            if other.removeprefix(prefix)[:1] not in ("", "/"):
                yield job.make_violation(
                    field, f"{prefix} also matches {other} of step {step.name}"
                )


def _iter_model_outputs(document: Document) -> Iterator[tuple[Job, str, Any]]:
    """Iterate over (job, field, URI) of the outputs of training jobs."""
    for job in select_training_jobs(document):
        field = "OutputDataConfig.S3OutputPath"
        if job.read_raw(field):
            yield job, field, job.read_raw(field)


def _are_exclusive(step: Step, other: Step) -> bool:
    """Return whether the steps are in different branches of one condition."""
    branch, other_branch = step.branch, other.branch
    return bool(
        branch and other_branch and branch[0] == other_branch[0] and branch[1] != other_branch[1]
    )


@rule(
    "warning",
    select=select_document,
    reason="each run overwrites the last one's files there, even those that a cached step refers "
    "to",
    fix="put Execution.PipelineExecutionId into the prefix",
    source="developer guide, pipelines-caching: a hit hands on the earlier run's locations",
)
def output_overwritten_by_next_run(document: Document) -> Iterator[Violation]:
    for job, field, uri in _iter_outputs(document):
        # A Join is constant if its parts are: only another expression makes executions differ.
        differs = any(JOIN not in expression for expression, _ in iter_expressions(uri))
        if not differs:
            yield job.make_violation(
                field, f"{document.resolve_value(uri)} is the same in each run"
            )


@rule(
    "warning",
    select=select_document,
    reason="the two steps have no order: the step reads what an earlier run left there, or finds "
    "nothing",
    fix="refer to the other step's output (Steps.<name>…S3Uri), or name that step in DependsOn",
    source="developer guide, Pipelines overview: references and DependsOn are the order",
)
def reads_without_waiting(document: Document) -> Iterator[Violation]:
    output_addresses = [
        (job, _format_location(document, uri).rstrip("/"))
        for job, _, uri in (*_iter_outputs(document), *_iter_model_outputs(document))
    ]
    earlier = _find_earlier_steps(document)
    for step in document.steps:
        for path, uri in _iter_location_fields(step.own_arguments, f"{step.path}.Arguments"):
            location = _format_location(document, uri).rstrip("/")
            if not location or any(word in path for word in OUTPUT_FIELDS):
                continue
            writers = (
                job.step
                for job, address in output_addresses
                if _reads_output(location, job, address)
            )
            for writer in writers:
                is_ordered = writer.name in (step.name, *earlier[step.name])
                if not (
                    is_ordered or step.name in earlier[writer.name] or _are_exclusive(writer, step)
                ):
                    problem = (
                        f"reads {location}, which {writer.name} writes, and does not wait for it"
                    )
                    yield Violation(step=step, path=path, problem=problem)
                    break


def _reads_output(location: str, job: Job, address: str) -> bool:
    """Return whether reading ``location`` reads what ``job`` writes under ``address``."""
    if f"{address}/".startswith(f"{location}/"):
        return True
    # A training job writes under its address in a folder with its own name; whether ``location`` is
    # in that folder cannot be known.
    return job.kind != "training" and f"{location}/".startswith(f"{address}/")


OUTPUT_FIELDS = ("Output", "CheckpointConfig")
"""Words in the path of an argument with an S3 location which mean that the job writes there."""


def _find_earlier_steps(document: Document) -> dict[str, set[str]]:
    """Return a mapping of a step's name to the names of all steps that end before it starts."""
    waits = map_predecessors(document)
    steps_before: dict[str, set[str]] = {}
    for name in waits:
        earlier, rest = set(), [*waits[name]]
        while rest:
            if (other := rest.pop()) not in earlier:
                earlier.add(other)
                rest += waits.get(other, ())
        steps_before[name] = earlier
    return steps_before


@rule(
    "error",
    select=iter_jobs,
    reason="disks of the instance are encrypted by its hardware: the service refuses a key for "
    "them",
    fix="leave VolumeKmsKeyId out for this instance type; outputs keep their key",
    source="API reference, ResourceConfig.VolumeKmsKeyId and ProcessingClusterConfig; #3677",
)
def key_for_local_disks(job: Job) -> Iterator[Violation]:
    field = job.build_resource_path("VolumeKmsKeyId")
    if job.machine and job.machine.local_storage_gb and job.read_raw(field):
        disks = f"{job.machine.local_storage_gb} GB of NVMe"
        yield job.make_violation(
            field, f"a key for the volume; {job.machine.name} has {disks} instead of one"
        )


@rule(
    "error",
    select=select_processing_jobs,
    reason="the service refuses the job",
    fix="request no more than the disks' size, or choose a larger instance type",
    source="API reference, ProcessingClusterConfig.VolumeSizeInGB",
)
def volume_beyond_local_disks(job: Job) -> Iterator[Violation]:
    yield from _check_volume_size(job)


@rule(
    "warning",
    select=select_training_jobs,
    reason="SageMaker provisions no volume there: the job has only the disks, which may fill up",
    fix="request no more than the disks' size, or choose a larger instance type",
    source="API reference, ResourceConfig.VolumeSizeInGB",
)
def training_volume_beyond_local_disks(job: Job) -> Iterator[Violation]:
    yield from _check_volume_size(job)


def _check_volume_size(job: Job) -> Iterator[Violation]:
    """Yield a violation if the volume is larger than the local disks that the machine has."""
    field = job.build_resource_path("VolumeSizeInGB")
    size, machine = job.read_number(field), job.machine
    if size and machine and 0 < machine.local_storage_gb < size:
        disks = f"{machine.name} has {machine.local_storage_gb} GB of NVMe instead"
        yield job.make_violation(field, f"{size} GB; {disks}")


@rule(
    "error",
    select=iter_jobs,
    reason="no EBS volume is larger: the service refuses the job",
    fix=f"request at most {LARGEST_VOLUME} GB; use FastFile or more instances",
    source="API reference, ProcessingVolumeSizeInGB; EBS user guide, gp2: 16 TiB",
)
def volume_too_large(job: Job) -> Iterator[Violation]:
    field = job.build_resource_path("VolumeSizeInGB")
    if (job.read_number(field) or 0) > LARGEST_VOLUME:
        yield job.make_violation(field, f"{job.read_number(field)} GB")


@rule(
    "warning",
    select=iter_jobs,
    reason="what the job writes to S3 is then encrypted with the account's default key only",
    fix="set the output's KmsKeyId, too",
    source="API reference, OutputDataConfig.KmsKeyId and ProcessingOutputConfig.KmsKeyId",
)
def key_for_volume_only(job: Job) -> Iterator[Violation]:
    output = {
        "training": "OutputDataConfig",
        "processing": "ProcessingOutputConfig",
        "transform": "TransformOutput",
    }[job.kind]
    has_volume_key = (
        job.read_raw(job.build_resource_path("VolumeKmsKeyId")) and job.read_raw(output) is not None
    )
    if has_volume_key and not job.read_raw(f"{output}.KmsKeyId"):
        yield job.make_violation(output, "the volume has a key, the output has none")
