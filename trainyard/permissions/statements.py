"""IAM statements, wildcards that AWS requires, comparison of patterns, and the resolution of a
definition's expressions to patterns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.definition_document import Step, iter_steps
from trainyard.language.evaluation import Unknown, UnstartedScope, evaluate_value, join_values
from trainyard.language.expressions import (
    ExpressionError,
    format_join_value,
    index_parameters,
    look_up_path,
)

Conditions = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Mapping of an operator to a mapping of a condition key to its values, as in a policy."""

WILDCARD_REASONS = {
    "cloudwatch:GetMetricStatistics": "CloudWatch has no resource type for metrics",
    "cloudwatch:PutMetricData": (
        "CloudWatch has no resource type for metrics; the condition cloudwatch:namespace limits it"
    ),
    "ec2:DescribeDhcpOptions": "EC2's Describe actions have no resource types",
    "ec2:DescribeNetworkInterfaces": "EC2's Describe actions have no resource types",
    "ec2:DescribeSecurityGroups": "EC2's Describe actions have no resource types",
    "ec2:DescribeSubnets": "EC2's Describe actions have no resource types",
    "ec2:DescribeVpcs": "EC2's Describe actions have no resource types",
    "ecr:GetAuthorizationToken": (
        "the token is for the whole registry; permissions on repositories limit what it can pull"
    ),
    "fsx:DescribeFileSystems": "FSx lists file systems without a resource type",
    "sts:GetServiceBearerToken": (
        "STS has no resource type for tokens; the condition sts:AWSServiceName limits it"
    ),
}
"""Mapping of an action to the reason why its resource must be ``*``.

They are from the Service Authorization Reference (docs.aws.amazon.com/service-authorization), in
which these actions have no resource type. The tests compare this with the reference's data.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An Allow statement of an IAM policy."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)

    def as_json(self) -> dict:
        """Return the statement in the form of a policy document."""
        condition = {
            operator: {key: list(values) for key, values in keys.items()}
            for operator, keys in self.conditions.items()
        }
        return {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": list(self.actions),
            "Resource": list(self.resources),
            **({"Condition": condition} if condition else {}),
        }


@dataclass(frozen=True, slots=True)
class Gap:
    """A permission that a role needs and that cannot be derived from the definition.

    A policy with a gap must be completed by hand.
    """

    says: str
    """Message with the step, the field and the reason."""


def build_policy(statements: Iterable[Statement | Gap]) -> dict:
    """Return a policy document with the statements that have resources; gaps are left out."""
    grants = (s for s in statements if isinstance(s, Statement))
    allowing = [s.as_json() for s in grants if s.resources]
    return {"Version": "2012-10-17", "Statement": allowing}


def find_forced_wildcards(document: Mapping) -> dict[str, str]:
    """Return a mapping of each action in the policy that has the resource ``*`` to the reason.

    Raises:
        KeyError: AWS does not require ``*`` for the action, so the derived policy has a bug.
    """
    return {
        action: WILDCARD_REASONS[action]
        for statement in document["Statement"]
        if "*" in statement["Resource"]
        for action in statement["Action"]
    }


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches the IAM patterns which ``pattern`` covers.

    Its ``*`` matches any text, also wildcards; its ``?`` matches any character but ``*``.
    """
    parts = {"*": ".*", "?": "[^*]"}
    return re.compile("".join(parts.get(char, re.escape(char)) for char in pattern), re.DOTALL)


def covers_pattern(wide: str, narrow: str) -> bool:
    """Return whether the IAM pattern ``wide`` matches everything that ``narrow`` matches."""
    return _compile_pattern(wide).fullmatch(narrow) is not None


