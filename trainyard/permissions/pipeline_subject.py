"""The subject of permissions: a pipeline with its account, from any definition."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.definition_source import read_definition
from trainyard.permissions.statements import Values
from trainyard.validate import refuse_errors

_ROLE = re.compile(r"arn:(aws[a-z-]*):iam::(\d{12}):role/(.+)")
_ROLE_IN_TEXT = re.compile(r'"(arn:aws[a-z-]*:iam::\d{12}:role/[^"]+)"')
_REGION_IN_TEXT = re.compile(
    r"(?:\d{12}\.dkr\.ecr(?:-fips)?\.|arn:aws[a-z-]*:[a-z]+:)([a-z]{2}(?:-[a-z]+)+-\d)(?=[.:])"
)

STEP_ROLES = ("job", "pipeline")
"""Roles whose policies follow from the steps alone."""


@dataclass(frozen=True)
class Subject:
    """A pipeline as the permissions see it."""

    name: str
    region: str
    role: str
    """ARN of the pipeline's role; partition and account are read from it."""

    document: Mapping[str, Any]
    """The definition."""

    root: str | None = None
    """``s3://bucket/prefix`` under which an upsert writes; None if the caller named none."""

    kms_key: str | None = None
    """KMS key for the objects that an upsert writes."""

    read_keys: tuple[str, ...] = ()
    """KMS keys of data that jobs only read, which no definition names."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the roles in a template."""

    extra_steps: tuple[Mapping[str, Any], ...] = ()
    """What is made outside of the pipeline with the jobs' role, in the form of steps."""

    application: Any = None
    """What an application derives roles of its own from; nothing here reads it."""

    job_role: str | None = None
    """ARN of the role in question, where jobs assume several."""

    @cached_property
    def values(self) -> Values:
        """Possible values of the definition's expressions."""
        return Values(self.name, self.document)

    @property
    def partition(self) -> str:
        """Partition: ``aws``, ``aws-cn`` and so on."""
        return role_parts(self.role)[0]

    @property
    def account(self) -> str:
        """Account number, twelve digits."""
        return role_parts(self.role)[1]

    def arn(self, service: str, resource: str, *, account: str | None = None) -> str:
        """Return an ARN in the pipeline's region and, unless another is given, its account."""
        owner = self.account if account is None else account
        return f"arn:{self.partition}:{service}:{self.region}:{owner}:{resource}"

    def bucket_arn(self, bucket: str, key: str | None = None) -> str:
        """Return the ARN of a bucket, or of the objects in it whose keys match ``key``."""
        return f"arn:{self.partition}:s3:::{bucket}" + ("" if key is None else f"/{key}")


def role_parts(role: str) -> tuple[str, str, str]:
    """Return (partition, account, name) of a role.

    Raises:
        DefinitionError: it is not a role's ARN.
    """
    match = _ROLE.fullmatch(role)
    if not match:
        raise DefinitionError(
            f"role {role!r}: expected the ARN of a role, arn:aws:iam::111122223333:role/name"
        )
    return match[1], match[2], match[3]


def from_definition(
    body: str, source: str, *, name: str, region: str, role: str, root: str | None = None
) -> Subject:
    """Return the subject of a definition, which is from ``source`` (for messages).

    Raises:
        DefinitionError: the definition is not valid.
    """
    refuse_errors(body, source)
    return Subject(name=name, region=region, role=role, document=json.loads(body), root=root)


def from_file(
    path: Path,
    *,
    name: str,
    region: str,
    role: str,
    root: str | None = None,
    policy_name: str | None = None,
) -> Subject:
    """Return the subject of a definition's file; the caller gives what the file lacks.

    The policies of jobs and pipeline (``policy_name``) need a name only if the definition uses it,
    and only the account of the pipeline's role, which the steps' roles contain, too. Images and
    ARNs contain the region, if they agree.

    Raises:
        DefinitionError: the file cannot be read or is not valid, or a value is missing.
    """
    body, source = read_definition(path), str(path)
    facts, options = read_facts(body), {"name": name, "region": region, "pipeline_role": role}
    if missing := [fact for fact in missing_facts(body, policy_name) if not options[fact]]:
        raise DefinitionError(
            f"{path}: the definition does not say whose it is and where: give {', '.join(missing)}"
        )
    region, role = region or facts["region"], role or facts["pipeline_role"]
    return from_definition(body, source, name=name, region=region, role=role, root=root)


def read_facts(body: str) -> dict[str, str]:
    """Return the region that images and ARNs in a definition agree on, and the first role in it;
    empty where there is none.
    """
    regions, roles = set(_REGION_IN_TEXT.findall(body)), sorted({*_ROLE_IN_TEXT.findall(body)})
    region = regions.pop() if len(regions) == 1 else ""
    return {"region": region, "pipeline_role": roles[0] if roles else ""}


def missing_facts(body: str, role_name: str | None) -> dict[str, str]:
    """Return what a definition does not say, of what the policies of a role (None: of all) need → a
    value that is likely meant.
    """
    facts, examples = read_facts(body), {"name": "demo", "region": "us-east-1"}
    if role_name in STEP_ROLES:
        examples.pop("name")
    if facts["region"]:
        examples.pop("region")
    if not (role_name in STEP_ROLES and facts["pipeline_role"]):
        examples["pipeline_role"] = facts["pipeline_role"] or "arn:aws:iam::111122223333:role/demo"
    return examples
