"""One commit, upserted from many fresh clones, is one definition.

Each clone has another path, HOME, hash seed, time zone and file mode, and comes at another time;
all of them upsert to one AWS. One definition is demanded, byte for byte: the first clone creates
the pipeline, the others say ``unchanged`` and upload nothing.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from trainyard.emulator.server import Endpoint, serve_emulator

pytestmark = [pytest.mark.sweep, pytest.mark.slow, pytest.mark.timeout(900)]
RECIPE = "recipes/laptop.yaml"
ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham")
SAID = re.compile(r"pipeline \S+: (\w+) \(definition (\w+), (\d+) bytes of code uploaded\)")


def test_ten_clones_have_one_definition(tmp_path):
    with serve_emulator(state=tmp_path / "aws") as endpoint:
        definitions = set[str]()
        assert [differs(tmp_path, n, endpoint, definitions) for n in range(10)] == [""] * 10


def differs(folder: Path, number: int, endpoint: Endpoint, definitions: set[str]) -> str:
    """Upsert from a clone of the commit that is checked out here; return what is not as it was.

    The beginning of its definition's hash is added to the ``definitions``.
    """
    clone = folder / f"clone-{number}"
    command = ["git", "clone", "--quiet", str(CHECKOUT), str(clone)]
    subprocess.run(command, check=True, umask=(0o22, 0o77)[number % 2])
    own = {"HOME": f"{folder}/home-{number}", "PYTHONHASHSEED": str(number)}
    environment = {**os.environ, **endpoint.env, **own, "TZ": ZONES[number % len(ZONES)]}
    command = [sys.executable, "-m", "pipelines.upsert", "--recipe", RECIPE]
    said = subprocess.check_output(command, cwd=clone, env=environment, text=True)
    match = SAID.search(said)
    if match is None:
        return f"what upsert said is not understood: {said}"
    definitions.add(match[2])
    as_wanted = match[1] == "unchanged" and match[3] == "0" if number else match[1] == "created"
    return "" if as_wanted and len(definitions) == 1 else f"{match[0]}; {definitions}"
