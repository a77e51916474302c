"""Arguments that may be shown, and the jobs of a step's attempts, found by their names."""

from typing import Any

from trainyard.console.account_cache import Account
from trainyard.console.shown_step import _list_job_names, redact_value
from trainyard.language.evaluation import Unknown
from trainyard.runs.run_values import Resource


def test_secrets_are_hidden_and_the_original_is_left():
    asked = {
        "Environment": {"API_KEY": "abcdef123", "MODE": "x"},
        "ContainerArguments": ["--db-password", "hunter2", "--rate", "1"],
        "Tags": [{"Key": "access_token", "Value": "s3cr3t-token"}],
        "Url": "https://someone:pa55word@host/x",
    }
    shown = redact_value(asked)
    assert shown["Environment"] == {"API_KEY": "(hidden)", "MODE": "x"}
    assert shown["ContainerArguments"] == ["--db-password", "(hidden)", "--rate", "1"]
    assert shown["Tags"][0]["Value"] == shown["Url"] == "(hidden)"
    assert asked["ContainerArguments"][1] == "hunter2"


def test_what_is_not_known_says_why():
    shown = redact_value({"A": [Unknown("Train has not begun")], "B": "known"})
    assert shown == {"A": ["(not known: Train has not begun)"], "B": "known"}


class Listed(Account):
    """An account whose jobs have these names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = list(names)

    def call_sagemaker(self, operation: str, seconds: Any = None, **request: Any) -> dict[str, Any]:
        return {"TrainingJobSummaries": [{"TrainingJobName": name} for name in self.names[::-1]]}


def make_training_resource(name: str) -> Resource:
    return Resource("TrainingJob", name, f"arn:aws:sagemaker:us-east-1:1:training-job/{name}", "")


A, B = (f"pipelines-abc-A-very-long-name-{letter * 10}" for letter in "AB")


def test_jobs_of_one_step_differ_in_their_last_ten_characters():
    here = Listed(A, "pipelines-abc-A-very-long-name-two-CCCCCCCCCC", B)
    assert _list_job_names(here, make_training_resource(B), {"pipelines-abc-Eval-DDDDDDDDDD"}) == [
        A,
        B,
    ]
    assert _list_job_names(Listed(A, B), make_training_resource(A), {B}) == [
        A
    ]  # of two steps whose names are cut alike
    assert _list_job_names(Listed("x"), make_training_resource("my-own-name"), set()) == [
        "my-own-name"
    ]
