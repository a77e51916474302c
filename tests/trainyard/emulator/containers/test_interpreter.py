"""The interpreter that replaces images, however the emulator itself was started."""

import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = """
import sys
from pathlib import Path
from tests.trainyard.emulator.harness import cloud
assert not Path(sys.executable).is_absolute(), sys.executable
with cloud(Path(sys.argv[1])) as aws:
    job = aws.train("relative", "true")
    assert job["TrainingJobStatus"] == "Completed", job
"""


def test_jobs_run_where_path_names_the_interpreter_by_a_relative_folder(run_python, tmp_path):
    folder = os.path.relpath(Path(sys.executable).parent, Path.cwd())
    launch = "import os, sys; os.execvp('python', ['python', '-c', *sys.argv[1:]])"
    state, env = str(tmp_path / "aws"), {"PATH": f"{folder}:{os.environ['PATH']}"}
    ended = run_python("-c", launch, SCRIPT, state, env=env, cwd=Path.cwd())
    assert ended.returncode == 0, ended.stderr
