"""One test against a fresh emulator.

python -m benchmarks.sdk_tests.trial SPECIFICATION.json

In a process of its own, because moto's part of an emulator belongs to the process. Writes what
came to the file that the specification names.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

from benchmarks.sdk_tests.changes import (
    ABALONE,
    DEFAULT_BUCKETS,
    FIXTURES,
    IMAGES,
    LONG_SLEEPS,
)
from benchmarks.sdk_tests.evidence import Watch
from trainyard.emulator.client_environment import applied
from trainyard.emulator.server import Endpoint, serve
from trainyard.emulator.services.own_role import TRUST

INSIDE = Path(__file__).parent / "inside"
LEFT = 120  # seconds for what a test leaves running
TAIL = 6000  # characters of a test's output that are kept


def run(specification: dict[str, Any]) -> dict[str, Any]:
    """``test``, ``checkout``, ``folder`` (to work in), ``python``, ``seconds`` → what came."""
    folder = Path(specification["folder"])
    os.environ["TRAINYARD_EMULATOR_IMAGES"] = IMAGES
    begun = time.monotonic()
    python = Path(specification["python"])
    with serve(folder / "aws", python=python) as endpoint, applied(endpoint.env):
        _prepare(specification)
        watch = Watch(endpoint)
        with _idle(watch, folder / "idle"):
            status, output = _test(specification, endpoint, folder)
            _settle(watch)
        evidence = watch.collect()
    return {
        "test": specification["test"],
        "passed": status == 0,
        "seconds": round(time.monotonic() - begun, 1),
        "output": output[-TAIL:],
        **evidence,
    }


def _settle(watch: Watch) -> None:
    """What a test leaves running may end, as on AWS; what never does is told."""
    end = time.monotonic() + LEFT
    while not watch.idle() and time.monotonic() < end:
        time.sleep(0.5)


def _prepare(specification: dict[str, Any]) -> None:
    """What AWS's accounts have before the test begins: role, default buckets, public data."""
    boto3.client("iam").create_role(
        RoleName="SageMakerRole", AssumeRolePolicyDocument=json.dumps(TRUST)
    )
    bucket, _, key = ABALONE.removeprefix("s3://").partition("/")
    s3 = boto3.client("s3")
    for name in DEFAULT_BUCKETS:
        s3.create_bucket(Bucket=name)
    found = [*Path(specification["checkout"]).glob("**/data/pipeline/abalone.csv")]
    if found:
        s3.create_bucket(Bucket=bucket)
        s3.upload_file(str(found[0]), bucket, key)


def _test(
    specification: dict[str, Any], endpoint: Endpoint, folder: Path
) -> tuple[int | None, str]:
    """The exit status (None: out of time) and the output of the test or notebook."""
    test, checkout = specification["test"], Path(specification["checkout"])
    fixtures = folder / "fixtures.json"
    fixtures.write_text(json.dumps(FIXTURES))
    path = os.pathsep.join([str(INSIDE), os.environ["PYTHONPATH"]])
    venv = str(Path(specification["python"]).parent)
    environment = os.environ | {
        "PATH": os.pathsep.join([venv, os.environ["PATH"]]),
        "PYTHONPATH": path,
        "SDK_TESTS_FIXTURES": str(fixtures),
        "SDK_TESTS_IDLE": "" if any(n in test for n in LONG_SLEEPS) else str(folder / "idle"),
        "OMP_NUM_THREADS": "1",
    }
    command = [specification["python"]]
    if test.endswith(".ipynb"):
        work = folder / "notebook"
        shutil.copytree((checkout / test).parent, work)
        command += [str(INSIDE / "notebook.py"), Path(test).name]
    else:
        work = checkout / specification["root"]
        command += ["-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", "-x", "--tb=short"]
        command += ["--disable-warnings"]
        if region := specification["region"]:
            command += ["--boto-config", json.dumps({"region_name": region})]
        command += [f"--basetemp={folder}/tmp", "--color=no", "-q", test]
    log = folder / "output.txt"
    with log.open("w") as file:
        child = subprocess.Popen(
            command, cwd=work, env=environment, stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status: int | None = child.wait(specification["seconds"])
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            status = None
    said = log.read_text(errors="replace")
    return status, said if status is not None else f"{said}\nE   out of time"


@contextlib.contextmanager
def _idle(watch: Watch, file: Path) -> Iterator[None]:
    """Keep ``file`` there while nothing runs."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.4):
            with contextlib.suppress(FileNotFoundError):
                file.touch() if watch.idle() else file.unlink()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text())
    Path(asked["result"]).write_text(json.dumps(run(asked)))
