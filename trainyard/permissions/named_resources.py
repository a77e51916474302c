"""Resources that requests name: S3 places, keys, images, networks; unknown ones are gaps."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import Job
from trainyard.language.steps import Step
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.statements import folder_patterns, split_uri

_IMAGE = re.compile(
    r"(\d{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)(?:[:@].+)?"
)
_MLFLOW = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:mlflow-tracking-server/[\w-]+")


@dataclass(slots=True)
class Needs:
    """Resources named by the requests of one role's jobs, collected step by step."""

    reads: set[tuple[str, str]] = field(default_factory=set)
    """(bucket, key pattern) of each place."""

    writes: set[tuple[str, str]] = field(default_factory=set)
    data_keys: set[str] = field(default_factory=set)
    volume_keys: set[str] = field(default_factory=set)
    repositories: set[str] = field(default_factory=set)
    log_groups: set[str] = field(default_factory=set)
    subnets: set[str] = field(default_factory=set)
    security_groups: set[str] = field(default_factory=set)
    file_systems: set[tuple[str, str]] = field(default_factory=set)
    """(``EFS`` or ``FSxLustre``, ID) of each file system."""

    trackers: set[str] = field(default_factory=set)
    package_repositories: set[str] = field(default_factory=set)
    """ARNs of CodeArtifact repositories."""

    alarms: set[str] = field(default_factory=set)
    """Names of the alarms that roll an endpoint back."""

    gaps: list[str] = field(default_factory=list)
    """Permissions that could not be derived, and why; each names its step and field."""


@dataclass(slots=True)
class Collector:
    """Reader of one step's Arguments into :class:`Needs`."""

    subject: Subject
    step: Step
    needs: Needs

    def text(self, value: Any, field: str) -> str:
        return self.subject.values.text(value, f"step {self.step.name}: {field}")

    @contextmanager
    def or_gap(self) -> Iterator[None]:
        """Record what cannot be derived as a gap, and continue with the rest."""
        try:
            yield
        except DefinitionError as error:
            self.needs.gaps.append(str(error))

    def read(self, uri: Any, field: str) -> None:
        with self.or_gap():
            self.needs.reads |= self._folder(uri, field)

    def write(self, uri: Any, field: str) -> None:
        """Add the places below the prefix; an object of that very name is never written."""
        with self.or_gap():
            folder = self._folder(uri, field)
            self.needs.writes |= {(b, key) for b, key in folder if key[-1:] == "*"}

    def _folder(self, uri: Any, field: str) -> set[tuple[str, str]]:
        location = f"step {self.step.name}: {field}"
        bucket, key = split_uri(self.text(uri, field), location)
        return {(bucket, pattern) for pattern in folder_patterns(key)}

    def image(self, uri: Any, field: str) -> None:
        """Add an image in ECR; no policy of ECR's can name one that is elsewhere."""
        with self.or_gap():
            image = self.text(uri, field)
            match = _IMAGE.fullmatch(image)
            if not match:
                raise DefinitionError(
                    f"step {self.step.name}: {field}: {image!r} is not an image in Amazon ECR "
                    "(account.dkr.ecr.region.amazonaws.com/repository:tag)"
                )
            account, region, repository = match.groups()
            arn = f"arn:{self.subject.partition}:ecr:{region}:{account}:repository/{repository}"
            self.needs.repositories.add(arn)

    def key(self, key: Any, into: set[str], field: str) -> None:
        with self.or_gap():
            if key:
                into.add(key_arn(self.subject, self.text(key, field)))

    def network(self, vpc: Mapping[str, Any] | None) -> None:
        vpc_config = vpc or {}
        with self.or_gap():
            self.needs.subnets |= {self.text(s, "Subnets") for s in vpc_config.get("Subnets", ())}
            groups = vpc_config.get("SecurityGroupIds", ())
            self.needs.security_groups |= {self.text(g, "SecurityGroupIds") for g in groups}

    def services(self, strings: Mapping[str, Any] | None) -> None:
        """Add a managed MLflow server that an environment variable or a hyperparameter names, and
        the CodeArtifact repository that AWS's drivers log in to.
        """
        for name, value in (strings or {}).items():
            if isinstance(value, str) and _MLFLOW.fullmatch(value):
                self.needs.trackers.add(self.text(value, name))
            if isinstance(value, str) and name == "CA_REPOSITORY_ARN":
                self.needs.package_repositories.add(self.text(value, name))

    def log(self, job: Job) -> None:
        self.needs.log_groups.add(job.log_group)


def key_arn(subject: Subject, key: str) -> str:
    """Return a key's ARN from its ARN or its id; an alias' ARN stays one (see
    ``job_role.key_statements``).
    """
    if key.startswith("arn:"):
        return key
    return subject.arn("kms", key if key.startswith("alias/") else f"key/{key}")
