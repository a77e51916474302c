"""Arguments that may be shown: secrets are hidden, and unknown values say why."""

from trainyard.console.shown_step import Table, public, tables
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


def test_tables_are_found_wherever_they_stand():
    told = {
        "HyperParameters": {"lr": "0.1", "layers": 3},
        "Containers": [{"Environment": {"MODE": "x", "SECRET_KEY": "abcdefgh"}}],
        "Environment": {},
    }
    assert list(tables(told)) == [
        Table(name="HyperParameters", rows=(("layers", "3"), ("lr", "0.1"))),
        Table(name="Containers[0].Environment", rows=(("MODE", "x"), ("SECRET_KEY", "(hidden)"))),
    ]
