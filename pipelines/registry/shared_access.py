"""Policies between the accounts of a promotion.

The first part derives the policies that a promotion needs. The second part checks whether the
existing policies grant access to anybody else.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from pipelines.recipe.sections import parse_account
from trainyard.aws_clients import read_error_code, service_errors
from trainyard.common.errors import GateError, RecipeError
from trainyard.permissions.policy_documents import Policy, parse_policy
from trainyard.permissions.policy_evaluation import Policies, Principal, Request, evaluate_request

STRANGER = "000000000000"
"""An account number that nobody has: a policy that allows it allows everybody."""
_GROUP = tuple(
    f"sagemaker:{verb}"
    for verb in (
        *("CreateModelPackage", "UpdateModelPackage", "DeleteModelPackage"),
        *("PutModelPackageGroupPolicy", "DeleteModelPackageGroupPolicy"),
    )
)
_BUCKET = ("s3:PutObject", "s3:DeleteObject", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy")
_NO_POLICY = ("NoSuchBucketPolicy",)


@dataclass(frozen=True, slots=True)
class Destination:
    """The place in the target account to which a promotion copies a package."""

    bucket: str
    prefix: str
    """Key prefix of the records and the copies."""
    group: str
    """ARN of the group."""
    key: str | None
    """ARN of the KMS key that encrypts the copies, if any."""


@dataclass(frozen=True, slots=True)
class PromotionRoute:
    """The two accounts of a promotion, and its buckets, keys, groups and roles in them."""

    source: str
    """Account in which the package is registered."""
    target: str
    """Account to which the package is promoted."""
    group: str
    """ARN of the package's group."""
    bucket: str
    """Bucket of the source."""
    prefix: str
    """Key prefix of all objects that a package there names."""
    reader: str
    """ARN of the source account's role that the target's promoter assumes."""
    key: str | None
    """ARN of the KMS key with which the source's objects are encrypted, if any."""
    into: Destination


# Derive the policies that a promotion needs.


def build_policies(route: PromotionRoute, promoter: str) -> dict[str, Any]:
    """Return the policies that let the target's role ``promoter`` promote packages. Each key says
    to which role, bucket, group or key the policy is attached.

    Everyone in the target's account whose own policy allows assuming this role can promote.

    Raises:
        RecipeError: the role is of another account.
    """
    if parse_account(promoter) != route.target:
        raise RecipeError(
            f"--policies {promoter}: is not a role of account {route.target}, which promotes; give "
            f"one, such as {_get_arn_prefix(route.into.group)}:iam::{route.target}:role/promoter"
        )
    bucket = f"{_get_arn_prefix(route.group)}:s3:::{route.bucket}"
    objects = f"{bucket}/{route.prefix}/*"
    listing = {"StringLike": {"s3:prefix": [f"{route.prefix}/*"]}}
    principal = {"AWS": promoter}
    package = f"{route.group.replace(':model-package-group/', ':model-package/')}/*"
    runs = [f"{route.group.partition(':model-package-group/')[0]}:{kind}/*"
            for kind in ("pipeline", "processing-job", "training-job")]  # fmt: skip
    reader_statements = [
        _build_allow_statement(["sagemaker:DescribeModelPackage"], package),
        _build_allow_statement(["sagemaker:GetModelPackageGroupPolicy"], route.group),
        _build_allow_statement(
            [
                *("sagemaker:DescribePipelineDefinitionForExecution",),
                *("sagemaker:ListPipelineExecutionSteps",),
                *("sagemaker:ListPipelineParametersForExecution",),
                *("sagemaker:DescribeProcessingJob", "sagemaker:DescribeTrainingJob"),
            ],
            runs,
        ),
        _build_allow_statement(["s3:GetBucketPolicy"], bucket),
        _build_allow_statement(["iam:GetRole"], route.reader),
    ]
    policies = {
        f"{route.reader}: trust": _build_policy(
            _build_allow_statement(["sts:AssumeRole"], None, principal)
        ),
        f"{route.reader}: policy": _build_policy(*reader_statements),
        f"bucket {route.bucket}": _build_policy(
            _build_allow_statement(["s3:GetObject"], objects, principal),
            _build_allow_statement(["s3:ListBucket"], bucket, principal, listing),
        ),
        f"{promoter}: trust": _build_policy(
            _build_allow_statement(
                ["sts:AssumeRole"],
                None,
                {"AWS": f"{_get_arn_prefix(route.into.group)}:iam::{route.target}:root"},
            )
        ),
        f"{promoter}: policy": _build_policy(
            _build_allow_statement(["sts:AssumeRole"], route.reader),
            _build_allow_statement(["s3:GetObject"], objects),
            _build_allow_statement(["s3:ListBucket"], bucket, when=listing),
            *([_build_allow_statement(["kms:Decrypt"], route.key)] if route.key else []),
            *_iter_destination_statements(route.into),
        ),
    }
    # A group in another account than the promoter's needs a policy of its own that names the
    # promoter.
    if parse_account(route.into.group) != route.target:
        group_statements = [
            statement
            for statement in _iter_destination_statements(route.into)
            if "sagemaker" in str(statement["Resource"])
        ]
        policies[f"group {route.into.group}"] = _build_policy(
            *(statement | {"Principal": principal} for statement in group_statements)
        )
    if route.key:
        policies[f"key {route.key}"] = _build_policy(
            _build_allow_statement(["kms:Decrypt"], "*", principal)
        )
    return policies


