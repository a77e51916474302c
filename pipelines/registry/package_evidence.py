"""Read the evidence of a model package from AWS: files, execution and jobs. Nothing is checked."""

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

from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.common.hashes import combine_file_hashes
from trainyard.language.definition_document import iter_steps
from trainyard.language.expressions import resolve_parameters
from trainyard.runs.execution import Execution, Step
from trainyard.terminal import errors as terminal

BLOCK = 2**20  # bytes that are hashed at a time
LONG = 2**26  # size in bytes from which hashing shows a progress bar
THREADS = 8  # small reads mostly wait for the network


class Absent(Exception):
    """Raised if an object, field or job does not exist. It is caught inside the package
    ``registry``, and becomes a finding.
    """


DESCRIBE = {
    "ProcessingJob": ("describe_processing_job", "ProcessingJobName"),
    "TrainingJob": ("describe_training_job", "TrainingJobName"),
    "TuningJob": ("describe_hyper_parameter_tuning_job", "HyperParameterTuningJobName"),
}
"""For each member of a step's metadata: the operation that describes its job, and the parameter for
the job's name.
"""


class Evidence:
    """A package's files and the execution that registered it; everything is read only once.

    Raises:
        ServiceError: the package does not exist, or AWS cannot be reached.
        Absent: an object, a field or a job is missing.
    """

    def __init__(self, arn: str, sagemaker: Any = None, s3: Any = None) -> None:
        """``sagemaker``, ``s3``: clients to read with; default: new ones for the package's
        region.
        """
        self.arn = arn
        self.region = arn.split(":")[3] if arn.count(":") >= 5 else None
        self._sagemaker = sagemaker or create_client("sagemaker", self.region)
        self._s3 = s3 or create_client("s3", self.region)
        self.read_hashes: dict[str, str] = {}
        """SHA-256 of each object that was read, by URI; empty if it was not read to the end."""
        self._read: dict[str, bytes] = {}
        self._jobs: dict[str, dict[str, Any]] = {}

    @cached_property
    def registered_package(self) -> dict[str, Any]:
        """Return DescribeModelPackage's response."""
        with service_errors(f"reading model package {self.arn}"):
            return self._sagemaker.describe_model_package(ModelPackageName=self.arn)

    @property
    def package(self) -> dict[str, Any]:
        """Return the package that an execution registered; here, it is the package itself."""
        return self.registered_package

    @property
    def metadata(self) -> Mapping[str, str]:
        """Return the customer metadata of the package that an execution registered."""
        return self.package.get("CustomerMetadataProperties", {})

    def find_source(self, kind: str) -> dict[str, str]:
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
        """Return the S3 URI of the model's archive, or of the folder with its files, then with a
        trailing ``/``.
        """
        if (uri := find_model_uri(self.container)) is None:
            raise Absent("the package's container names no model")
        return uri

    def hash_model(self) -> str:
        """Return the hash of the model's archive, or of all its files.

        It is computed as in ``training.weights.finetuning.hugging_face_folder.registered``.
        """
        if not self.model.endswith("/"):
            return self.hash_object(self.model)
        if not (names := self.list_objects(self.model)):
            raise Absent(f"{self.model} is not there")
        return combine_file_hashes(
            {name: self.hash_object(f"{self.model}{name}") for name in names}
        )

    def measure_model(self) -> int:
        """Return the size in bytes of the model's archive, or of all its files."""
        if not self.model.endswith("/"):
            return self.measure_object(self.model)
        if not (names := self.list_objects(self.model)):
            raise Absent(f"{self.model} is not there")
        return sum(names.values())

    def read_model_file(self, name: str) -> bytes:
        """Return the content of one file of the model."""
        if self.model.endswith("/"):
            return self.read(f"{self.model}{name}")
        return self.read_member(self.model, name)

    def compute_model_etag(self) -> str:
        """Return a tag that changes if any object of the model changes, computed from ETags."""
        if not self.model.endswith("/"):
            return self.head_object(self.model)["ETag"]
        tags = {
            name: self.head_object(f"{self.model}{name}")["ETag"]
            for name in self.list_objects(self.model)
        }
        return combine_file_hashes(tags)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Return provenance.json; anyone with write access to the bucket may have written it."""
        return self.read_json(self.metadata["provenance_uri"])

    @cached_property
    def origin(self) -> dict[str, bytes]:
        """Return the files of the record with which the definition was compiled."""
        return self.read_folder(self.find_job_inputs("Gate").get("provenance", {}).get("S3Uri", ""))

    @property
    def recipe(self) -> dict[str, Any]:
        """Return the recipe as it was resolved."""
        return json.loads(self.origin["recipe.json"])

    @cached_property
    def definition(self) -> str:
        """Return the definition that the execution used."""
        arn = self.metadata["execution"]
        with service_errors(f"reading the definition of {arn}"):
            return self._sagemaker.describe_pipeline_definition_for_execution(
                PipelineExecutionArn=arn
            )["PipelineDefinition"]

    @cached_property
    def definition_steps(self) -> dict[str, dict[str, Any]]:
        """Return the definition's steps, by name."""
        return {
            step.name: dict(step.document)
            for step in iter_steps(json.loads(self.definition)["Steps"])
        }

    @cached_property
    def start_parameters(self) -> dict[str, str]:
        """Return the parameters with which the execution was started."""
        arn = self.metadata["execution"]
        with service_errors(f"reading the parameters of {arn}"):
            pages = self._sagemaker.get_paginator("list_pipeline_parameters_for_execution")
            entries = [p for page in pages.paginate(PipelineExecutionArn=arn)
                     for p in page["PipelineParameters"]]  # fmt: skip
        return {parameter["Name"]: parameter["Value"] for parameter in entries}

    @property
    def parameters(self) -> dict[str, Any]:
        """Return all parameters of the execution, converted to their types."""
        return resolve_parameters(json.loads(self.definition), self.start_parameters)

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the parameters' default values."""
        return resolve_parameters(json.loads(self.definition), {})

    @cached_property
    def steps(self) -> dict[str, Step]:
        """Return the execution's steps, by name."""
        clients = {"sagemaker": self._sagemaker, "s3": self._s3}
        run_steps = Execution(
            self.metadata["execution"],
            self.region,
            lambda service, region: clients.get(service) or create_client(service, region),
        ).list_steps()
        return {step.name: step for step in run_steps}

    def read_job(self, step: str) -> dict[str, Any]:
        """Return the description of the step's job, which a cached step shares."""
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

    def find_output_uri(self, step: str, name: str) -> str:
        """Return the S3 URI of the folder of a processing step's output."""
        outputs = self.read_job(step).get("ProcessingOutputConfig", {}).get("Outputs", ())
        output_uris = {o["OutputName"]: o["S3Output"]["S3Uri"] for o in outputs}
        if name not in output_uris:
            raise Absent(f"step {step} has no output {name}")
        return output_uris[name]

    def find_job_inputs(self, step: str) -> dict[str, dict[str, str]]:
        """Return the S3Input of each input of the step's processing job, by name."""
        return {
            i["InputName"]: i["S3Input"] for i in self.read_job(step).get("ProcessingInputs", ())
        }

    def read(self, uri: str) -> bytes:
        """Return the object's content; also record its hash in ``read_hashes``."""
        if uri not in self._read:
            self._read[uri] = self._get(uri).read()
            self.read_hashes[uri] = hashlib.sha256(self._read[uri]).hexdigest()
        return self._read[uri]

    def read_json(self, uri: str) -> dict[str, Any]:
        """Return the object as JSON; raise Absent if it is not a JSON object."""
        try:
            document = json.loads(self.read(uri))
        except (ValueError, RecursionError) as error:
            raise Absent(f"{uri} is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise Absent(f"{uri} is not a JSON object")
        return document

    def hash_object(self, uri: str) -> str:
        """Return the object's SHA-256, and record it in ``read_hashes``.

        The object is read block by block, with a progress bar if it is large.
        """
        body, digest = self._get(uri), hashlib.sha256()
        # botocore stores the stream's length in a private field; only the progress bar needs it.
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

    def read_member(self, uri: str, name: str) -> bytes:
        """Return one file of an object that is a tar.gz; read no further than needed."""
        try:
            with tarfile.open(fileobj=self._get(uri), mode="r|gz") as tar:
                for entry in tar:
                    if entry.name.removeprefix("./") == name and entry.isfile():
                        content = tar.extractfile(entry)
                        assert content is not None  # true for every regular file
                        return content.read()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise Absent(f"{uri} cannot be unpacked: {error}") from None
        raise Absent(f"{uri} holds no {name}")

    def measure_object(self, uri: str) -> int:
        """Return the object's size in bytes."""
        return self.head_object(uri)["ContentLength"]

    def head_object(self, uri: str) -> dict[str, Any]:
        """Return S3's metadata of the object."""
        bucket, key = self.locate(uri)
        with service_errors(f"looking at {uri}"):
            try:
                return self._s3.head_object(Bucket=bucket, Key=key)
            except ClientError as error:
                if read_error_code(error) in ("404", "NoSuchKey", "NoSuchBucket"):
                    raise Absent(f"{uri} is not there") from None
                raise

    def list_objects(self, uri: str) -> dict[str, int]:
        """Return the sizes in bytes of the objects below the prefix, by name, sorted."""
        return self.list_with_prefix(f"{uri.rstrip('/')}/")

    def list_input_objects(self, uri: str) -> dict[str, tuple[str, int]]:
        """Return (URI, size in bytes) of each file of a job's input, by name: of the object
        ``uri``, or of the files in that folder.
        """
        if not uri.endswith("/") and "" in (objects := self.list_with_prefix(uri)):
            return {uri.rpartition("/")[2]: (uri, objects[""])}
        sizes = self.list_objects(uri).items()
        files = {name: size for name, size in sizes if name and not name.endswith("/")}
        return {name: (f"{uri.rstrip('/')}/{name}", size) for name, size in files.items()}

    def list_with_prefix(self, uri: str) -> dict[str, int]:
        """Return the sizes in bytes of the objects whose URI starts with ``uri``, by the rest of
        the key. A job's input gets exactly these objects.
        """
        bucket, prefix = self.locate(uri)
        with service_errors(f"listing {uri}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            items = [item for page in pages for item in page.get("Contents", ())]
        return {item["Key"].removeprefix(prefix): item["Size"] for item in items}

    def read_folder(self, uri: str) -> dict[str, bytes]:
        """Return the content of the objects below the prefix, by name; raise Absent for none."""
        names = list(self.list_objects(uri))
        if not names:
            raise Absent(f"{uri} is not there")
        with ThreadPoolExecutor(THREADS) as pool:
            bodies = pool.map(lambda name: self.read(f"{uri.rstrip('/')}/{name}"), names)
            return dict(zip(names, bodies, strict=True))

    def locate(self, uri: str) -> tuple[str, str]:
        """Return (bucket, key) of the object or prefix from which a URI of the record is read."""
        return split_s3_uri(uri)

    def _get(self, uri: str) -> Any:
        """Return the object's body as a stream; raise Absent if it does not exist."""
        # Listed before it is read; the hash is added once it was read to the end.
        self.read_hashes.setdefault(uri, "")
        bucket, key = self.locate(uri)
        with service_errors(f"reading {uri}"):
            try:
                return self._s3.get_object(Bucket=bucket, Key=key)["Body"]
            except ClientError as error:
                if read_error_code(error) in ("NoSuchKey", "NoSuchBucket"):
                    raise Absent(f"{uri} is not there") from None
                raise


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Return (bucket, key) of an S3 URI; raise ServiceError if it is not one."""
    location = urlsplit(uri)
    if location.scheme != "s3" or not location.netloc:
        raise ServiceError(f"{uri!r} is not an S3 URI; expected s3://bucket/key")
    return location.netloc, location.path.lstrip("/")


# Find a model package's files: one archive, or all objects below a prefix.


def find_model_uri(container: Mapping[str, Any]) -> str | None:
    """Return the S3 URI of a container's model: its archive, or its folder, then with a trailing
    ``/``. Return None if there is none.

    A package has either ``ModelDataUrl``, or ``ModelDataSource`` for files that are not compressed
    (API reference, ModelPackageContainerDefinition).
    """
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    if not source:
        return container.get("ModelDataUrl")
    prefix = source.get("S3DataType") == "S3Prefix"
    uri: str = source["S3Uri"]
    return f"{uri.rstrip('/')}/" if prefix else uri
