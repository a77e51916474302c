"""Arguments that may be shown: secrets are hidden, and unknown values say why."""

from trainyard.console.shown_step import public
from trainyard.language.evaluation import Unknown


def test_secrets_are_hidden_and_the_original_is_left():
    asked = {
        "Environment": {"API_KEY": "abcdef123", "MODE": "x"},
        "ContainerArguments": ["--db-password", "hunter2", "--rate", "1"],
        "Tags": [{"Key": "access_token", "Value": "s3cr3t-token"}],
        "Url": "https://someone:pa55word@host/x",
    }
    shown = public(asked)
    assert shown["Environment"] == {"API_KEY": "(hidden)", "MODE": "x"}
    assert shown["ContainerArguments"] == ["--db-password", "(hidden)", "--rate", "1"]
    assert shown["Tags"][0]["Value"] == shown["Url"] == "(hidden)"
    assert asked["ContainerArguments"][1] == "hunter2"


def test_what_is_not_known_says_why():
    shown = public({"A": [Unknown("Train has not begun")], "B": "known"})
    assert shown == {"A": ["(not known: Train has not begun)"], "B": "known"}
