"""What a run has of its own, and what it cost."""

from datetime import UTC, datetime
from typing import Any

from trainyard.console.account import Account
from trainyard.console.comparison.sides import costs_of, names_of
from trainyard.runs.execution import Step

ARN = "arn:aws:sagemaker:us-east-1:1:"


def step(name: str, metadata: dict[str, Any], **more: Any) -> Step:
    when = datetime(2026, 11, 23, 10, tzinfo=UTC)
    told = {"title": name, "status": "Succeeded", "reason": "", "cached": False, **more}
    return Step(name=name, started=when, ended=when, metadata=metadata, **told)


def test_a_cached_step_costs_nothing_beside_one_that_ran():
    job = {"TrainingJob": {"Arn": f"{ARN}training-job/x"}}
    found = costs_of(Account("us-east-1"), {"Train": step("Train", job, cached=True)}, {})
    assert {name: value.number for name, value in found.items()} == {"whole run": 0, "Train": 0}


def test_a_models_name_is_a_runs_own_where_pipelines_made_it_up():
    models = ("pipelines-abc-Create-KtLy", "churn-model")
    steps = [step(name, {"Model": {"Arn": f"{ARN}model/{name}"}}) for name in models]
    assert list(names_of("abc", steps)) == ["abc", models[0]]
