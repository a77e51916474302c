"""Tests of region, roles and bucket: which of recipe and environment comes first."""

import pytest

from pipelines.recipe.config import Aws
from pipelines.recipe.environments import account_number, resolve
from trainyard.common.errors import RecipeError

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


def test_roles_are_of_the_account_that_is_stated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAGEMAKER_PIPELINE_ROLE_ARN", ROLE)
    assert resolve(Aws(**PLACE, account="123456789012")).role == ROLE
    with pytest.raises(RecipeError, match=rf"aws.role: is {ROLE}, .*; expected one of 1{{12}}, as"):
        resolve(Aws(**PLACE, account="1" * 12))
    other = JOBS.replace("123456789012", "2" * 12)
    with pytest.raises(RecipeError, match="aws.job_role: is .*2{12}:.* as aws.role says"):
        resolve(Aws(**PLACE, job_role=other))


@pytest.mark.parametrize(
    ("aws", "environment", "expected"),
    [
        ({}, None, None),
        ({"role": ROLE}, None, None),  # tried on the emulator with the roles of another account
        ({"role": ROLE}, "dev", "123456789012"),
        ({"account": "1" * 12}, None, "1" * 12),
        ({}, "dev", None),
    ],
)
def test_the_account_that_the_caller_must_be_of(aws, environment, expected):
    assert account_number(Aws(**aws), environment) == expected
