"""A container's environment, its share of this machine's cores, and the Python in images' place."""

import os
import sys
from pathlib import Path

import pytest

from trainyard.emulator.containers.node import build_base_environment, count_cores


@pytest.mark.parametrize("nodes, threads", [(1, count_cores()), (2, count_cores() // 2), (1000, 0)])
def test_the_nodes_of_a_job_share_the_cores(nodes: int, threads: int):
    environment = build_base_environment("x", nodes)
    assert environment["OMP_NUM_THREADS"] == str(max(1, threads))
    # threads that spin while they wait use about ten times the processor time of the work
    assert environment["OMP_WAIT_POLICY"] == "passive"


def test_jobs_find_an_interpreter_that_path_names_by_a_relative_folder(run_python):
    folder = os.path.relpath(Path(sys.executable).parent, Path.cwd())
    launch = "import os, sys; os.execvp('python', ['python', '-c', *sys.argv[1:]])"
    code = "import sys; from trainyard.emulator.containers.node import OWN_PYTHON as own; "
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    ended = run_python("-c", launch, code + "print(sys.executable, own)", env=env, cwd=Path.cwd())
    relative, own = ended.stdout.split()
    assert not Path(relative).is_absolute()
    assert Path(own).is_absolute() and Path(own).samefile(sys.executable)
