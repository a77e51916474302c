"""The subject of permissions: a pipeline with its account and region, read from any definition; and
the collection of the resources that its jobs' requests name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.definition_source import read_definition
from trainyard.language.definition_document import Step
from trainyard.language.step_types import Job
from trainyard.permissions.statements import Values, list_folder_patterns, split_uri
from trainyard.validate import refuse_errors

_ROLE = re.compile(r"arn:(aws[a-z-]*):iam::(\d{12}):role/(.+)")
_ROLE_IN_TEXT = re.compile(r'"(arn:aws[a-z-]*:iam::\d{12}:role/[^"]+)"')
_REGION_IN_TEXT = re.compile(
    r"(?:\d{12}\.dkr\.ecr(?:-fips)?\.|arn:aws[a-z-]*:[a-z]+:)([a-z]{2}(?:-[a-z]+)+-\d)(?=[.:])"
)

STEP_ROLES = ("job", "pipeline")
"""Roles whose policies can be derived from the steps alone, without the pipeline's name."""


@dataclass(frozen=True)
class Subject:
    """A pipeline, with everything that its roles' policies are derived from."""

    name: str
    region: str
    role: str
    """ARN of the pipeline's role, which also gives partition and account."""

    document: Mapping[str, Any]
    """The definition."""

    root: str | None = None
    """``s3://bucket/prefix`` under which an upsert writes; None if the caller named none."""

    kms_key: str | None = None
    """KMS key for the objects that an upsert writes."""

    read_keys: tuple[str, ...] = ()
    """KMS keys of data that jobs only read. A definition does not contain them."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the roles in a template."""

    extra_steps: tuple[Mapping[str, Any], ...] = ()
    """What is created outside of the pipeline with the jobs' role, in the form of steps."""

    application: Any = None
    """Object from which an application derives roles of its own; nothing here uses it."""

    job_role: str | None = None
    """ARN of the role whose policy is derived, if jobs assume several roles."""

    @cached_property
    def values(self) -> Values:
        """Resolver of the definition's expressions."""
        return Values(self.name, self.document)

    @property
    def partition(self) -> str:
        """Partition, such as ``aws`` or ``aws-cn``."""
        return split_role_arn(self.role)[0]

    @property
    def account(self) -> str:
        """Account number, twelve digits."""
        return split_role_arn(self.role)[1]

    def build_arn(self, service: str, resource: str, *, account: str | None = None) -> str:
        """Return an ARN in the pipeline's region and, unless another is given, its account."""
        owner = self.account if account is None else account
        return f"arn:{self.partition}:{service}:{self.region}:{owner}:{resource}"

    def build_bucket_arn(self, bucket: str, key: str | None = None) -> str:
        """Return the ARN of a bucket, or of the objects in it whose keys match ``key``."""
        return f"arn:{self.partition}:s3:::{bucket}" + ("" if key is None else f"/{key}")


def split_role_arn(role: str) -> tuple[str, str, str]:
    """Return (partition, account, name with path) of the role with the ARN ``role``.

    Raises:
        DefinitionError: ``role`` is not the ARN of a role.
    """
    match = _ROLE.fullmatch(role)
    if not match:
        raise DefinitionError(
            f"role {role!r}: expected the ARN of a role, arn:aws:iam::111122223333:role/name"
        )
    return match[1], match[2], match[3]


def parse_subject(
    body: str, source: str, *, name: str, region: str, role: str, root: str | None = None
) -> Subject:
    """Return the subject of the definition ``body``; ``source`` names it in messages.

    Raises:
        DefinitionError: the definition is not valid.
    """
    refuse_errors(body, source)
    return Subject(name=name, region=region, role=role, document=json.loads(body), root=root)


def read_subject(
    path: Path,
    *,
    name: str,
    region: str,
    role: str,
    root: str | None = None,
    policy_name: str | None = None,
) -> Subject:
    """Return the subject of the definition in a file.

    An empty ``region`` or ``role`` is read from the definition: the region from images and ARNs if
    all have the same, the role from a step. A step's role is enough for the policies of jobs and
    pipeline, because they need only its account.

    Args:
        path: file with the definition.
        name: name of the pipeline; it may be empty for the policies of jobs and pipeline.
        region: region of the pipeline, or empty.
        role: ARN of the pipeline's role, or empty.
        root: ``s3://bucket/prefix`` under which an upsert writes, if known.
        policy_name: role whose policy is to be derived; None for all.

    Raises:
        DefinitionError: the file cannot be read or is not valid, or a needed value is missing.
    """
    body, source = read_definition(path), str(path)
    is_of_steps = policy_name in STEP_ROLES
    facts = find_region_and_role(body)
    region = region or facts["region"]
    role = role or (facts["pipeline_role"] if is_of_steps else "")
    options = {"--name": name or is_of_steps, "--region": region, "--pipeline-role": role}
    if missing := [option for option, value in options.items() if not value]:
        raise DefinitionError(
            f"{path}: the definition does not contain all needed values: give {', '.join(missing)}"
        )
    return parse_subject(body, source, name=name, region=region, role=role, root=root)


def find_region_and_role(body: str) -> dict[str, str]:
    """Return the ``region`` of all images and ARNs in a definition, and its alphabetically first
    role as ``pipeline_role``. Each is empty if there is none; the region also if they differ.
    """
    regions, roles = set(_REGION_IN_TEXT.findall(body)), sorted({*_ROLE_IN_TEXT.findall(body)})
    region = regions.pop() if len(regions) == 1 else ""
    return {"region": region, "pipeline_role": roles[0] if roles else ""}


# Resources that requests name: S3 locations, keys, images, networks; unknown ones are gaps.