def _iter_destination_statements(into: Destination) -> Iterator[dict[str, Any]]:
    """Yield the statements that the promoter needs in its own account."""
    bucket = f"{_get_arn_prefix(into.group)}:s3:::{into.bucket}"
    package = f"{into.group.replace(':model-package-group/', ':model-package/')}/*"
    listing = {"StringLike": {"s3:prefix": [f"{into.prefix}/*"]}}
    yield _build_allow_statement(["s3:GetObject", "s3:PutObject"], f"{bucket}/{into.prefix}/*")
    yield _build_allow_statement(["s3:ListBucket"], bucket, when=listing)
    verbs = ("CreateModelPackage", "DescribeModelPackage", "ListModelPackages")
    yield _build_allow_statement([f"sagemaker:{verb}" for verb in verbs], package)
    yield _build_allow_statement(
        ["sagemaker:CreateModelPackageGroup", "sagemaker:AddTags"], into.group
    )
    yield _build_allow_statement(["sagemaker:ListModelPackageGroups"], "*")
    if into.key:
        yield _build_allow_statement(["kms:GenerateDataKey", "kms:Decrypt"], into.key)


def _get_arn_prefix(arn: str) -> str:
    """Return the first two parts of an ARN: ``arn:aws``, or another partition's."""
    return ":".join(arn.split(":")[:2])


def _build_policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _build_allow_statement(
    actions: list[str], resource: Any, principal: Any = None, when: Any = None
) -> dict[str, Any]:
    elements = {"Principal": principal, "Action": actions, "Resource": resource, "Condition": when}
    return {"Effect": "Allow", **{k: v for k, v in elements.items() if v is not None}}


# Check the existing policies.


def refuse_unknown_accounts(route: PromotionRoute, sagemaker: Any, s3: Any, iam: Any) -> None:
    """Refuse a promotion if others can change the package or its objects.

    Only the source's account may write to the package's group or bucket. Only the source's and the
    target's account may assume the reader's role.

    Args:
        sagemaker, s3, iam: clients with the reader's credentials.

    Raises:
        GateError: a policy allows another account, everybody, or a service on behalf of anybody
            (the confused deputy: no aws:SourceArn or aws:SourceAccount).
        ServiceError: the reader may not read the policies.
    """
    package = f"{route.group.replace(':model-package-group/', ':model-package/')}/1"
    group = _fetch_policy(
        "the policy of the group", lambda: sagemaker.get_model_package_group_policy(
        ModelPackageGroupName=route.group.rpartition("/")[2])["ResourcePolicy"])  # fmt: skip
    bucket = _fetch_policy("the policy of the bucket", lambda: s3.get_bucket_policy(
        Bucket=route.bucket)["Policy"])  # fmt: skip
    name = route.reader.rpartition("/")[2]
    trust = _fetch_policy("the reader's trust", lambda: iam.get_role(
        RoleName=name)["Role"]["AssumeRolePolicyDocument"])  # fmt: skip
    source_accounts, prefix = frozenset({route.source}), _get_arn_prefix(route.group)
    for label, policy, actions, resources, accounts in (
        (f"group {route.group}", group, _GROUP, (package, route.group), source_accounts),
        (f"bucket {route.bucket}", bucket, _BUCKET,
         (f"{prefix}:s3:::{route.bucket}/{route.prefix}/a", f"{prefix}:s3:::{route.bucket}"),
         source_accounts),
        (f"trust of {route.reader}", trust, ("sts:AssumeRole",), (route.reader,),
         source_accounts | {route.target}),
    ):  # fmt: skip
        if policy and (
            finding := describe_excess_access(
                parse_policy(label, policy), actions, resources, accounts
            )
        ):
            raise GateError(f"{label}: its policy {finding}; remove that access to promote")


