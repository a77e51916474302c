"""Output of the permission commands: a role's policy, a template of all roles, the VPC endpoints
that are needed, or the differences between a given policy and the derived one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trainyard.common.errors import DefinitionError
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_template import (
    build_template,
    derive_policy,
    dump_yaml,
    extract_policies,
    list_gaps,
    list_roles,
    parse_template,
)
from trainyard.permissions.statements import covers_pattern, find_forced_wildcards
from trainyard.terminal import console, errors

RoleOption = Annotated[
    str | None, typer.Option("--role", metavar="ROLE", help="Print this role's policy.")
]
JobRoleOption = Annotated[
    str | None, typer.Option(help="ARN of one of the roles that jobs assume.")
]
TemplateOption = Annotated[
    bool, typer.Option("--template", help="Print a CloudFormation template of all roles.")
]
EndpointsOption = Annotated[
    bool, typer.Option("--endpoints", help="List the VPC endpoints that an isolated network needs.")
]
CheckOption = Annotated[
    Path | None,
    typer.Option(help="Compare with this template or, with --role, policy; exit 1 if different."),
]


GAPS = 2
"""Exit status if a policy was printed, or a given one matches, and there are gaps that must be
filled by hand."""


def print_permissions(
    subject: Subject,
    head: str,
    role: str | None,
    job_role: str | None,
    as_template: bool,
    check: Path | None,
    as_endpoints: bool = False,
) -> None:
    """Print the policy, template, endpoints or comparison that a command's options select.

    Gaps are printed on stderr, and are in the template's Metadata.

    Args:
        subject: the pipeline.
        head: text to print before a template.
        role: role whose policy is printed or compared.
        job_role: ARN of one of several roles that jobs assume.
        as_template: print a CloudFormation template of all roles.
        check: file with a template or policy to compare with the derived one.
        as_endpoints: list the VPC endpoints that are needed.

    Raises:
        DefinitionError: no option says what to print, or the document is not a definition.
        typer.Exit: with the status of the comparison if ``check`` is given (1 if the policies
            differ); with :data:`GAPS` if there are gaps.
    """
    if check is not None:
        raise typer.Exit(_compare_with_file(subject, check, role, job_role))
    if as_endpoints:
        _print_endpoints(subject)
        return
    if as_template:
        policies = {
            role_entry.name: derive_policy(subject, role_entry.name)
            for role_entry in list_roles(subject)
        }
        gaps = {name: role_gaps for name in policies if (role_gaps := list_gaps(subject, name))}
        print(head + dump_yaml(build_template(subject, policies, gaps)), end="")
        documents = list(policies.values())
    elif role is not None:
        documents = [derive_policy(subject, role, job_role)]
        gaps = {role: list_gaps(subject, role, job_role)}
        print(json.dumps(documents[0], indent=1))
    else:
        choices = "|".join(role_entry.name for role_entry in list_roles())
        raise DefinitionError(f"what to print? give --role {choices}, --template or --endpoints")
    if not any(policy["Statement"] for policy in documents):
        errors.print(
            "no permission is needed; IAM accepts no policy without statements", highlight=False
        )
    wildcards = {k: v for p in documents for k, v in find_forced_wildcards(p).items()}
    for action, reason in sorted(wildcards.items()):
        errors.print(f"{action} on *: {reason}", highlight=False, markup=False)
    if _print_gaps(gaps):
        raise typer.Exit(GAPS)


def _print_endpoints(subject: Subject) -> None:
    """Print the role and name of each VPC endpoint that is needed."""
    role_endpoints = dict(iter_endpoints(subject))
    if "job" not in role_endpoints:
        errors.print("no job has a VPC, so none needs an endpoint", highlight=False)
    for role, names in role_endpoints.items():
        for name in names:
            print(f"{role:4} {name}")


def _print_gaps(gaps: Mapping[str, list[str]]) -> bool:
    """Print all gaps on stderr; return whether there are any."""
    for role, role_gaps in gaps.items():
        for gap in role_gaps:
            errors.print(f"gap in {role}: {gap}", highlight=False, markup=False)
    has_gaps = any(gaps.values())
    if has_gaps:
        errors.print("write the statements that fill the gaps by hand", highlight=False)
    return has_gaps


def _compare_with_file(subject: Subject, file: Path, role: str | None, job_role: str | None) -> int:
    """Print the differences between the policies in ``file`` and the derived ones; return the exit
    status.

    If a policy has gaps, what it allows in excess may fill them, so it is printed but does not
    count as a difference.
    """
    try:
        document = parse_template(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: cannot be read: {error}") from None
    policies = _read_policies(document, subject, file, role)
    gaps = {name: list_gaps(subject, name, job_role) for name in policies}
    difference_count, differs = 0, False
    for name, document in policies.items():
        for difference in compare_policies(derive_policy(subject, name, job_role), document):
            fills = difference.kind == "excess" and bool(gaps[name])
            differs |= not fills
            difference_count += 1
            note = " (unless a gap needs it)" if fills else ""
            console.print(f"{name}: {difference}{note}", highlight=False, markup=False)
    if not difference_count:
        scope = "what can be derived" if any(gaps.values()) else "exactly what is needed"
        console.print(f"{file}: {scope} ({', '.join(policies)})", highlight=False)
    has_gaps = _print_gaps(gaps)
    return 1 if differs else GAPS if has_gaps else 0


def _read_policies(
    document: dict, subject: Subject, file: Path, role: str | None
) -> dict[str, dict]:
    """Return a mapping of a role's name to its policy in ``document``.

    The document is a template, a policy, or the output of ``aws iam get-role-policy``.
    """
    if "Resources" in document:
        policies = extract_policies(document, subject, str(file))
        return {role: policies[role]} if role else policies
    if role is None:
        raise DefinitionError(f"{file}: is a single policy; name its role with --role")
    return {role: document.get("PolicyDocument", document)}


# Compare two policies. Those that allow the same are equal, whatever the order and grouping of
# their statements, because each combination of action, resource and conditions is compared.


# IAM treats the two operators of a pair alike: Arn… always, String… if the value has no wildcard.
_LIKE = {"stringequals": "stringlike", "arnequals": "arnlike"}
_NARROWING = {"stringlike", "arnlike", "bool", "foranyvalue:stringequals", "null"}


@dataclass(frozen=True, slots=True)
class Difference:
    """An action on a resource that only one of the two policies allows."""

    kind: Literal["shortage", "excess"]
    sid: str
    action: str
    resource: str
    conditions: str

    def __str__(self) -> str:
        condition = f" if {self.conditions}" if self.conditions else ""
        return f"{self.kind} {self.sid}: {self.action} on {self.resource}{condition}"


@dataclass(frozen=True, slots=True)
class _Grant:
    """One action and one resource of a statement, with the statement's conditions."""

    sid: str
    action: str
    resource: str
    conditions: Mapping[tuple[str, str], frozenset[str]]

    def is_within(self, other: "_Grant") -> bool:
        """Return whether ``other`` allows everything that this one allows."""
        return (
            covers_pattern(other.action.lower(), self.action.lower())
            and covers_pattern(other.resource, self.resource)
            and all(
                _is_implied(key, values, self.conditions)
                for key, values in other.conditions.items()
            )
        )

    def is_overlapping(self, other: "_Grant") -> bool:
        """Return whether a request may match both, ignoring conditions; used for Deny."""
        return (
            covers_pattern(other.action.lower(), self.action.lower())
            or covers_pattern(self.action.lower(), other.action.lower())
        ) and (
            covers_pattern(other.resource, self.resource)
            or covers_pattern(self.resource, other.resource)
        )

    def to_difference(self, kind: Literal["shortage", "excess"]) -> Difference:
        limits = (f"{o} {k} {sorted(v)}" for (o, k), v in sorted(self.conditions.items()))
        return Difference(kind, self.sid, self.action, self.resource, ", ".join(limits))


