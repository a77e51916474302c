"""Check that the workload keeps its contract on the sample data. Run it in Trainyard's checkout."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def test_the_workload_keeps_its_contract():
    command = [
        *(sys.executable, "-m", "training.tools.try", "my_project.workload"),
        *("--source", str(PROJECT / "src"), "--data", str(PROJECT / "data")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
