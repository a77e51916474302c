"""Whose permissions: a pipeline with its account, from a recipe or from any definition."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import step_type
from trainyard.permissions.values import Values
from trainyard.validate import check

_ROLE = re.compile(r"arn:(aws[a-z-]*):iam::(\d{12}):role/(.+)")


@dataclass(frozen=True)
class Subject:
    """A pipeline as the permissions see it."""

    name: str
    region: str
    role: str
    """ARN of the pipeline's role; partition and account are read from it."""

    document: Mapping[str, Any]
    """The definition."""

    root: str | None
    """``s3://bucket/prefix`` under which an upsert writes; None where the caller named none."""

    kms_key: str | None
    """KMS key of what an upsert writes."""

    @cached_property
    def values(self) -> Values:
        """What the definition's expressions can be."""
        return Values(self.name, self.document)

    @property
    def partition(self) -> str:
        """``aws``, ``aws-cn``, …"""
        return role_parts(self.role)[0]

    @property
    def account(self) -> str:
        """The twelve digits."""
        return role_parts(self.role)[1]

    def arn(self, service: str, resource: str, *, account: str | None = None) -> str:
        """An ARN in the pipeline's region and, where none is given, its account."""
        owner = self.account if account is None else account
        return f"arn:{self.partition}:{service}:{self.region}:{owner}:{resource}"

    def bucket_arn(self, bucket: str, key: str | None = None) -> str:
        """ARN of a bucket, or of the objects in it whose keys match ``key``."""
        return f"arn:{self.partition}:s3:::{bucket}" + ("" if key is None else f"/{key}")

    @cached_property
    def job_roles(self) -> tuple[str, ...]:
        """ARNs of the roles that the steps hand to jobs; the pipeline's where a step names none."""
        roles = set()
        for step in self.values.steps:
            if field := step_type(step.type).role:
                given = step.arguments.get(field)
                where = f"step {step.name}: {field}"
                roles.add(self.values.text(given, where) if given else self.role)
        return tuple(sorted(roles))


def role_parts(role: str) -> tuple[str, str, str]:
    """Partition, account and name of a role.

    Raises:
        DefinitionError: it is no role's ARN.
    """
    match = _ROLE.fullmatch(role)
    if not match:
        raise DefinitionError(
            f"role {role!r}: expected the ARN of a role, arn:aws:iam::111122223333:role/name"
        )
    return match[1], match[2], match[3]


def from_recipe(path: Path, overrides: Sequence[str]) -> Subject:
    """Compiles the recipe: takes the time of importing the SDK."""
    from pipelines.definition import from_recipe as compile_recipe
    from pipelines.recipe.reading import load

    definition = compile_recipe(path, overrides)
    prefix = load(path, overrides).aws.prefix
    return Subject(
        name=definition.name,
        region=definition.region,
        role=definition.role,
        document=json.loads(definition.body),
        root=f"s3://{definition.assets[0].bucket}/{prefix}/{definition.name}",
        kms_key=definition.kms_key,
    )


def from_file(path: Path, *, name: str, region: str, role: str, root: str | None) -> Subject:
    """Any definition JSON; it does not say its name, region and role, so the caller does.

    Raises:
        DefinitionError: the file cannot be read, or the definition is not valid.
    """
    try:
        body = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: cannot be read: {error}; give a JSON file") from None
    wrong = [finding for finding in check(body) if finding.severity == "error"]
    if wrong:
        raise DefinitionError(
            f"{path}: {wrong[0].path}: {wrong[0].problem}; {wrong[0].fix}. "
            f"python -m pipelines.validate {path} says all"
        )
    document = json.loads(body)
    return Subject(name=name, region=region, role=role, document=document, root=root, kms_key=None)
