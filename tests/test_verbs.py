"""The command lines of both houses: what is missing is said at once, and twins are one."""

import importlib
import re
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated

import pytest
import typer

from pipelines.__main__ import find_verb_modules as pipelines_verbs
from tests.conftest import call_module
from trainyard.__main__ import find_verbs as trainyard_verbs
from trainyard.terminal import Need, extend_verb, needs, run

TWINS = ("advise", "console", "permissions", "plan", "report", "start", "validate", "watch")
REDECLARED = {("advise", "given")}
"""Option of a verb that means something else with a recipe: --set."""
NOT_STARTED = {"trainyard.commands.run", "trainyard.commands.prices", "pipelines.new"}
"""Verbs that would start something with the made-up values."""
MODULES = [
    *(f"trainyard.commands.{name}" for name in trainyard_verbs()),
    *(f"pipelines.{name}" for name in pipelines_verbs() if name != "deploy"),
    "pipelines.deploy",
]


def main_of(module: str) -> Callable[..., None]:
    return importlib.import_module(module).main


def message(main: Callable[..., None], words: list[str], capsys: pytest.CaptureFixture) -> str:
    """Return what the verb complains of; it must not succeed."""
    with pytest.raises(SystemExit) as end:
        run(main, "verb", words)
    assert end.value.code
    return capsys.readouterr().err


def made_up(line: str) -> list[str]:
    """Return words for the option or argument that a line calls missing."""
    first = line.partition(" is missing")[0].removeprefix("error:").partition(" or ")[0].split()
    values = {"NUMBER": "1", "FILE": "nowhere"}
    if not first[0].startswith("-"):
        return ["nowhere"]
    return [first[0], *(values.get(one, one.partition("|")[0]) for one in first[1:])]


def has_needs(main: Callable[..., None]) -> bool:
    required = (one.default is Parameter.empty for one in signature(main).parameters.values())
    return any(required) or bool(getattr(main, "needs", ()))


ASKING = [module for module in MODULES if module not in NOT_STARTED and has_needs(main_of(module))]


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("module", ASKING)
def test_all_that_is_missing_is_said_at_once(module: str, capsys: pytest.CaptureFixture):
    assert len(ASKING) > 20  # noqa: PLR2004
    main = main_of(module)
    asked = [line for line in message(main, [], capsys).splitlines() if " is missing" in line]
    words = [word for line in asked for word in made_up(line)]
    if asked:
        assert " is missing" not in message(main, words, capsys), words


@pytest.mark.parametrize(
    ("verb", "words", "lines"),
    [
        ("pipelines.infra", (), ["--recipe FILE is missing (The recipe's YAML file.)",
                                 "--as cloudformation|terraform is missing "
                                 "(The template language.)"]),
        ("pipelines.promote", (), ["--recipe FILE is missing",
                                   "MODEL_PACKAGE_ARN or --policies ROLE_ARN is missing",
                                   "--env NAME is missing"]),
        ("pipelines.approve", ("--rollback", "g"), ["--reject REASON is missing"]),
        ("pipelines.deploy", ("arn", "--rollback"),
         ["--recipe FILE is missing", "only one of MODEL_PACKAGE_ARN, --rollback can be given"]),
        ("pipelines.plan", ("--env", "prod", "--out", "x", "--against", "dev"),
         ["--recipe FILE or DEFINITION or --pipeline NAME is missing", "--recipe FILE is missing",
          "only one of --against NAME, --out FILE can be given"]),
        ("pipelines.plan", ("--recipe", "x", "--against", "dev"), ["--env NAME is missing"]),
        ("pipelines.start", ("--execution", "arn"),
         ["--recipe FILE or --pipeline NAME is missing", "--from STEP is missing"]),
        ("trainyard.commands.equal", (), ["FIRST is missing", "SECOND is missing"]),
        ("trainyard.commands.advise", (),
         ["--layers NUMBER or --model NAME or --shapes FILE is missing", "--hidden NUMBER is miss",
          "--tokens TEXT is missing (Tokens to train on: 300B, 1.4T.)"]),
        ("trainyard.commands.callback", ("token",), ["--succeed or --fail REASON is missing"]),
        ("trainyard.commands.migrate", ("--prove",), ["SCRIPT is missing", "--old-python FILE is"]),
    ],
)  # fmt: skip
def test_what_a_verb_says(
    verb: str, words: tuple[str, ...], lines: list[str], capsys: pytest.CaptureFixture
):
    told = message(main_of(verb), [*words], capsys)
    for line in lines:
        assert line in told
    assert told.count(" is missing") + told.count("only one of") == len(lines)


@pytest.mark.parametrize("verb", [*sorted({*TWINS} - {"console", "advise"}), "approve"])
@pytest.mark.parametrize("option", ["--env", "--set"])
def test_an_option_about_a_recipe_needs_one(verb: str, option: str, capsys: pytest.CaptureFixture):
    words = [option, "prod" if option == "--env" else "train.loop.seed=1"]
    assert "--recipe FILE is missing" in message(main_of(f"pipelines.{verb}"), words, capsys)


def test_help_still_says_what_is_required():
    printed = call_module("pipelines.infra", "--help").stdout
    assert re.search(r"--recipe.*\n.*\[required\]", printed), printed


@pytest.mark.parametrize("verb", TWINS)
def test_a_verb_of_both_houses_has_the_same_options(verb: str):
    assert {*trainyard_verbs()} & {*pipelines_verbs()} == {*TWINS}
    base = signature(main_of(f"trainyard.commands.{verb}")).parameters
    twin = signature(main_of(f"pipelines.{verb}")).parameters
    options = {name for name, one in base.items() if one.kind is not Parameter.KEYWORD_ONLY}
    assert options <= {*twin}
    for name in options:
        if (verb, name) not in REDECLARED:
            assert twin[name].annotation is base[name].annotation, name
            assert twin[name].default == base[name].default, name
    assert not ({*base} - options) & {*twin} - {"root"}  # an argument, which became an option


def test_an_application_adds_options_and_replaces_arguments(capsys: pytest.CaptureFixture):
    told: list[tuple] = []

    @needs(Need(("name",)))
    def base(name: Annotated[str | None, typer.Option()] = None, *, subject: str = "none") -> None:
        told.append((name, subject))

    def more(values, recipe: Annotated[str | None, typer.Option()] = None):
        return {"subject": f"{recipe} of {values['name']}"} if recipe else {}

    main = extend_verb(base, more, Need(("recipe", "name"), exclusive=False))
    for words in (["--name", "a"], ["--name", "a", "--recipe", "r"], ["--recipe", "r"]):
        with pytest.raises(SystemExit):
            run(main, "verb", words)
    assert told == [("a", "none"), ("a", "r of a"), (None, "r of None")]
    assert "--recipe TEXT or --name TEXT is missing" in message(main, [], capsys)
    assert "--name TEXT is missing" in message(base, [], capsys)
