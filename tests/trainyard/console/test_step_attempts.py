"""The jobs of a step's attempts, found by their names."""

from typing import Any

from trainyard.console.account_cache import Account
from trainyard.console.shown_step import _names
from trainyard.runs.run_values import Resource


class Listed(Account):
    """An account whose jobs have these names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = list(names)

    def ask(self, operation: str, seconds: Any = None, **request: Any) -> dict[str, Any]:
        return {"TrainingJobSummaries": [{"TrainingJobName": name} for name in self.names[::-1]]}


def made(name: str) -> Resource:
    return Resource("TrainingJob", name, f"arn:aws:sagemaker:us-east-1:1:training-job/{name}", "")


def test_jobs_of_one_step_differ_in_their_last_ten_characters():
    last = "pipelines-abc-Train-BBBBBBBBBB"
    here = Listed("pipelines-abc-Train-AAAAAAAAAA", "pipelines-abc-Train-two-CCCCCCCCCC", last)
    found = _names(here, made(last), {"pipelines-abc-Eval-DDDDDDDDDD"})
    assert found == ["pipelines-abc-Train-AAAAAAAAAA", last]


def test_of_two_steps_whose_names_are_cut_alike_only_the_last_jobs_are_known():
    one, other = (
        "pipelines-abc-A-very-long-name-AAAAAAAAAA",
        "pipelines-abc-A-very-long-name-BBBBBBBBBB",
    )
    assert _names(Listed(one, other), made(one), {other}) == [one]


def test_a_name_of_another_form_is_the_only_one():
    assert _names(Listed("x"), made("my-own-name"), set()) == ["my-own-name"]
