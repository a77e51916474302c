"""Output of the permission commands: a policy, a template, or the differences of a given one."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trainyard.common.errors import DefinitionError
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_template import (
    derive,
    dump,
    missing,
    policies_in,
    read,
    roles,
    template,
)
from trainyard.permissions.statements import covers, forced_wildcards
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
    bool,
    typer.Option("--endpoints", help="List the VPC endpoints of a closed network."),
]
CheckOption = Annotated[
    Path | None,
    typer.Option(help="Compare with a template like ours or, with --role, a policy; exit 1."),
]


GAPS = 2
"""Exit status if a policy is printed, or fits, and has gaps to be filled by hand."""


def answer(
    subject: Subject,
    head: str,
    role: str | None,
    job_role: str | None,
    as_template: bool,
    check: Path | None,
    as_endpoints: bool = False,
) -> None:
    """Print what the options ask for, after ``head`` if it is a template.

    Gaps are named on stderr, and in the template's Metadata.

    Raises:
        DefinitionError: the options ask for nothing, or the document is not a definition.
        typer.Exit: with status 1 if ``check`` differs; with :data:`GAPS` if there are gaps.
    """
    if check is not None:
        raise typer.Exit(_check(subject, check, role, job_role))
    if as_endpoints:
        _print_endpoints(subject)
        return
    if as_template:
        policies = {
            role_entry.name: derive(subject, role_entry.name) for role_entry in roles(subject)
        }
        gaps = {name: role_gaps for name in policies if (role_gaps := missing(subject, name))}
        print(head + dump(template(subject, policies, gaps)), end="")
        documents = list(policies.values())
    elif role is not None:
        documents = [derive(subject, role, job_role)]
        gaps = {role: missing(subject, role, job_role)}
        print(json.dumps(documents[0], indent=1))
    else:
        choices = "|".join(role_entry.name for role_entry in roles())
        raise DefinitionError(f"what to print? give --role {choices}, --template or --endpoints")
    if not any(policy["Statement"] for policy in documents):
        errors.print("nothing is needed; IAM takes no policy without statements", highlight=False)
    wildcards = {k: v for p in documents for k, v in forced_wildcards(p).items()}
    for action, reason in sorted(wildcards.items()):
        errors.print(f"{action} on *: {reason}", highlight=False, markup=False)
    if _print_gaps(gaps):
        raise typer.Exit(GAPS)


def _print_endpoints(subject: Subject) -> None:
    role_endpoints = dict(endpoints(subject))
    if "job" not in role_endpoints:
        errors.print("no job has a VPC, so none needs an endpoint", highlight=False)
    for role, names in role_endpoints.items():
        for name in names:
            print(f"{role:4} {name}")


def _print_gaps(gaps: Mapping[str, list[str]]) -> bool:
    """Print every gap on stderr; return whether there are any."""
    for role, role_gaps in gaps.items():
        for gap in role_gaps:
            errors.print(f"gap in {role}: {gap}", highlight=False, markup=False)
    has_gaps = any(gaps.values())
    if has_gaps:
        errors.print("write the statements that fill the gaps by hand", highlight=False)
    return has_gaps


def _check(subject: Subject, file: Path, role: str | None, job_role: str | None) -> int:
    """Print every difference; return the exit status. An excess may fill a policy's gaps."""
    try:
        document = read(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: cannot be read: {error}") from None
    policies = _read_policies(document, subject, file, role)
    gaps = {name: missing(subject, name, job_role) for name in policies}
    difference_count, differs = 0, False
    for name, document in policies.items():
        for difference in compare(derive(subject, name, job_role), document):
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
    """Return role → the policy in the file; get-role-policy's answer is accepted, too."""
    if "Resources" in document:
        policies = policies_in(document, subject, str(file))
        return {role: policies[role]} if role else policies
    if role is None:
        raise DefinitionError(f"{file}: is one policy; say whose with --role")
    return {role: document.get("PolicyDocument", document)}


# Two policies that allow the same are equal here, whatever the order, grouping and spelling of
# their statements: action × resource × conditions are compared.


# IAM treats the two of a pair alike once the value has no wildcard, and Arn… always.
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
    sid: str
    action: str
    resource: str
    conditions: Mapping[tuple[str, str], frozenset[str]]

    def is_within(self, other: "_Grant") -> bool:
        """Return whether ``other`` allows all that this one does."""
        return (
            covers(other.action.lower(), self.action.lower())
            and covers(other.resource, self.resource)
            and all(
                _is_implied(key, values, self.conditions)
                for key, values in other.conditions.items()
            )
        )

    def meets(self, other: "_Grant") -> bool:
        """Return whether some request matches both, conditions aside (for Deny)."""
        return (
            covers(other.action.lower(), self.action.lower())
            or covers(self.action.lower(), other.action.lower())
        ) and (covers(other.resource, self.resource) or covers(self.resource, other.resource))

    def difference(self, kind: Literal["shortage", "excess"]) -> Difference:
        limits = (f"{o} {k} {sorted(v)}" for (o, k), v in sorted(self.conditions.items()))
        return Difference(kind, self.sid, self.action, self.resource, ", ".join(limits))


def _is_implied(
    key: tuple[str, str],
    wide: frozenset[str],
    conditions: Mapping[tuple[str, str], frozenset[str]],
) -> bool:
    narrow = conditions.get(key)
    if narrow is None:
        return False
    # Of a negation or a comparison of numbers, fewer values are not always a narrower condition.
    if key[0] not in _NARROWING:
        return narrow == wide
    return all(any(covers(w, n) for w in wide) for n in narrow)


def compare(derived_policy: Mapping[str, Any], given_policy: Mapping[str, Any]) -> list[Difference]:
    """Return shortages first, then excesses, each in the order of its policy.

    A Deny in ``given_policy`` that touches something needed makes it a shortage, whatever its
    conditions.

    Raises:
        DefinitionError: ``given_policy`` is not a policy, or uses NotAction or NotResource.
    """
    needs, allowances = list(_grants(derived_policy, "Allow")), list(_grants(given_policy, "Allow"))
    denials = list(_grants(given_policy, "Deny"))
    short = [
        need
        for need in needs
        if not any(need.is_within(grant) for grant in allowances)
        or any(need.meets(d) for d in denials)
    ]
    excess = [grant for grant in allowances if not any(grant.is_within(need) for need in needs)]
    return [g.difference("shortage") for g in short] + [g.difference("excess") for g in excess]


def _grants(policy: Mapping[str, Any], effect: str) -> Iterator[_Grant]:
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
        conditions = dict(_conditions(statement.get("Condition") or {}))
        for action in _as_list(statement["Action"]):
            for resource in _as_list(statement["Resource"]):
                yield _Grant(sid, action, resource, conditions)


def _conditions(
    condition: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    for operator, keys in condition.items():
        name = _LIKE.get(operator.lower(), operator.lower())
        for key, values in keys.items():
            yield (name, key.lower()), frozenset(str(v) for v in _as_list(values))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


# List the VPC endpoints that a pipeline needs where its network has no other way out.
#
# They follow from the services of the derived policies' actions. SageMaker itself pulls a job's
# image, writes its logs, attaches its volumes and interfaces; through the VPC go its containers'
# calls (SageMaker guide, "Give SageMaker AI Training Jobs Access to Resources in Your Amazon
# VPC").

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
"""For GetCallerIdentity, which needs no permission: the verbs ask whose credentials they have."""


def endpoints(subject: Subject) -> Iterator[tuple[str, list[str]]]:
    """Yield (role, the endpoints that its holder needs): the jobs, where they have a VPC, and who
    plans, upserts and starts, where that is done from within one.

    Raises:
        DefinitionError: the partition's names are not known here, or see ``derive``.
    """
    if subject.partition not in ("aws", "aws-us-gov"):
        raise DefinitionError(
            f"--endpoints: the names in partition {subject.partition} are not known here: aws ec2 "
            "describe-vpc-endpoint-services lists them"
        )
    for role in roles(subject):
        policy = derive(subject, role.name)
        services = {action.partition(":")[0] for s in policy["Statement"] for action in s["Action"]}
        # A managed policy is attached to roles of people or CI, who call the services themselves.
        if role.resource(subject, policy)["Type"] == "AWS::IAM::ManagedPolicy":
            names = [IDENTITY]
        elif role.name == "job" and "ec2" in services:
            # SageMaker writes a job's metrics, and not through the job's network.
            services.discard("cloudwatch")
            names = []
        else:
            continue
        names += [name for service in services & ENDPOINTS.keys() for name in ENDPOINTS[service]]
        yield role.name, sorted(name.format(subject.region) for name in names)
