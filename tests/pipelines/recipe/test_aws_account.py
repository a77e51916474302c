"""Tests of region, roles and bucket: which of recipe and environment comes first."""

import pytest

from pipelines.recipe.aws_account import resolve
from pipelines.recipe.config import Aws

ROLE, JOBS, OTHER = (f"arn:aws:iam::123456789012:role/{n}" for n in ("pipeline", "jobs", "other"))
PLACE = {"region": "eu-west-1", "bucket": "our-bucket"}


@pytest.mark.parametrize(
    ("recipe", "environment", "expected"),
    [
        ({"role": ROLE}, {}, (ROLE, ROLE)),
        ({"role": ROLE, "job_role": JOBS}, {"SAGEMAKER_JOB_ROLE_ARN": OTHER}, (ROLE, JOBS)),
        # a variable in someone's shell changes nothing beside a recipe's own role
        ({"role": ROLE}, {"SAGEMAKER_JOB_ROLE_ARN": OTHER}, (ROLE, ROLE)),
        ({}, {"SAGEMAKER_PIPELINE_ROLE_ARN": ROLE}, (ROLE, ROLE)),
        (
            {},
            {"SAGEMAKER_PIPELINE_ROLE_ARN": ROLE, "SAGEMAKER_JOB_ROLE_ARN": JOBS},
            (ROLE, JOBS),
        ),
        ({"job_role": JOBS}, {"SAGEMAKER_PIPELINE_ROLE_ARN": ROLE}, (ROLE, JOBS)),
    ],
)
def test_the_two_roles(recipe, environment, expected, monkeypatch: pytest.MonkeyPatch):
    for variable in ("SAGEMAKER_PIPELINE_ROLE_ARN", "SAGEMAKER_JOB_ROLE_ARN"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    account = resolve(Aws(**PLACE, **recipe))
    assert (account.role, account.job_role) == expected
