"""Our job's packages beside a script's image: the script sees its own, and nothing else."""

import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.long

JOB = """
import os, sys
from pathlib import Path
import lent_to_our_job
from steps.evaluate_script.script_process import Script
Script(Path(sys.argv[1]), "evaluate.py", [], {}).run(Path("model"), Path("output"))
"""
SCRIPT = """
import os, importlib.util, the_scripts_own
for name in ("lent_to_our_job", "the_scripts_own", "steps"):
    print(name, importlib.util.find_spec(name) is not None)
"""


def wheel(folder: Path, name: str) -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def test_the_script_sees_its_own_packages_and_not_ours(tmp_path: Path):
    code, script = (tmp_path / f"processing/input/{name}" for name in ("code", "script"))
    for room in ("steps", "trainyard/common"):
        shutil.copytree(CHECKOUT / room, code / room)
    (code / "trainyard/__init__.py").touch()
    (code / "steps/evaluate_script/job.py").write_text(JOB)
    lent = wheel(tmp_path, "lent_to_our_job")
    digest = hashlib.sha256(lent.read_bytes()).hexdigest()
    (code / "requirements.txt").write_text(f"lent_to_our_job==1 --hash=sha256:{digest}\n")
    script.mkdir()
    (script / "evaluate.py").write_text(SCRIPT)
    wheel(tmp_path, "the_scripts_own")
    (script / "its.txt").write_text("the_scripts_own>=1\n")
    done = subprocess.run(
        ["bash", code / "steps/container.sh", "evaluate_script", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path),
            "PIP_TARGET": str(tmp_path / "image"),  # stands for the image's own site-packages
            "PYTHONPATH": str(tmp_path / "image"),
            "SCRIPT_REQUIREMENTS": "its.txt",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "lent_to_our_job False",
        "the_scripts_own True",
        "steps True",
    ]