def minimize_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns without those that another one covers, sorted.

    Of patterns that cover each other, the first one is kept.
    """
    result: list[str] = []
    for pattern in sorted(set(patterns)):
        if not any(covers_pattern(other, pattern) for other in result):
            result = [other for other in result if not covers_pattern(pattern, other)] + [pattern]
    return tuple(result)


_HASH = re.compile(r"[0-9a-f]{16,}")  # name of a folder that changes with the folder's content


class Values(UnstartedScope):
    """Resolves a definition's expressions to patterns; parameters have their default values."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        parameters = index_parameters(document).items()
        super().__init__({n: p["DefaultValue"] for n, p in parameters if "DefaultValue" in p})
        self.name = name
        self.steps: tuple[Step, ...] = tuple(iter_steps(document["Steps"]))
        self._by_name = {step.name: step for step in self.steps}

    def resolve_text(self, value: Any, location: str) -> str:
        """Return ``value`` as a pattern, with ``*`` for each part that is known only at run time.

        ``location`` names the field in error messages.

        Raises:
            DefinitionError: the target of a reference does not exist, or a parameter has no default
                value.
        """
        try:
            result = evaluate_value(value, self)
            return (
                result.fill_unknowns("*")
                if isinstance(result, Unknown)
                else format_join_value(result)
            )
        except ExpressionError as error:
            raise DefinitionError(f"{location}: {error}") from None

    def get_step(self, name: str) -> Step:
        """Return the step with that name.

        Raises:
            ExpressionError: there is none.
        """
        if name not in self._by_name:
            raise ExpressionError(f"there is no step {name!r}; there are {sorted(self._by_name)}")
        return self._by_name[name]

    def parameter(self, name: str) -> Any:
        """Return a parameter's default value; raise ExpressionError if it has none."""
        if name not in self._parameters:
            raise ExpressionError(
                f"parameter {name!r} has no default value, so the resources that a run may access "
                "are not known; give it one"
            )
        return self._parameters[name]

    def variable(self, name: str) -> Any:
        """Return the pipeline's name if it is known; ``Unknown`` for any other variable."""
        return self.name if name == "PipelineName" and self.name else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        """Return a step's property as far as it follows from the step's arguments.

        It is the argument itself, or the location that the service derives from it. Other
        properties are ``Unknown``.
        """
        arguments = self.get_step(step).arguments
        if path == "ModelArtifacts.S3ModelArtifacts":
            folder = evaluate_value(
                look_up_path(arguments, "OutputDataConfig.S3OutputPath", step), self
            )
            kind = look_up_path(arguments, "OutputDataConfig", step).get("CompressionType")
            name = "model/" if kind == "NONE" else "model.tar.gz"
            return join_location(folder, super().property(step, path), f"/output/{name}")
        if path.startswith("CalculatedBaseline"):
            uri = look_up_path(arguments, "ProcessingOutputConfig.Outputs[0].S3Output.S3Uri", step)
            return join_location(evaluate_value(uri, self), super().property(step, path))
        if path.rpartition(".")[2].endswith(("Name", "Arn")):
            return super().property(step, path)
        try:
            argument = look_up_path(arguments, path, f"step {step}")
        except ExpressionError:
            # The property is only in the service's response, such as OutputParameters.
            return super().property(step, path)
        return evaluate_value(argument, self)


def join_location(folder: Any, *names: Any) -> Any:
    """Return ``names``, joined, as a location below ``folder``; parts of both may be ``Unknown``.

    Like the service, put exactly one slash between, whether ``folder`` ends with one or not.
    """
    parts = list((folder.parts or (folder,)) if isinstance(folder, Unknown) else (folder,))
    if isinstance(parts[-1], str):
        parts[-1] = parts[-1].removesuffix("/")
    return join_values([*parts, "/", *names])


def split_uri(uri: str, location: str) -> tuple[str, str]:
    """Split ``s3://bucket/key`` into the bucket and the key, which may be a pattern.

    Raises:
        DefinitionError: ``uri`` is not an S3 URI, or its bucket is known only at run time.
    """
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]+[a-z0-9])(?:/(.*))?", uri)
    if not match:
        raise DefinitionError(
            f"{location}: {uri!r} is not s3://bucket/key with a fixed bucket, so no policy can "
            "name it"
        )
    return match[1], match[2] or ""


def list_folder_patterns(key: str) -> tuple[str, ...]:
    """Return the patterns of the keys that a job may access if it is given ``key`` as a prefix.

    They are cut at the first part that is known only at run time, or that is a hash of content.
    """
    parts: list[str] = []
    for part in key.split("/"):
        # IAM's ``*`` also matches slashes, so later parts would hardly narrow the pattern. With
        # hashes, the policies would change with every change of the code.
        if "*" in part or _HASH.fullmatch(part):
            return ("/".join([*parts, "*"]),)
        parts.append(part)
    if key == "" or key.endswith("/"):
        return (f"{key}*",)
    # S3 has no folders: the key may be that of an object, or a prefix of the keys of objects.
    return (key, f"{key}/*")