def _is_implied(
    key: tuple[str, str], wide: frozenset[str], conditions: Mapping[tuple[str, str], frozenset[str]]
) -> bool:
    """Return whether ``conditions`` imply the condition ``key`` (operator and condition key) with
    the values ``wide``.
    """
    narrow = conditions.get(key)
    if narrow is None:
        return False
    # For a negation or a comparison of numbers, fewer values need not be a narrower condition.
    if key[0] not in _NARROWING:
        return narrow == wide
    return all(any(covers_pattern(w, n) for w in wide) for n in narrow)


def compare_policies(
    derived_policy: Mapping[str, Any], given_policy: Mapping[str, Any]
) -> list[Difference]:
    """Return what ``given_policy`` does not allow but should (shortages), then what it allows but
    should not (excesses), each in the order of its policy.

    If a Deny in ``given_policy`` matches something that is needed, that is a shortage, whatever the
    Deny's conditions.

    Raises:
        DefinitionError: ``given_policy`` is not a policy, or uses NotAction or NotResource.
    """
    needs, allowances = (
        list(_iter_grants(derived_policy, "Allow")),
        list(_iter_grants(given_policy, "Allow")),
    )
    denials = list(_iter_grants(given_policy, "Deny"))
    short = [
        need
        for need in needs
        if not any(need.is_within(grant) for grant in allowances)
        or any(need.is_overlapping(d) for d in denials)
    ]
    excess = [grant for grant in allowances if not any(grant.is_within(need) for need in needs)]
    return [g.to_difference("shortage") for g in short] + [
        g.to_difference("excess") for g in excess
    ]


