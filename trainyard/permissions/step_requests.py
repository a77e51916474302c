"""The requests that steps send to SageMaker, the roles of the jobs, and the resources they name.

The permissions are those of the developer guide, "How to use SageMaker AI execution roles", limited
to the resources that each request names. What cannot be derived is recorded as a gap. In the
functions that collect a type of step's resources, ``c`` is the collector and ``a`` are the
request's arguments.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.definition_document import Step, iter_steps
from trainyard.language.expressions import GET
from trainyard.language.step_types import get_step_type
from trainyard.language.step_types.job_steps import PROCESSING_JOB, TRAINING_JOB, TRANSFORM_JOB
from trainyard.permissions.pipeline_subject import Collector, Subject

BY_PIPELINE = (
    *("Condition", "ForEach", "Fail", "RegisterModel", "Lambda", "Callback", "Lineage"),
    *("Endpoint", "InferenceComponent"),
)
"""Step types without a job: the service executes them with the pipeline's role."""

NOT_DERIVED = {
    "Job": "the resources that it accesses depend on its category",
    "EMR": "clusters have roles of another service; AWS's AmazonSageMakerPipelinesIntegrations "
    "lists what the pipeline's role needs for them",
    "EMRServerless": "applications have roles of another service",
    "Cleanup": "permissions to delete must be granted by hand",
}
"""Mapping of a step type to the reason why nothing is derived for it; each such step is a gap."""


