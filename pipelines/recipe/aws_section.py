"""The recipe's section ``aws``: account, region, roles, bucket, network, encryption, tags."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from steps.config import Section

RoleArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/\S+$",
        examples=["arn:aws:iam::111122223333:role/trainyard"],
    ),
]


def _digits(account: Any) -> Any:
    """Return an account number as text; YAML reads twelve digits without quotes as a number."""
    return str(account) if type(account) is int else account


AccountNumber = Annotated[
    str, Field(pattern=r"^\d{12}$", examples=["111122223333"]), BeforeValidator(_digits)
]


def account_in(arn: str) -> str | None:
    """Return the account number in an ARN; None if it is none."""
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else None


def other_account(account: str | None, roles: Mapping[str, str | None]) -> str | None:
    """Return which role is of another account than ``account``, or than the role before it; None
    when all are of one.

    Args:
        roles: field of section ``aws`` → ARN.
    """
    known_field = "account"
    for field, arn in roles.items():
        if arn is None:
            continue
        if account not in (None, account_in(arn)):
            return (
                f"aws.{field}: is {arn}, a role of account {account_in(arn)}; expected one of "
                f"{account}, as aws.{known_field} says"
            )
        account, known_field = account or account_in(arn), known_field if account else field
    return None


class Vpc(Section):
    """The network that jobs run in."""

    subnets: tuple[str, ...] = Field(min_length=1)
    """Subnet ids; EFA needs all nodes in one subnet."""

    security_groups: tuple[str, ...] = Field(min_length=1)
    """Security group ids; EFA needs a group that admits all traffic from itself."""


class Aws(Section):
    """Account settings, taken from the environment where a field is left out."""

    region: str | None = None
    """Region; default: AWS_REGION or AWS_DEFAULT_REGION."""

    account: AccountNumber | None = Field(default=None, exclude_if=lambda account: account is None)
    """Account number, in quotes. Roles of another account are refused, and upsert and start change
    nothing with the credentials of another one."""

    role: RoleArn | None = None
    """ARN of the role that the pipeline assumes; default: SAGEMAKER_PIPELINE_ROLE_ARN."""

    job_role: RoleArn | None = None
    """ARN of the role that the jobs assume; default: SAGEMAKER_JOB_ROLE_ARN, else
    the pipeline's.
    """

    bucket: str | None = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", examples=["my-bucket"]
    )
    """Bucket for code, shards, models and checkpoints; default: ARTIFACT_BUCKET."""

    prefix: str = Field(default="trainyard", pattern=r"^[\w.-]+(/[\w.-]+)*$")
    """Key prefix inside the bucket; the pipeline's name comes under it."""

    kms_key: str | None = None
    """KMS key (id, ARN or alias) for volumes and outputs; none means the account's default."""

    input_keys: tuple[str, ...] = Field(default=(), exclude_if=lambda keys: not keys)
    """KMS keys (ids, ARNs or aliases) of data that jobs only read, as of an input's bucket: the
    derived roles may decrypt with them."""

    vpc: Vpc | None = None
    """VPC of every job; none means the service's own network."""

    network_isolation: bool = False
    """Cut containers off from every network except the one between a job's instances."""

    encrypt_traffic: bool = False
    """Encrypt the traffic between a job's instances (slows down collectives)."""

    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the pipeline, its jobs and its model package group, for cost allocation."""