def _iter_grants(policy: Mapping[str, Any], effect: str) -> Iterator[_Grant]:
    """Iterate over the combinations of action and resource in statements with that effect."""
    statements = policy.get("Statement")
    if statements is None:
        raise DefinitionError("the policy has no Statement; expected an IAM policy document")
    for number, statement in enumerate(_as_list(statements), 1):
        if statement.get("Effect") != effect:
            continue
        sid = statement.get("Sid", f"statement {number}")
        if not {"Action", "Resource"} <= set(statement):
            raise DefinitionError(
                f"{sid}: has no Action or no Resource; NotAction and NotResource allow more "
                "than they list, so they cannot be compared: list all actions and resources"
            )
        conditions = dict(_iter_conditions(statement.get("Condition") or {}))
        for action in _as_list(statement["Action"]):
            for resource in _as_list(statement["Resource"]):
                yield _Grant(sid, action, resource, conditions)


def _iter_conditions(
    condition: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Iterate over ((operator, condition key), values), with names in lower case and equivalent
    operators replaced by one of them.
    """
    for operator, keys in condition.items():
        name = _LIKE.get(operator.lower(), operator.lower())
        for key, values in keys.items():
            yield (name, key.lower()), frozenset(str(v) for v in _as_list(values))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


# List the VPC endpoints that a pipeline needs if its network has no other way out.
#
# They follow from the services of the actions in the derived policies. SageMaker itself pulls a
# job's image, writes its logs, and attaches its volumes and interfaces. Only the calls of the job's
# containers go through the VPC (SageMaker guide, "Give SageMaker AI Training Jobs Access to
# Resources in Your Amazon VPC").

ENDPOINTS = {
    "cloudwatch": ("com.amazonaws.{}.monitoring",),
    "s3": ("com.amazonaws.{}.s3",),
    "sagemaker": ("com.amazonaws.{}.sagemaker.api",),
    "codeartifact": (
        "com.amazonaws.{}.codeartifact.api",
        "com.amazonaws.{}.codeartifact.repositories",
    ),
    "sagemaker-mlflow": ("aws.sagemaker.{}.experiments",),
    "sns": ("com.amazonaws.{}.sns",),
}
"""Service of an action → names of its endpoints, for a region. S3's is a gateway, the others are
interfaces."""
IDENTITY = "com.amazonaws.{}.sts"
"""Endpoint for GetCallerIdentity, with which the commands ask whose credentials they have. It needs
no permission, so no policy has it."""


def iter_endpoints(subject: Subject) -> Iterator[tuple[str, list[str]]]:
    """Iterate over (role's name, names of the VPC endpoints that the users of the role need).

    The roles are the jobs' role, if jobs have a VPC, and those of people or CI who plan, upsert and
    start pipelines, in case they do so from within a VPC.

    Raises:
        DefinitionError: the endpoints' names in this partition are not known here, or
            ``derive_policy`` raises it.
    """
    if subject.partition not in ("aws", "aws-us-gov"):
        raise DefinitionError(
            f"--endpoints: the names in partition {subject.partition} are not known here: aws ec2 "
            "describe-vpc-endpoint-services lists them"
        )
    for role in list_roles(subject):
        policy = derive_policy(subject, role.name)
        services = {action.partition(":")[0] for s in policy["Statement"] for action in s["Action"]}
        # A managed policy is attached to roles of people or CI, who call STS as well.
        if role.resource(subject, policy)["Type"] == "AWS::IAM::ManagedPolicy":
            names = [IDENTITY]
        elif role.name == "job" and "ec2" in services:
            # SageMaker writes a job's metrics outside the job's network.
            services.discard("cloudwatch")
            names = []
        else:
            continue
        names += [name for service in services & ENDPOINTS.keys() for name in ENDPOINTS[service]]
        yield role.name, sorted(name.format(subject.region) for name in names)