def describe_excess_access(
    policy: Policy, actions: tuple[str, ...], resources: tuple[str, ...], accounts: frozenset[str]
) -> str | None:
    """Describe who, except ``accounts``, is allowed one of the actions; None if nobody."""
    prefix = _get_arn_prefix(resources[0])
    for principal in _iter_candidates(policy, accounts, prefix):
        for action in actions:
            for resource in resources:
                request = Request(
                    principal, action, resource, _build_request_context(principal, prefix)
                )
                # The caller's own account may allow it everything, so only this policy decides.
                decision = evaluate_request(
                    request, Policies(resource=policy, needs_resource_allow=True, identity=_ALL)
                )
                if decision.is_allowed or decision.unknown:
                    return f"lets {_describe_principal(principal)} do {action} on {resource}"
    return None


_ALL = (parse_policy("all", _build_policy(_build_allow_statement(["*"], "*"))),)


def _iter_candidates(policy: Policy, accounts: frozenset[str], prefix: str) -> Iterator[Principal]:
    """Yield whom the policy might allow: a stranger (any account), everyone it names who is not of
    ``accounts``, and services, which may act for a stranger.
    """
    yield _make_principal(f"{prefix}:iam::{STRANGER}:role/any")
    for statement in policy.statements:
        for name in statement.principal[0] if statement.principal else ():
            kind, _, value = name.partition(":")
            account = value if value.isdecimal() else parse_account(value)
            if kind == "AWS" and account and account not in accounts:
                yield _make_principal(
                    value if ":role/" in value else f"{prefix}:iam::{account}:role/any"
                )
            elif kind in ("Service", "Federated", "CanonicalUser"):
                yield Principal(value)


def _make_principal(role: str) -> Principal:
    """Return a principal with a session of the role."""
    account, name = parse_account(role), role.rpartition("/")[2]
    return Principal(f"{_get_arn_prefix(role)}:sts::{account}:assumed-role/{name}/session", role)


def _build_request_context(principal: Principal, prefix: str) -> Mapping[str, tuple[str, ...]]:
    """Return the condition keys of a principal's request; a service acts for a stranger."""
    if principal.account:
        return {"aws:principalarn": (principal.role,), "aws:principalaccount": (principal.account,)}
    return {
        "aws:sourceaccount": (STRANGER,),
        "aws:sourcearn": (f"{prefix}:sagemaker:us-east-1:{STRANGER}:training-job/any",),
        "aws:principalisawsservice": ("true",),
    }


def _describe_principal(principal: Principal) -> str:
    """Describe a principal in words, for an error message."""
    if not principal.account:
        return f"{principal.arn}, on behalf of any account,"
    return "everybody" if principal.account == STRANGER else principal.role


def _fetch_policy(label: str, request: Callable[[], Any]) -> str | None:
    """Return the policy that ``request`` returns, as JSON; None if there is none."""
    with service_errors(f"reading {label}"):
        try:
            answer = request()
        except ClientError as error:
            if read_error_code(error) in _NO_POLICY or "Cannot find resource policy" in str(error):
                return None
            raise
    return answer if isinstance(answer, str) else json.dumps(answer)
