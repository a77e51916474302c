"""Tests of wrong input on the command line: each verb gives a message, never a traceback."""

import importlib
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.conftest import CHECKOUT
from trainyard.common.errors import TrainyardError

pytestmark = pytest.mark.long

LAPTOP = str(CHECKOUT / "recipes/laptop.yaml")
EXECUTION = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/x/execution/y"
FILES = {"missing.yaml": None, "folder": "folder", "binary": b"\xff\x00\xfe" * 100, "empty": b"",
         "deep.json": b"[" * 100_000 + b"]" * 100_000, "torn.json": b'{"a": ',
         "number.json": b'{"format": 1, "plan": 1e999}', "x" * 300: None}  # fmt: skip
OUTS = ("folder", "nowhere/x.json", "x" * 300, "empty/x.json")
TAKES = {
    "pipelines.definition": ["--recipe", "{}"],
    "pipelines.validate": ["{}"],
    "pipelines.corpus": ["--recipe", "{}"],
    "pipelines.plan": ["--recipe", "{}"],
    "pipelines.upsert": ["--plan", "{}"],
    "pipelines.start": ["--recipe", "{}"],
    "pipelines.watch": ["--recipe", "{}"],
    "pipelines.report": ["--recipe", "{}"],
    "pipelines.permissions": [
        "--role", "job", "--name", "x", "--region", "us-east-1",
        "--pipeline-role", "arn:aws:iam::111122223333:role/x", "{}",
    ],
}  # fmt: skip


@pytest.fixture
def mistakes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that may be given by mistake; nothing answers where AWS would be."""
    for name, content in FILES.items():
        if content == "folder":
            (tmp_path / name).mkdir()
        elif content is not None:
            (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_verb_message(verb: str, *words: str) -> str:
    """Return the verb's message; raise anything but an error of ours."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(importlib.import_module(verb).main)
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    if isinstance(done.exception, SystemExit):
        return done.output
    if not isinstance(done.exception, TrainyardError):
        raise done.exception
    return str(done.exception)


@pytest.mark.parametrize("verb", TAKES)
def test_a_file_that_is_none_or_another_is_told(mistakes_folder: Path, verb: str):
    for name in FILES:
        message = read_verb_message(verb, *(word.format(name) for word in TAKES[verb]))
        assert 0 < len(message) < 5000, (name, message[:300])
        assert name[:50] in message or "definition" in message, (name, message)


@pytest.mark.parametrize(
    ("verb", "words"), [("pipelines.plan", ["--recipe", LAPTOP]), ("pipelines.report", [EXECUTION])]
)
def test_where_no_file_can_be_written_is_told_before_anything_is_done(
    mistakes_folder: Path, verb, words
):
    for out in OUTS:
        message = read_verb_message(verb, *words, "--out", out)
        assert message.startswith(f"--out {out}: "), message
    assert sorted(path.name for path in mistakes_folder.iterdir()) == sorted(
        name for name, content in FILES.items() if content is not None
    )


def test_a_nested_plan_and_a_region_that_is_none_are_told(mistakes_folder: Path):
    (mistakes_folder / "plan.json").write_text(json.dumps({"format": 1}) + "[" * 9000)
    for name in ("deep.json", "plan.json"):
        assert "is not a complete plan" in read_verb_message("pipelines.upsert", "--plan", name)
    for region in ("../x", "us east", "US-EAST-1", "x"):
        words = ("--recipe", LAPTOP, "--set", f"aws.region={region}")
        assert "aws.region: is " in read_verb_message("pipelines.plan", *words)
