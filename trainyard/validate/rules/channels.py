"""Check data inputs: input modes, manifests, file systems."""

import posixpath
from collections.abc import Iterator
from typing import Any

from trainyard.validate.rules.job_view import Job, select_processing_jobs, select_training_jobs
from trainyard.validate.rules.rule import Violation, rule

GUIDE = "developer guide, model-access-training-data"


def _iter_channels(job: Job) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Iterate over (path, input mode, data source) of each channel."""
    default_mode = job.read_text("AlgorithmSpecification.TrainingInputMode") or "File"
    for index, item in job.iter_items("InputDataConfig"):
        channel = job.document.resolve_value(item)
        source = channel.get("DataSource")
        mode = channel.get("InputMode") or default_mode
        yield f"InputDataConfig[{index}]", str(mode), source if isinstance(source, dict) else {}


def _iter_s3_channels(job: Job) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Iterate over (path, input mode, S3 data source) of the channels that read from S3."""
    for path, mode, source in _iter_channels(job):
        if isinstance(s3 := source.get("S3DataSource"), dict):
            yield path, mode, s3


def _iter_file_system_channels(job: Job) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Iterate over (path, input mode, data source) of the channels that read a file system."""
    for path, mode, source in _iter_channels(job):
        if isinstance(system := source.get("FileSystemDataSource"), dict):
            yield f"{path}.DataSource.FileSystemDataSource", mode, system


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job: FastFile takes S3 prefixes only",
    fix="set S3DataType to S3Prefix, or InputMode to File",
    source=f"{GUIDE}: fast file mode does not support manifest and augmented manifest",
)
def fastfile_without_prefix(job: Job) -> Iterator[Violation]:
    for path, mode, s3 in _iter_s3_channels(job):
        if mode == "FastFile" and s3.get("S3DataType") == "ManifestFile":
            yield job.make_violation(
                f"{path}.DataSource.S3DataSource.S3DataType", "FastFile on a ManifestFile"
            )


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix="set the channel's InputMode to Pipe, or read a plain S3Prefix",
    source="API reference, S3DataSource.S3DataType: AugmentedManifestFile with Pipe only",
)
def augmented_manifest_without_pipe(job: Job) -> Iterator[Violation]:
    for path, mode, s3 in _iter_s3_channels(job):
        if s3.get("S3DataType") == "AugmentedManifestFile" and mode != "Pipe":
            yield job.make_violation(f"{path}.InputMode", f"{mode} on an AugmentedManifestFile")


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix="leave CompressionType out, or use Pipe",
    source="API reference, Channel.CompressionType: used only in Pipe input mode",
)
def compression_without_pipe(job: Job) -> Iterator[Violation]:
    default_mode = job.read_text("AlgorithmSpecification.TrainingInputMode") or "File"
    for index, channel in job.iter_items("InputDataConfig"):
        mode = channel.get("InputMode") or default_mode
        if channel.get("CompressionType") == "Gzip" and mode != "Pipe":
            yield job.make_violation(
                f"InputDataConfig[{index}].CompressionType", f"Gzip with input mode {mode}"
            )


@rule(
    "error",
    select=select_processing_jobs,
    reason="the service refuses the job",
    fix="set S3CompressionType to None and decompress in the job, or S3InputMode to Pipe",
    source="API reference, ProcessingS3Input.S3CompressionType: Gzip only in Pipe mode",
)
def gzip_input_without_pipe(job: Job) -> Iterator[Violation]:
    for index, item in job.iter_items("ProcessingInputs"):
        s3 = item.get("S3Input")
        if isinstance(s3, dict) and s3.get("S3CompressionType") == "Gzip":
            mode, field = s3.get("S3InputMode"), f"ProcessingInputs[{index}].S3Input"
            if mode != "Pipe":
                yield job.make_violation(
                    f"{field}.S3CompressionType", f"Gzip with input mode {mode}"
                )


ROOT = "/opt/ml/processing"


def _iter_folders(job: Job) -> Iterator[tuple[str, str]]:
    """Iterate over (path, LocalPath) of each input and output that SageMaker itself copies.

    Inputs and outputs with AppManaged are left out, because the job's own code copies them.
    """
    kinds = ("S3Input", "DatasetDefinition", "S3Output")
    for list_field in ("ProcessingInputs", "ProcessingOutputConfig.Outputs"):
        for index, item in job.iter_items(list_field):
            for kind in () if job.document.resolve_value(item.get("AppManaged")) is True else kinds:
                field = f"{list_field}[{index}].{kind}.LocalPath"
                place = job.document.resolve_value(item.get(kind))
                folder = place.get("LocalPath") if isinstance(place, dict) else None
                if isinstance(folder, str):
                    yield field, folder


@rule(
    "error",
    select=select_processing_jobs,
    reason="the service refuses the job; for two inputs, without an error message",
    fix="give each input its own folder",
    source="#4939",
)
def inputs_share_a_folder(job: Job) -> Iterator[Violation]:
    first: dict[str, str] = {}
    for field, folder in _iter_folders(job):
        if field.startswith("ProcessingInputs"):
            other = first.setdefault(posixpath.normpath(folder), field)
            if other != field:
                yield job.make_violation(
                    field, f"{folder!r} is the folder of {other.partition('.')[0]}, too"
                )


@rule(
    "error",
    select=select_processing_jobs,
    reason="the service refuses the job: it copies files only to and from that folder",
    fix=f"choose a folder under {ROOT}/",
    source="developer guide, byoc-input-and-output: the path must begin with it",
)
def folder_outside_processing(job: Job) -> Iterator[Violation]:
    for field, folder in _iter_folders(job):
        if not f"{posixpath.normpath(folder)}/".startswith(f"{ROOT}/"):
            yield job.make_violation(field, f"{folder!r} is not under {ROOT}/")


@rule(
    "error",
    select=select_training_jobs,
    reason="a file system is mounted, not streamed: the service refuses the job. SDK 3 lets such "
    "channels inherit the job's FastFile",
    fix="set the channel's InputMode to File",
    source=f"{GUIDE}: file systems are an alternative to the S3 input modes",
)
def file_system_streamed(job: Job) -> Iterator[Violation]:
    for path, mode, _ in _iter_file_system_channels(job):
        if mode != "File":
            yield job.make_violation(path, f"a file system with input mode {mode}")


@rule(
    "error",
    select=select_training_jobs,
    reason="the file system cannot be reached: the service refuses the job",
    fix="set VpcConfig to the file system's subnet and a security group that reaches it",
    source=f"{GUIDE}: your training job must connect to a VPC",
)
def file_system_without_vpc(job: Job) -> Iterator[Violation]:
    for path, _, system in _iter_file_system_channels(job):
        if not job.get("VpcConfig"):
            yield job.make_violation(path, f"{system.get('FileSystemId')} and no VpcConfig")


@rule(
    "error",
    select=select_training_jobs,
    reason="the path does not exist on the file system: the mount fails after the machines have "
    "started",
    fix="write /<mount name>/<folder>; aws fsx describe-file-systems shows the mount name",
    source=f"{GUIDE}: the path starts with MountName; on EFS, with /",
)
def fsx_directory(job: Job) -> Iterator[Violation]:
    for path, _, system in _iter_file_system_channels(job):
        directory = system.get("DirectoryPath")
        lustre = system.get("FileSystemType") == "FSxLustre"
        wrong = isinstance(directory, str) and (
            not directory.startswith("/") or (lustre and not directory.strip("/"))
        )
        if wrong:
            start = "the mount name" if lustre else "/, the root of the file system"
            fix = None if lustre else "write /<folder>"
            field = f"{path}.DirectoryPath"
            yield job.make_violation(field, f"{directory!r} is not a path below {start}", fix)


@rule(
    "warning",
    select=select_training_jobs,
    reason="the file system is in one availability zone: traffic to nodes elsewhere is charged",
    fix="name only the file system's subnet",
    source=f"{GUIDE}: specify a VPC subnet which maps to this Availability Zone",
)
def fsx_across_subnets(job: Job) -> Iterator[Violation]:
    for path, _, system in _iter_file_system_channels(job):
        if system.get("FileSystemType") == "FSxLustre" and len(job.subnets) > 1:
            yield job.make_violation(path, f"FSx for Lustre and {len(job.subnets)} subnets")
