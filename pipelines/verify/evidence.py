"""What lies behind a model package, read from the service; nothing here judges."""

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

from errors import ServiceError
from pipelines.execution import Execution, Step
from pipelines.service import client, error_code, service_errors

BLOCK = 2**20  # bytes at a time
THREADS = 8  # small reads wait for the network


class Absent(Exception):
    """There is no such thing; stays inside this package, where it becomes a finding."""


class Evidence:
    """A package's files and the execution that registered it; each is read once.

    Raises:
        ServiceError: there is no such package, or AWS cannot be reached.
        Absent: an object, a field or a job is not there.
    """

    def __init__(self, arn: str) -> None:
        self.arn = arn
        self._region = arn.split(":")[3] if arn.count(":") >= 5 else None
        self._sagemaker = client("sagemaker", self._region)
        self._s3 = client("s3", self._region)
        self._read: dict[str, bytes] = {}

    @cached_property
    def package(self) -> dict[str, Any]:
        """DescribeModelPackage's answer."""
        with service_errors(f"reading model package {self.arn}"):
            return self._sagemaker.describe_model_package(ModelPackageName=self.arn)

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.package.get("CustomerMetadataProperties", {})

    def source(self, kind: str) -> dict[str, str]:
        """S3Uri and ContentDigest of ModelQuality's ``Statistics`` or ``Constraints``."""
        quality = self.package.get("ModelMetrics", {}).get("ModelQuality", {})
        if kind not in quality:
            raise Absent(f"the package has no ModelMetrics.ModelQuality.{kind}")
        return quality[kind]

    @property
    def container(self) -> dict[str, Any]:
        """The package's only container."""
        found = self.package.get("InferenceSpecification", {}).get("Containers", [])
        if len(found) != 1:
            raise Absent(f"the package has {len(found)} containers, not one")
        return found[0]

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """provenance.json."""
        return self.json(self.metadata["provenance_uri"])

    @cached_property
    def definition(self) -> str:
        """The definition that the execution ran."""
        arn = self.metadata["execution"]
        with service_errors(f"reading the definition of {arn}"):
            return self._sagemaker.describe_pipeline_definition_for_execution(
                PipelineExecutionArn=arn
            )["PipelineDefinition"]

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The execution's steps by name."""
        found = Execution(self.metadata["execution"], self._region).steps()
        return {step.name: step for step in found}

    def job(self, step: str) -> dict[str, Any]:
        """DescribeProcessingJob's answer for the step's job, an earlier run's when cached."""
        found = self.steps.get(step)
        if found is None or found.job is None or found.job[0] != "ProcessingJob":
            raise Absent(f"the execution has no processing job of step {step}")
        with service_errors(f"reading the job of step {step}"):
            return self._sagemaker.describe_processing_job(ProcessingJobName=found.job[1])

    def job_inputs(self, step: str) -> dict[str, dict[str, str]]:
        """Input name → its S3Input."""
        return {i["InputName"]: i["S3Input"] for i in self.job(step).get("ProcessingInputs", ())}

    def read(self, uri: str) -> bytes:
        """The whole object."""
        if uri not in self._read:
            self._read[uri] = self._get(uri).read()
        return self._read[uri]

    def json(self, uri: str) -> dict[str, Any]:
        """The object as JSON; Absent when it is none."""
        try:
            found = json.loads(self.read(uri))
        except (ValueError, RecursionError) as error:
            raise Absent(f"{uri} is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise Absent(f"{uri} is no JSON object")
        return found

    def sha256(self, uri: str) -> str:
        """Of the object, read block by block."""
        body, digest = self._get(uri), hashlib.sha256()
        while block := body.read(BLOCK):
            digest.update(block)
        return digest.hexdigest()

    def member(self, uri: str, name: str) -> bytes:
        """One file of an object that is a tar.gz; read up to there and no further."""
        try:
            with tarfile.open(fileobj=self._get(uri), mode="r|gz") as tar:
                for entry in tar:
                    if entry.name.removeprefix("./") == name and entry.isfile():
                        return tar.extractfile(entry).read()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise Absent(f"{uri} cannot be unpacked: {error}") from None
        raise Absent(f"{uri} holds no {name}")

    def size(self, uri: str) -> int:
        """Bytes of the object."""
        bucket, key = _split(uri)
        with service_errors(f"looking at {uri}"):
            try:
                return self._s3.head_object(Bucket=bucket, Key=key)["ContentLength"]
            except ClientError as error:
                if error_code(error) in ("404", "NoSuchKey", "NoSuchBucket"):
                    raise Absent(f"{uri} is not there") from None
                raise

    def listed(self, uri: str) -> dict[str, int]:
        """Name below the prefix → bytes, in the order of the names."""
        bucket, prefix = _split(f"{uri.rstrip('/')}/")
        with service_errors(f"listing {uri}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            items = [item for page in pages for item in page.get("Contents", ())]
        return {item["Key"].removeprefix(prefix): item["Size"] for item in items}

    def folder(self, uri: str) -> dict[str, bytes]:
        """Name below the prefix → content; Absent when there is nothing."""
        names = list(self.listed(uri))
        if not names:
            raise Absent(f"{uri} is not there")
        with ThreadPoolExecutor(THREADS) as pool:
            bodies = pool.map(lambda name: self.read(f"{uri.rstrip('/')}/{name}"), names)
            return dict(zip(names, bodies, strict=True))

    def _get(self, uri: str) -> Any:
        bucket, key = _split(uri)
        with service_errors(f"reading {uri}"):
            try:
                return self._s3.get_object(Bucket=bucket, Key=key)["Body"]
            except ClientError as error:
                if error_code(error) in ("NoSuchKey", "NoSuchBucket"):
                    raise Absent(f"{uri} is not there") from None
                raise


def _split(uri: str) -> tuple[str, str]:
    where = urlsplit(uri)
    if where.scheme != "s3" or not where.netloc:
        raise ServiceError(f"{uri!r} is no S3 URI; expected s3://bucket/key")
    return where.netloc, where.path.lstrip("/")
