"""Read the evidence behind a model package from the service, without judging it."""

import hashlib
import json
import tarfile
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from trainyard.aws_clients import client, error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.common.hashes import files_sha256
from trainyard.language.definition_document import steps_of
from trainyard.language.expressions import values
from trainyard.runs.execution import Execution, Step
from trainyard.terminal import errors as terminal

BLOCK = 2**20  # bytes at a time
LONG = 2**26  # bytes from which hashing shows a progress bar
THREADS = 8  # small reads wait for the network


class Absent(Exception):
    """An object, field or job does not exist; stays inside this package, where it becomes a
    finding.
    """


DESCRIBE = {
    "ProcessingJob": ("describe_processing_job", "ProcessingJobName"),
    "TrainingJob": ("describe_training_job", "TrainingJobName"),
    "TuningJob": ("describe_hyper_parameter_tuning_job", "HyperParameterTuningJobName"),
}
"""Member of a step's metadata → the operation that describes its job, and the parameter with its
name."""


class Evidence:
    """A package's files and the execution that registered it; each is read once.

    Raises:
        ServiceError: the package does not exist, or AWS cannot be reached.
        Absent: an object, a field or a job is not there.
    """

    def __init__(self, arn: str, sagemaker: Any = None, s3: Any = None) -> None:
        """``sagemaker``, ``s3``: clients to read with; default: those of the environment."""
        self.arn = arn
        self.region = arn.split(":")[3] if arn.count(":") >= 5 else None
        self._sagemaker = sagemaker or client("sagemaker", self.region)
        self._s3 = s3 or client("s3", self.region)
        self.read_hashes: dict[str, str] = {}
        """URI of each object that was read → its SHA-256; empty if it was not read to its end."""
        self._read: dict[str, bytes] = {}
        self._jobs: dict[str, dict[str, Any]] = {}

    @cached_property
    def registered_package(self) -> dict[str, Any]:
        """Return DescribeModelPackage's answer."""
        with service_errors(f"reading model package {self.arn}"):
            return self._sagemaker.describe_model_package(ModelPackageName=self.arn)

    @property
    def package(self) -> dict[str, Any]:
        """Return the package that an execution registered: this one."""
        return self.registered_package

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.package.get("CustomerMetadataProperties", {})

    def source(self, kind: str) -> dict[str, str]:
        """Return S3Uri and ContentDigest of ModelQuality's ``Statistics`` or ``Constraints``."""
        quality = self.package.get("ModelMetrics", {}).get("ModelQuality", {})
        if kind not in quality:
            raise Absent(f"the package has no ModelMetrics.ModelQuality.{kind}")
        return quality[kind]

    @property
    def container(self) -> dict[str, Any]:
        """Return the package's only container."""
        containers = self.package.get("InferenceSpecification", {}).get("Containers", [])
        if len(containers) != 1:
            raise Absent(f"the package has {len(containers)} containers, not one")
        return containers[0]

    @property
    def model(self) -> str:
        """Return the S3 URI of the model's archive, or of the folder with its files, which ends
        with ``/``.
        """
        if (uri := uri_of(self.container)) is None:
            raise Absent("the package's container names no model")
        return uri

    def model_sha256(self) -> str:
        """Return the model's identity, as in
        ``training.weights.finetuning.hugging_face_folder.registered``.
        """
        if not self.model.endswith("/"):
            return self.sha256(self.model)
        if not (names := self.list_objects(self.model)):
            raise Absent(f"{self.model} is not there")
        return files_sha256({name: self.sha256(f"{self.model}{name}") for name in names})

    def model_size(self) -> int:
        """Return the bytes of the model's archive, or of all its files."""
        if not self.model.endswith("/"):
            return self.size(self.model)
        if not (names := self.list_objects(self.model)):
            raise Absent(f"{self.model} is not there")
        return sum(names.values())

    def model_file(self, name: str) -> bytes:
        """Return the content of one file of the model."""
        if self.model.endswith("/"):
            return self.read(f"{self.model}{name}")
        return self.member(self.model, name)

    def model_etag(self) -> str:
        """Return a tag that changes with each object of the model."""
        if not self.model.endswith("/"):
            return self.head(self.model)["ETag"]
        tags = {
            name: self.head(f"{self.model}{name}")["ETag"] for name in self.list_objects(self.model)
        }
        return files_sha256(tags)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Return provenance.json; anyone with write access to the bucket may have written it."""
        return self.json(self.metadata["provenance_uri"])

    @cached_property
    def origin(self) -> dict[str, bytes]:
        """Return the record that the definition was compiled with: provenance.json, recipe.json."""
        return self.folder(self.job_inputs("Gate").get("provenance", {}).get("S3Uri", ""))

    @property
    def recipe(self) -> dict[str, Any]:
        """Return the recipe as it was resolved."""
        return json.loads(self.origin["recipe.json"])

    @cached_property
    def definition(self) -> str:
        """Return the definition that the execution ran."""
        arn = self.metadata["execution"]
        with service_errors(f"reading the definition of {arn}"):
            return self._sagemaker.describe_pipeline_definition_for_execution(
                PipelineExecutionArn=arn
            )["PipelineDefinition"]

    @cached_property
    def definition_steps(self) -> dict[str, dict[str, Any]]:
        """Return the steps of that definition by name."""
        return {
            step.name: dict(step.document)
            for step in steps_of(json.loads(self.definition)["Steps"])
        }

    @cached_property
    def start_parameters(self) -> dict[str, str]:
        """Return the parameters that the execution was started with."""
        arn = self.metadata["execution"]
        with service_errors(f"reading the parameters of {arn}"):
            pages = self._sagemaker.get_paginator("list_pipeline_parameters_for_execution")
            entries = [p for page in pages.paginate(PipelineExecutionArn=arn)
                     for p in page["PipelineParameters"]]  # fmt: skip
        return {parameter["Name"]: parameter["Value"] for parameter in entries}

    @property
    def parameters(self) -> dict[str, Any]:
        """Return every parameter of the execution, in its type."""
        return values(json.loads(self.definition), self.start_parameters)

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the parameters' default values."""
        return values(json.loads(self.definition), {})

    @cached_property
    def steps(self) -> dict[str, Step]:
        """Return the execution's steps by name."""
        clients = {"sagemaker": self._sagemaker, "s3": self._s3}
        run_steps = Execution(
            self.metadata["execution"],
            self.region,
            lambda service, region: clients.get(service) or client(service, region),
        ).steps()
        return {step.name: step for step in run_steps}

    def job(self, step: str) -> dict[str, Any]:
        """Return the service's description of the step's job, an earlier run's when cached."""
        if step not in self._jobs:
            run_step = self.steps.get(step)
            kind = next(
                (job_kind for job_kind in DESCRIBE if run_step and job_kind in run_step.metadata),
                None,
            )
            if run_step is None or kind is None:
                raise Absent(f"the execution has no job of step {step}")
            operation, parameter = DESCRIBE[kind]
            name = run_step.metadata[kind]["Arn"].rpartition("/")[2]
            with service_errors(f"reading the job of step {step}"):
                self._jobs[step] = getattr(self._sagemaker, operation)(**{parameter: name})
        return self._jobs[step]

    def output(self, step: str, name: str) -> str:
        """Return the S3 URI of the folder where the processing step's output lies."""
        outputs = self.job(step).get("ProcessingOutputConfig", {}).get("Outputs", ())
        output_uris = {o["OutputName"]: o["S3Output"]["S3Uri"] for o in outputs}
        if name not in output_uris:
            raise Absent(f"step {step} has no output {name}")
        return output_uris[name]

    def job_inputs(self, step: str) -> dict[str, dict[str, str]]:
        """Return input name → its S3Input."""
        return {i["InputName"]: i["S3Input"] for i in self.job(step).get("ProcessingInputs", ())}

    def read(self, uri: str) -> bytes:
        """Return the whole object."""
        if uri not in self._read:
            self._read[uri] = self._get(uri).read()
            self.read_hashes[uri] = hashlib.sha256(self._read[uri]).hexdigest()
        return self._read[uri]

    def json(self, uri: str) -> dict[str, Any]:
        """Return the object as JSON; raise Absent when it is not JSON."""
        try:
            document = json.loads(self.read(uri))
        except (ValueError, RecursionError) as error:
            raise Absent(f"{uri} is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise Absent(f"{uri} is not a JSON object")
        return document

    def sha256(self, uri: str) -> str:
        """Hash the object, read block by block; a long one shows how far it is."""
        body, digest = self._get(uri), hashlib.sha256()
        # botocore keeps the stream's length in a private field; only the bar needs it.
        size = getattr(body, "_content_length", None) or 0
        columns = (TextColumn("hashing"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        has_progress = terminal.is_terminal and int(size) > LONG
        with Progress(
            *columns, console=terminal, transient=True, disable=not has_progress
        ) as progress:
            task = progress.add_task(uri, total=int(size))
            while block := body.read(BLOCK):
                digest.update(block)
                progress.advance(task, len(block))
        self.read_hashes[uri] = digest.hexdigest()
        return self.read_hashes[uri]

    def member(self, uri: str, name: str) -> bytes:
        """Return one file of an object that is a tar.gz; read up to there and no further."""
        try:
            with tarfile.open(fileobj=self._get(uri), mode="r|gz") as tar:
                for entry in tar:
                    if entry.name.removeprefix("./") == name and entry.isfile():
                        content = tar.extractfile(entry)
                        assert content is not None  # it is one for a regular file
                        return content.read()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise Absent(f"{uri} cannot be unpacked: {error}") from None
        raise Absent(f"{uri} holds no {name}")

    def size(self, uri: str) -> int:
        """Return the bytes of the object."""
        return self.head(uri)["ContentLength"]

    def head(self, uri: str) -> dict[str, Any]:
        """Return S3's metadata of the object."""
        bucket, key = self.place(uri)
        with service_errors(f"looking at {uri}"):
            try:
                return self._s3.head_object(Bucket=bucket, Key=key)
            except ClientError as error:
                if error_code(error) in ("404", "NoSuchKey", "NoSuchBucket"):
                    raise Absent(f"{uri} is not there") from None
                raise

    def list_objects(self, uri: str) -> dict[str, int]:
        """Return name below the prefix → bytes, sorted by name."""
        return self.beginning_with(f"{uri.rstrip('/')}/")

    def input_objects(self, uri: str) -> dict[str, tuple[str, int]]:
        """Return name in a job's input → its URI and bytes: the object of that name, or the
        folder's.
        """
        if not uri.endswith("/") and "" in (objects := self.beginning_with(uri)):
            return {uri.rpartition("/")[2]: (uri, objects[""])}
        sizes = self.list_objects(uri).items()
        files = {name: size for name, size in sizes if name and not name.endswith("/")}
        return {name: (f"{uri.rstrip('/')}/{name}", size) for name, size in files.items()}

    def beginning_with(self, uri: str) -> dict[str, int]:
        """Return the rest of each name that begins with ``uri`` → bytes: what a job's input gets of
        it.
        """
        bucket, prefix = self.place(uri)
        with service_errors(f"listing {uri}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            items = [item for page in pages for item in page.get("Contents", ())]
        return {item["Key"].removeprefix(prefix): item["Size"] for item in items}

    def folder(self, uri: str) -> dict[str, bytes]:
        """Return name below the prefix → content; raise Absent when there is nothing."""
        names = list(self.list_objects(uri))
        if not names:
            raise Absent(f"{uri} is not there")
        with ThreadPoolExecutor(THREADS) as pool:
            bodies = pool.map(lambda name: self.read(f"{uri.rstrip('/')}/{name}"), names)
            return dict(zip(names, bodies, strict=True))

    def place(self, uri: str) -> tuple[str, str]:
        """Return bucket and key of the object, or prefix, that is read for a URI of the record."""
        return split(uri)

    def _get(self, uri: str) -> Any:
        # Listed before it is read; the hash follows when it was read to its end.
        self.read_hashes.setdefault(uri, "")
        bucket, key = self.place(uri)
        with service_errors(f"reading {uri}"):
            try:
                return self._s3.get_object(Bucket=bucket, Key=key)["Body"]
            except ClientError as error:
                if error_code(error) in ("NoSuchKey", "NoSuchBucket"):
                    raise Absent(f"{uri} is not there") from None
                raise


def split(uri: str) -> tuple[str, str]:
    """Return bucket and key of an S3 URI."""
    location = urlsplit(uri)
    if location.scheme != "s3" or not location.netloc:
        raise ServiceError(f"{uri!r} is not an S3 URI; expected s3://bucket/key")
    return location.netloc, location.path.lstrip("/")


# Find a model package's files: one archive, or every object below a prefix.


def uri_of(container: Mapping[str, Any]) -> str | None:
    """Return the S3 URI of a container's model: of its archive, or of its folder, which ends with
    ``/``.

    A package has either ``ModelDataUrl``, or ``ModelDataSource`` for files that are not compressed
    (API reference, ModelPackageContainerDefinition).
    """
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    if not source:
        return container.get("ModelDataUrl")
    prefix = source.get("S3DataType") == "S3Prefix"
    uri: str = source["S3Uri"]
    return f"{uri.rstrip('/')}/" if prefix else uri
