"""One commit, upserted from many fresh clones, is one definition; a comment changes who carries it.

Each clone has another path, HOME, hash seed, time zone and file mode, and comes at another time;
all of them upsert to one AWS. One definition is demanded, byte for byte: the first clone creates
the pipeline, the others say ``unchanged`` and upload nothing. Then a comment is put into one source
file after another: the steps whose code's hash changes must be those that carry the file.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from trainyard.emulator.server import Endpoint, serve

pytestmark = [pytest.mark.sweep, pytest.mark.slow, pytest.mark.timeout(900)]
RECIPE = "recipes/laptop.yaml"
ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham")
SAID = re.compile(r"pipeline \S+: (\w+) \(definition (\w+), (\d+) bytes of code uploaded\)")
CODE = re.compile(r'"(?:InputName|ChannelName)": "code".*?"S3Uri": "([^"]+)"', re.DOTALL)
CHANGES = {
    "training/loop.py": {"Train", "Evaluate"},
    "training/workloads/language_model/scores.py": {"Shard", "Train", "Evaluate"},
    "steps/evaluate/job.py": {"Evaluate"},
    "steps/shard/pool.py": {"Shard"},
    "steps/train/step.py": set(),
    "README.md": set(),
}
"""What is changed → the steps that carry it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("clones")


def test_ten_clones_have_one_definition(folder):
    with serve(state=folder / "aws") as endpoint:
        definitions = set[str]()
        assert [differs(folder, n, endpoint, definitions) for n in range(10)] == [""] * 10


@pytest.mark.parametrize("file", CHANGES)
def test_a_comment_changes_the_code_of_those_who_carry_it(file, folder):
    if not (folder / "clone-0").exists():  # the test above has made it
        subprocess.run(["git", "clone", "-q", CHECKOUT, folder / "clone-0"], check=True)
    assert misplaced(folder / "clone-0", file) == ""


def differs(folder: Path, number: int, endpoint: Endpoint, definitions: set[str]) -> str:
    """Upsert from a clone of the commit that is checked out here; return what is not as it was.

    Args:
        definitions: the beginnings of the hashes of all definitions so far; this one's is added.
    """
    clone = folder / f"clone-{number}"
    command = ["git", "clone", "--quiet", str(CHECKOUT), str(clone)]
    subprocess.run(command, check=True, umask=(0o22, 0o77)[number % 2])
    own = {"HOME": f"{folder}/home-{number}", "PYTHONHASHSEED": str(number)}
    said = verb(clone, "upsert", **endpoint.env, **own, TZ=ZONES[number % len(ZONES)])
    match = SAID.search(said)
    if match is None:
        return f"what upsert said is not understood: {said}"
    definitions.add(match[2])
    as_wanted = match[1] == "unchanged" and match[3] == "0" if number else match[1] == "created"
    return "" if as_wanted and len(definitions) == 1 else f"{match[0]}; {definitions}"


def misplaced(clone: Path, file: str) -> str:
    """Put a comment at a file's end; return the steps whose code changes, if others must."""
    before = code(clone)
    content = (clone / file).read_bytes()
    (clone / file).write_bytes(content + b"# one more comment\n")
    try:
        after = code(clone)
    finally:
        (clone / file).write_bytes(content)
    changed = {step for step, uri in before.items() if after[step] != uri}
    return "" if changed == CHANGES[file] and before else f"it changes the code of {changed}"


def code(clone: Path) -> dict[str, str]:
    """Step → S3 URI of its code."""
    steps = json.loads(verb(clone, "definition"))["Steps"]
    found = {step["Name"]: CODE.search(json.dumps(step["Arguments"])) for step in steps}
    return {name: match[1] for name, match in found.items() if match}


def verb(clone: Path, name: str, **environment: str) -> str:
    command = [sys.executable, "-m", f"pipelines.{name}", "--recipe", RECIPE]
    environment = {**os.environ, **environment}
    done = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{clone}: {' '.join(command)}: {done.stderr}")
    return done.stdout
