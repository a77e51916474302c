"""Retry policies of a recipe: every cause of the table, in the SDK's words."""

from typing import get_args

import pytest

from pipelines.recipe.config import Recipe, Retry
from trainyard.language.retries import CAUSES, WORDS


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch):
    """The SDK asks for one when it is imported."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_the_sdk_has_the_same_causes_on_the_same_sides():
    from sagemaker.mlops.workflow import retry

    of_jobs = {cause.name for cause in CAUSES.values() if cause.of_job}
    assert of_jobs == {member.value for member in retry.SageMakerJobExceptionTypeEnum}
    assert set(CAUSES) - of_jobs == {member.value for member in retry.StepExceptionTypeEnum}


def test_a_recipe_may_say_every_word_and_each_is_compiled():
    from pipelines.compile.compile_session import retry_policies

    words = get_args(get_args(Retry.model_fields["causes"].annotation)[0])
    assert set(words) == set(WORDS)
    recipe = Recipe.model_construct(retry=Retry(max_attempts=2, causes=words))
    compiled = [name for p in retry_policies(recipe) for name in p.to_request()["ExceptionType"]]
    assert sorted(compiled) == sorted(CAUSES)
