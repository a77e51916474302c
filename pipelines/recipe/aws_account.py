"""Region, roles and bucket, from the recipe, else from the ordinary AWS environment; and the
caller's account.
"""

import os
from dataclasses import dataclass
from functools import cache
from itertools import chain

from botocore.session import Session

from pipelines.recipe.aws_section import Aws, account_in, other_account
from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import PlanError, RecipeError, nearest
from trainyard.validate.rules.images import ACCOUNTS

SOURCES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "role": ("SAGEMAKER_PIPELINE_ROLE_ARN",),
    "bucket": ("ARTIFACT_BUCKET",),
}
JOB_ROLE = "SAGEMAKER_JOB_ROLE_ARN"


@dataclass(frozen=True, slots=True)
class Account:
    """AWS account settings that a pipeline is built for."""

    region: str
    role: str
    bucket: str
    job_role: str


def resolve(aws: Aws) -> Account:
    """Return the values of the recipe, else of the environment.

    The recipe comes first: a variable that happens to be set in someone's shell must not change
    the definition.

    Raises:
        RecipeError: neither has a value (names field and variables), the region is invalid, or a
            role is of another account.
    """
    values = {field: getattr(aws, field) or _environment(field) for field in SOURCES}
    if refusal := refuse_region(values["region"]):
        raise RecipeError(f"aws.region: is {values['region']!r}; {refusal}")
    # Without a second role, one for both: the environment's is not mixed with a recipe's own.
    job_role = aws.job_role or (None if aws.role else os.environ.get(JOB_ROLE))
    account = Account(**values, job_role=job_role or values["role"])
    refusal = other_account(aws.account, {"role": account.role, "job_role": account.job_role})
    if refusal:
        raise RecipeError(refusal)
    return account


def refuse_region(name: str) -> str | None:
    """Say which region was meant; None when SageMaker has one of that name."""
    regions = _regions()
    return None if name in regions else f"no such region of SageMaker; {nearest(name, regions)}"


@cache
def _regions() -> list[str]:
    """Return SageMaker's regions, of botocore's table and that of AWS's images."""
    session = Session()
    partitions = session.get_available_partitions()
    region_lists = (session.get_available_regions("sagemaker", name) for name in partitions)
    return sorted({*chain.from_iterable(region_lists), *ACCOUNTS})


def account_number(aws: Aws, environment: str | None) -> str | None:
    """Return the account that a recipe is for: as it says; in an environment of it, else that of
    its role; None if any will do.
    """
    return aws.account or (account_in(aws.role) if environment and aws.role else None)


def refuse_other_caller(account: str | None, region: str | None) -> None:
    """Refuse to change anything by credentials of another account; any will do for None.

    Raises:
        PlanError: they are of another account; names both.
    """
    if account is None:
        return
    with service_errors(f"asking whether these credentials are of account {account}"):
        caller = client("sts", region).get_caller_identity()
    if caller["Account"] != account:
        raise PlanError(
            f"aws.account: the recipe is for account {account}, and these credentials are of "
            f"{caller['Account']} ({caller['Arn']}); log in to {account}, or choose another "
            "environment with --env. Nothing was changed"
        )


def _environment(field: str) -> str:
    for variable in SOURCES[field]:
        if value := os.environ.get(variable):
            return value
    raise RecipeError(
        f"aws.{field}: neither in the recipe nor in the environment; add it to the recipe, "
        f"or set {' or '.join(SOURCES[field])}"
    )