_IMAGE = re.compile(
    r"(\d{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)(?:[:@].+)?"
)
_MLFLOW = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:mlflow-tracking-server/[\w-]+")


@dataclass(slots=True)
class Needs:
    """Resources named by the requests of one role's jobs, collected step by step."""

    reads: set[tuple[str, str]] = field(default_factory=set)
    """(bucket, key pattern) of each S3 location that is read."""

    writes: set[tuple[str, str]] = field(default_factory=set)
    """(bucket, key pattern) of each S3 location that is written."""

    data_keys: set[str] = field(default_factory=set)
    """ARNs of KMS keys that encrypt outputs."""

    volume_keys: set[str] = field(default_factory=set)
    """ARNs of KMS keys that encrypt volumes."""

    repositories: set[str] = field(default_factory=set)
    """ARNs of ECR repositories."""

    log_groups: set[str] = field(default_factory=set)
    subnets: set[str] = field(default_factory=set)
    security_groups: set[str] = field(default_factory=set)
    file_systems: set[tuple[str, str]] = field(default_factory=set)
    """(``EFS`` or ``FSxLustre``, ID) of each file system."""

    trackers: set[str] = field(default_factory=set)
    """ARNs of MLflow tracking servers."""

    package_repositories: set[str] = field(default_factory=set)
    """ARNs of CodeArtifact repositories."""

    alarms: set[str] = field(default_factory=set)
    """Names of the alarms that roll an endpoint back."""

    gaps: list[str] = field(default_factory=list)
    """Permissions that could not be derived, and why; each names its step and field."""


@dataclass(slots=True)
class Collector:
    """Adds the resources that one step's request names to a :class:`Needs`.

    In its methods, ``field`` is the name of the member in the request, for messages.
    """

    subject: Subject
    step: Step
    needs: Needs

    def resolve_text(self, value: Any, field: str) -> str:
        """Return ``value`` as a pattern; see ``Values.resolve_text``."""
        return self.subject.values.resolve_text(value, f"step {self.step.name}: {field}")

    @contextmanager
    def record_gaps(self) -> Iterator[None]:
        """Record a DefinitionError in the block as a gap instead of raising it."""
        try:
            yield
        except DefinitionError as error:
            self.needs.gaps.append(str(error))

    def add_read_location(self, uri: Any, field: str) -> None:
        """Add the object ``uri`` and those below it to the locations that are read."""
        with self.record_gaps():
            self.needs.reads |= self._resolve_folder(uri, field)

    def add_written_location(self, uri: Any, field: str) -> None:
        """Add the objects below ``uri`` to the locations that are written, but not the object
        ``uri`` itself, because jobs never write one.
        """
        with self.record_gaps():
            folder = self._resolve_folder(uri, field)
            self.needs.writes |= {(b, key) for b, key in folder if key[-1:] == "*"}

    def _resolve_folder(self, uri: Any, field: str) -> set[tuple[str, str]]:
        """Return (bucket, key pattern) of the object ``uri`` and of those below it."""
        location = f"step {self.step.name}: {field}"
        bucket, key = split_uri(self.resolve_text(uri, field), location)
        return {(bucket, pattern) for pattern in list_folder_patterns(key)}

    def add_image(self, uri: Any, field: str) -> None:
        """Add the ECR repository of an image; an image elsewhere becomes a gap, because no policy
        can name it.
        """
        with self.record_gaps():
            image = self.resolve_text(uri, field)
            match = _IMAGE.fullmatch(image)
            if not match:
                raise DefinitionError(
                    f"step {self.step.name}: {field}: {image!r} is not an image in Amazon ECR "
                    "(account.dkr.ecr.region.amazonaws.com/repository:tag)"
                )
            account, region, repository = match.groups()
            arn = f"arn:{self.subject.partition}:ecr:{region}:{account}:repository/{repository}"
            self.needs.repositories.add(arn)

    def add_key(self, key: Any, into: set[str], field: str) -> None:
        """Add the ARN of a KMS key, if there is one, to the set ``into``."""
        with self.record_gaps():
            if key:
                into.add(build_key_arn(self.subject, self.resolve_text(key, field)))

    def add_network(self, vpc: Mapping[str, Any] | None) -> None:
        """Add the subnets and security groups of a VpcConfig, if there is one."""
        vpc_config = vpc or {}
        with self.record_gaps():
            self.needs.subnets |= {
                self.resolve_text(s, "Subnets") for s in vpc_config.get("Subnets", ())
            }
            groups = vpc_config.get("SecurityGroupIds", ())
            self.needs.security_groups |= {self.resolve_text(g, "SecurityGroupIds") for g in groups}

    def add_services(self, strings: Mapping[str, Any] | None) -> None:
        """Add the services that environment variables or hyperparameters (``strings``) name: a
        managed MLflow server, and the CodeArtifact repository to which AWS's drivers log in.
        """
        for name, value in (strings or {}).items():
            if isinstance(value, str) and _MLFLOW.fullmatch(value):
                self.needs.trackers.add(self.resolve_text(value, name))
            if isinstance(value, str) and name == "CA_REPOSITORY_ARN":
                self.needs.package_repositories.add(self.resolve_text(value, name))

    def add_log_group(self, job: Job) -> None:
        """Add the log group that jobs of this kind write to."""
        self.needs.log_groups.add(job.log_group)


def build_key_arn(subject: Subject, key: str) -> str:
    """Return the ARN of a KMS key from its ARN or ID, or the ARN of an alias from its name or ARN.

    ``job_role.allow_keys`` treats aliases separately.
    """
    if key.startswith("arn:"):
        return key
    return subject.build_arn("kms", key if key.startswith("alias/") else f"key/{key}")
