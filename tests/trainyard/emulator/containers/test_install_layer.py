"""Packages that a job installs stay in the job; pip reports missing ones at once."""

import importlib.metadata
import io
import sys
import zipfile

import pytest

from tests.trainyard.emulator.harness import Cloud, channel, cloud, until

pytestmark = pytest.mark.long

MODULE = """
import sys
FAILURE = "/opt/ml/output/failure"
def main():
    open(FAILURE, "w").write("said by a library")
    print(sys.executable)
"""


def below() -> list[tuple[str, str]]:
    """Return the interpreter's own packages."""
    return sorted((found.name, found.version) for found in importlib.metadata.distributions())


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.put("wheels/ours-1-py3-none-any.whl", wheel("ours"))
        running.put("wheels/boto3-0.1-py3-none-any.whl", wheel("boto3", "0.1"))
        yield running


def wheel(name: str, version: str = "1") -> bytes:
    info = f"{name}-{version}.dist-info"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(f"{name}.py", MODULE)
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        file.writestr(f"{info}/METADATA", about)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-cli = {name}:main\n")
        file.writestr(f"{info}/RECORD", "")
    return data.getvalue()


def run(aws: Cloud, name: str, script: str) -> dict:
    wheels = channel("wheels", "s3://bkt/wheels")
    return aws.train(name, script, InputDataConfig=[wheels])


@pytest.mark.sweep
def test_what_a_job_installs_is_its_own(aws: Cloud, way: str) -> None:
    before = below()
    script = f"""set -e; cd /opt/ml/input/data/wheels
        echo 'boto3>1' > r.txt; pip install -r r.txt | grep -q 'already satisfied: boto3'
        python3 -m pip install ours*.whl; ours-cli; cat /opt/ml/output/failure; echo
        {sys.executable} -m pip install boto3*.whl
        python -c 'import boto3; print(boto3.__file__)'
        {sys.executable} -c 'import boto3; print(boto3.__file__)'
        rm /opt/ml/output/failure"""
    done = run(aws, f"installs-{way}", script)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    said = [line for line in aws.log("Training", f"installs-{way}") if "/layer/" in line]
    assert said[0].endswith("/layer/bin/python"), "a console script runs with the layer's Python"
    assert all(path.endswith("/site-packages/boto3.py") for path in said[-2:]), said
    assert "said by a library" in aws.log("Training", f"installs-{way}")
    assert below() == before
    until(lambda: not list((aws.state / "jobs" / f"installs-{way}").glob("algo-*")))


def test_pip_says_at_once_what_it_cannot_have(aws: Cloud, way: str) -> None:
    done = run(aws, f"lacks-{way}", "pip install no-such-package-of-ours==3")
    assert not [line for line in aws.log("Training", f"lacks-{way}") if "Retrying" in line]
    assert done["FailureReason"] == (
        "AlgorithmError: No matching distribution found for no-such-package-of-ours==3; jobs have "
        "no network here: install it for the interpreter that --python names, or give jobs network "
        "access with --internet, exit code: 1"
    )


def test_a_login_shell_has_the_jobs_programs_and_a_librarys_path_is_the_jobs(aws: Cloud, way: str):
    script = """echo "$PATH"; bash -l -c 'echo "$PATH"'; sh -l -c 'echo "$PATH"'
        pip install -q /opt/ml/input/data/wheels/ours*.whl
        mkdir customs; echo 'print("customized")' > customs/sitecustomize.py
        PYTHONPATH=$PYTHONPATH:customs ours-cli; exit 1"""
    done = run(aws, f"fails-{way}", script)
    assert done["FailureReason"] == "AlgorithmError: said by a library, exit code: 1"
    lines = aws.log("Training", f"fails-{way}")
    assert len(set(lines[:3])) == 1
    assert "customized" in lines


def test_mpi4py_finds_the_mpi_that_lies_in_the_interpreters_prefix(aws: Cloud, way: str) -> None:
    pytest.importorskip("mpi4py")
    done = run(aws, f"mpi-{way}", "exec python -c 'from mpi4py import MPI'")
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