def _collect_processing(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what a processing job with the request ``a`` needs."""
    c.add_log_group(PROCESSING_JOB)
    c.add_image(a["AppSpecification"]["ImageUri"], "AppSpecification.ImageUri")
    for entry in a.get("ProcessingInputs", ()):
        field = f"ProcessingInputs[{entry['InputName']}]"
        if source := _select_member(c, entry, "S3Input", field):
            _collect_s3_source(c, source, field)
    outputs = a.get("ProcessingOutputConfig") or {}
    for entry in outputs.get("Outputs", ()):
        field = f"Outputs[{entry['OutputName']}]"
        if target := _select_member(c, entry, "S3Output", field):
            c.add_written_location(target["S3Uri"], field)
    c.add_key(outputs.get("KmsKeyId"), c.needs.data_keys, "ProcessingOutputConfig.KmsKeyId")
    cluster = a["ProcessingResources"]["ClusterConfig"]
    c.add_key(cluster.get("VolumeKmsKeyId"), c.needs.volume_keys, "ClusterConfig.VolumeKmsKeyId")
    c.add_network((a.get("NetworkConfig") or {}).get("VpcConfig"))
    c.add_services(a.get("Environment"))


def _collect_training(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what the request ``a`` of a training job, or a training definition, needs."""
    c.add_log_group(TRAINING_JOB)
    c.add_image(a["AlgorithmSpecification"].get("TrainingImage"), "TrainingImage")
    for channel in a.get("InputDataConfig", ()):
        _collect_channel(c, channel)
    c.add_written_location(a["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    c.add_key(a["OutputDataConfig"].get("KmsKeyId"), c.needs.data_keys, "OutputDataConfig.KmsKeyId")
    if checkpoints := a.get("CheckpointConfig"):
        c.add_read_location(checkpoints["S3Uri"], "CheckpointConfig.S3Uri")
        c.add_written_location(checkpoints["S3Uri"], "CheckpointConfig.S3Uri")
    for config in ("TensorBoardOutputConfig", "DebugHookConfig", "ProfilerConfig"):
        if uri := (a.get(config) or {}).get("S3OutputPath"):
            c.add_written_location(uri, f"{config}.S3OutputPath")
    resources = a.get("HyperParameterTuningResourceConfig") or a["ResourceConfig"]
    c.add_key(resources.get("VolumeKmsKeyId"), c.needs.volume_keys, "ResourceConfig.VolumeKmsKeyId")
    c.add_network(a.get("VpcConfig"))
    c.add_services(a.get("Environment"))
    for values in (a.get("HyperParameters"), a.get("StaticHyperParameters")):
        c.add_services(values)
        _collect_code_archive(c, values, "sagemaker_submit_directory")


def _collect_channel(c: Collector, channel: Mapping[str, Any]) -> None:
    """Add to ``c`` the data source of a training channel: a file system or S3."""
    source, field = channel["DataSource"], f"InputDataConfig[{channel['ChannelName']}]"
    if "FileSystemDataSource" in source:
        system = source["FileSystemDataSource"]
        with c.record_gaps():
            name = c.resolve_text(system["FileSystemId"], f"{field}.FileSystemId")
            c.needs.file_systems.add((system["FileSystemType"], name))
        return
    if s3_source := _select_member(c, source, "S3DataSource", field):
        _collect_s3_source(c, s3_source, field)


def _collect_code_archive(c: Collector, values: Mapping[str, Any] | None, name: str) -> None:
    """Add the archive of code that the toolkits of SDK 2 download, if the hyperparameter or
    variable ``name`` has its URI, which may be in quotes.
    """
    with c.record_gaps():
        uri = c.resolve_text((values or {}).get(name, ""), name).strip('"')
        if uri.startswith("s3://"):
            c.add_read_location(uri, name)


def _collect_model(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what the containers of a model with the request ``a`` need when deployed."""
    for container in [*a.get("Containers", ()), a.get("PrimaryContainer")]:
        if container:
            c.add_image(container.get("Image"), "PrimaryContainer.Image")
            if uri := container.get("ModelDataUrl"):
                c.add_read_location(uri, "PrimaryContainer.ModelDataUrl")
            if source := container.get("ModelDataSource", {}).get("S3DataSource"):
                c.add_read_location(source["S3Uri"], "PrimaryContainer.ModelDataSource")
            _collect_code_archive(c, container.get("Environment"), "SAGEMAKER_SUBMIT_DIRECTORY")
    c.add_network(a.get("VpcConfig"))


def _collect_transform(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what a transform job with the request ``a`` needs."""
    c.add_log_group(TRANSFORM_JOB)
    source = a["TransformInput"]["DataSource"]["S3DataSource"]
    _collect_s3_source(c, source, "TransformInput")
    output, resources = a["TransformOutput"], a["TransformResources"]
    c.add_written_location(output["S3OutputPath"], "TransformOutput.S3OutputPath")
    c.add_key(output.get("KmsKeyId"), c.needs.data_keys, "TransformOutput.KmsKeyId")
    c.add_key(
        resources.get("VolumeKmsKeyId"), c.needs.volume_keys, "TransformResources.VolumeKmsKeyId"
    )
    _collect_capture(c, a)


def _collect_capture(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` the location of the data that ``a`` captures, and the key that encrypts it."""
    if capture := a.get("DataCaptureConfig"):
        c.add_written_location(capture["DestinationS3Uri"], "DataCaptureConfig.DestinationS3Uri")
        c.add_key(capture.get("KmsKeyId"), c.needs.data_keys, "DataCaptureConfig.KmsKeyId")


def _collect_check(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what a check step needs: its processing job ``a``, and its baselines.

    The baselines may be those of the latest approved model package, which is a gap.
    """
    _collect_processing(c, a)
    step, location = c.step.document, f"step {c.step.name}"
    for field in ("SuppliedBaselineStatistics", "SuppliedBaselineConstraints"):
        if step.get(field):
            c.add_read_location(step[field], field)
    if step.get("CheckType", "").startswith("MODEL_") and step["Type"] == "ClarifyCheck":
        model = c.resolve_text(step.get("ModelName", "a model"), "ModelName")
        c.needs.gaps.append(
            f"{location}: its container deploys {model} behind an endpoint for the duration of the "
            "check, and invokes it"
        )
    group = step.get("ModelPackageGroupName")
    if group and step.get("SkipCheck") is not True and not step.get("SuppliedBaselineConstraints"):
        c.needs.gaps.append(
            f"{location}: it reads the baselines that the latest approved package of the group "
            f"{c.resolve_text(group, 'ModelPackageGroupName')} names"
        )


def _collect_auto_ml(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what an AutoML job needs; what the jobs that it starts need is a gap."""
    channels = a.get("InputDataConfig") or a.get("AutoMLJobInputDataConfig") or ()
    for index, channel in enumerate(channels):
        _collect_s3_source(c, channel["DataSource"]["S3DataSource"], f"InputDataConfig[{index}]")
    c.add_written_location(a["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    c.add_key(a["OutputDataConfig"].get("KmsKeyId"), c.needs.data_keys, "OutputDataConfig.KmsKeyId")
    c.needs.gaps.append(
        f"step {c.step.name}: AutoML creates jobs and models of its own with this role, from "
        "images that no request names"
    )


def _collect_endpoint(c: Collector, a: Mapping[str, Any]) -> None:
    """Add to ``c`` what an endpoint needs: logs, data capture, alarms, asynchronous results."""
    c.needs.log_groups.add("/aws/sagemaker/Endpoints/*")
    _collect_capture(c, a)
    rollback = (a.get("DeploymentConfig") or {}).get("AutoRollbackConfiguration") or {}
    for alarm in rollback.get("Alarms", ()):
        c.needs.alarms.add(c.resolve_text(alarm["AlarmName"], "AutoRollbackConfiguration.Alarms"))
    output = (a.get("AsyncInferenceConfig") or {}).get("OutputConfig") or {}
    for field in ("S3OutputPath", "S3FailurePath"):
        if uri := output.get(field):
            c.add_written_location(uri, f"AsyncInferenceConfig.OutputConfig.{field}")
    c.add_key(
        output.get("KmsKeyId"), c.needs.data_keys, "AsyncInferenceConfig.OutputConfig.KmsKeyId"
    )


COLLECTORS: Mapping[str, Callable[[Collector, Mapping[str, Any]], None]] = {
    "Processing": _collect_processing,
    "QualityCheck": _collect_check,
    "ClarifyCheck": _collect_check,
    "Training": _collect_training,
    "Tuning": _collect_training,
    "Model": _collect_model,
    "Transform": _collect_transform,
    "EndpointConfig": _collect_endpoint,
    "AutoML": _collect_auto_ml,
}


def _select_member(
    c: Collector, entry: Mapping[str, Any], kind: str, field: str
) -> Mapping[str, Any]:
    """Return the member ``kind`` of an entry; if it is missing, record a gap and return ``{}``."""
    if not entry.get(kind):
        others = sorted(set(entry) - {"InputName", "OutputName", "AppManaged"})
        c.needs.gaps.append(f"step {c.step.name}: {field}: only {kind} is derived, not {others}")
    return entry.get(kind) or {}


def _collect_s3_source(c: Collector, source: Mapping[str, Any], field: str) -> None:
    """Add an S3 data source: a prefix, or a manifest, whose listed objects are a gap."""
    c.add_read_location(source["S3Uri"], field)
    if source.get("S3DataType", "S3Prefix") != "S3Prefix":
        c.needs.gaps.append(
            f"step {c.step.name}: {field}: S3DataType {source['S3DataType']!r}: the objects are "
            "listed in a file, which no policy can know"
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A step's request to the service, and the role that does the work."""

    role: Any
    """Role as in the definition; None if the definition does not name it."""

    arguments: Mapping[str, Any]
    model: Any = None
    """Name of the model whose role is used, if ``role`` is None."""


def iter_requests(subject: Subject, step: Step) -> Iterator[Request]:
    """Iterate over the requests of a step, whose type must be in :data:`COLLECTORS`.

    A tuning step has one for each training definition.
    """
    a = step.arguments
    if step.type == "Tuning":
        for definition in a.get("TrainingJobDefinitions") or [a["TrainingJobDefinition"]]:
            yield Request(definition["RoleArn"], definition)
    elif step.type == "Transform":
        yield _make_model_request(subject, a["ModelName"], a)
    elif step.type == "EndpointConfig" and not a.get("ExecutionRoleArn"):
        for variant in a["ProductionVariants"]:
            yield _make_model_request(subject, variant.get("ModelName"), a)
    else:
        field = get_step_type(step.type).role or "ExecutionRoleArn"
        yield Request(a.get(field) or subject.role, a)


def _make_model_request(subject: Subject, name: Any, arguments: Mapping[str, Any]) -> Request:
    """Return a request whose job uses the role of the model ``name``.

    The role is known only if a step of the definition creates the model.
    """
    reference = str(name.get(GET)) if isinstance(name, dict) and GET in name else ""
    match = re.fullmatch(r"Steps\.([^.]+)\.ModelName", reference)
    if not match:
        return Request(None, arguments, name)
    return Request(subject.values.get_step(match[1]).arguments["ExecutionRoleArn"], arguments)


def list_job_roles(subject: Subject) -> tuple[str, ...]:
    """Return the ARNs of the roles that steps pass to jobs; the pipeline's if a step names none."""
    role_names: set[str] = set()
    for step, request in iter_all_requests(subject):
        # If a role cannot be known, that is a gap, which is reported with the role's policy.
        with suppress(DefinitionError):
            role = find_request_role(subject, step, request)
            role_names |= {role} if role else set()
    return tuple(sorted(role_names))


def iter_all_requests(subject: Subject) -> Iterator[tuple[Step, Request]]:
    """Iterate over (step, request) of the definition and of the subject's ``extra_steps``."""
    for step in (*subject.values.steps, *iter_steps([*subject.extra_steps])):
        if step.type in COLLECTORS:
            yield from ((step, request) for request in iter_requests(subject, step))


def find_request_role(subject: Subject, step: Step, request: Request) -> str | None:
    """Return the ARN of a request's role; None if it cannot be known from the definition.

    Raises:
        DefinitionError: the role is a parameter without a default value.
    """
    if request.role is None:
        return None
    role = subject.values.resolve_text(request.role, f"step {step.name}: role")
    return None if "*" in role else role
