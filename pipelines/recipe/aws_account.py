"""Region, roles and bucket: from the recipe, else from the ordinary AWS environment."""

import os
import re
from dataclasses import dataclass

from pipelines.recipe.config import Aws
from trainyard.common.errors import RecipeError

SOURCES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "role": ("SAGEMAKER_PIPELINE_ROLE_ARN",),
    "bucket": ("ARTIFACT_BUCKET",),
}
REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
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
        RecipeError: neither has a value (names field and variables), or the region is invalid.
    """
    found = {field: getattr(aws, field) or _environment(field) for field in SOURCES}
    if not REGION.fullmatch(found["region"]):
        raise RecipeError(f"aws.region: is {found['region']!r}; expected a name like us-east-1")
    # Without a second role, one for both: the environment's is not mixed with a recipe's own.
    named = aws.job_role or (None if aws.role else os.environ.get(JOB_ROLE))
    return Account(**found, job_role=named or found["role"])


def _environment(field: str) -> str:
    for variable in SOURCES[field]:
        if value := os.environ.get(variable):
            return value
    raise RecipeError(
        f"aws.{field}: neither in the recipe nor in the environment; add it to the recipe, "
        f"or set {' or '.join(SOURCES[field])}"
    )
