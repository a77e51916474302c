"""Region, role and bucket: from the recipe, else from the ordinary AWS environment."""

import os
from dataclasses import dataclass

from errors import RecipeError
from pipelines.config import Aws

SOURCES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "role": ("SAGEMAKER_PIPELINE_ROLE_ARN",),
    "bucket": ("ARTIFACT_BUCKET",),
}


@dataclass(frozen=True, slots=True)
class Account:
    """Where a pipeline is built for."""

    region: str
    role: str
    bucket: str


def resolve(aws: Aws) -> Account:
    """What the recipe says, else what the environment says.

    The recipe comes first: a variable that happens to be set in someone's shell must not change
    the definition.

    Raises:
        RecipeError: neither says it; names the field and the variables.
    """
    return Account(**{field: getattr(aws, field) or _environment(field) for field in SOURCES})


def _environment(field: str) -> str:
    for variable in SOURCES[field]:
        if value := os.environ.get(variable):
            return value
    raise RecipeError(
        f"aws.{field}: neither in the recipe nor in the environment; add it to the recipe, "
        f"or set {' or '.join(SOURCES[field])}"
    )
