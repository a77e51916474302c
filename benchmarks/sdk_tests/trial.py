"""Run one test against a fresh emulator, and collect what it really started.

python -m benchmarks.sdk_tests.trial SPECIFICATION.json

In a process of its own, because moto's part of an emulator belongs to the process. What happened is
read from the emulator's state and through its API, not from the test: a test that deletes its
pipeline has started its executions nevertheless. It goes to the file that the specification names.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

from benchmarks.sdk_tests.judge import CHANGES
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.iam.access_keys import TRUST
from trainyard.emulator.request_scope import ApiError, enter_scope, parse_region
from trainyard.emulator.server import Endpoint, serve_emulator
from trainyard.language.definition_document import END_STATUSES, JOB_ENDED

_PRETENDING = re.compile(
    r"(ElasticMapReduce|AWSGlue|AmazonAthena|AWSStepFunctions)\.(Run|Start)\w+"
)
"""X-Amz-Target of operations that moto answers without doing their work."""


class Watch:
    """Records which operations the emulator answered, and which of them moto only pretended."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.asked: Counter[str] = Counter()
        self.pretended: Counter[str] = Counter()
        self.refusals: list[str] = []
        app = endpoint.app
        app._answer_sagemaker = self._wrap_sagemaker(app._answer_sagemaker)  # type: ignore[method-assign]
        app._moto.answer = self._wrap_moto(app._moto.answer)  # type: ignore[method-assign]

    def _wrap_moto(self, answer: Any) -> Any:
        def count_pretended_request(request: Any) -> Any:
            target = request.headers.get("X-Amz-Target", "")
            if _PRETENDING.fullmatch(target):
                self.pretended[target] += 1
            return answer(request)

        return count_pretended_request

    def _wrap_sagemaker(self, handle: Any) -> Any:
        def record_operation(operation: str, request: dict) -> dict:
            try:
                answer = handle(operation, request)
            except ApiError as failure:
                self.refusals.append(f"{operation}: {failure.code}: {failure.message}"[:600])
                raise
            self.asked[operation] += 1
            return answer

        return record_operation

    def is_idle(self) -> bool:
        """Return whether no execution and no job runs."""
        return not any(self._iter_running())

    def _iter_running(self) -> Iterator[bool]:
        for arn in list_executions(self._endpoint):
            yield self._describe(arn)["PipelineExecutionStatus"] not in END_STATUSES
        for job in list_jobs(self._endpoint):
            yield job["status"] not in JOB_ENDED

    def _describe(self, arn: str) -> dict:
        request = {"PipelineExecutionArn": arn}
        with enter_scope(parse_region(arn)):
            return self._endpoint.app.sagemaker.handle("DescribePipelineExecution", request)

    def collect(self) -> dict[str, Any]:
        """Return everything that the judge needs beside the test's outcome."""
        return {
            "asked": dict(self.asked),
            "pretended": sorted(self.pretended),
            "refusals": list(dict.fromkeys(self.refusals)),
            "executions": [self._collect_execution(arn) for arn in list_executions(self._endpoint)],
            "jobs": list_jobs(self._endpoint),
        }

    def _collect_execution(self, arn: str) -> dict[str, Any]:
        answer = self._describe(arn)
        with enter_scope(parse_region(arn)):
            handle = self._endpoint.app.sagemaker.handle
        request = {"PipelineExecutionArn": arn, "SortOrder": "Ascending"}
        steps = handle("ListPipelineExecutionSteps", request)["PipelineExecutionSteps"]
        listed = [
            {"name": step["StepName"], "status": step["StepStatus"],
             "reason": step.get("FailureReason", "")[:500],
             "reused": "CacheHitResult" in step or "SelectiveExecutionResult" in step,
             "metadata": step.get("Metadata", {})}
            for step in steps
        ]  # fmt: skip
        found = {"arn": arn, "status": answer["PipelineExecutionStatus"], "steps": listed}
        return found | {"reason": answer.get("FailureReason", "")[:800]}


def list_executions(endpoint: Endpoint) -> list[str]:
    """Return the ARNs of all executions, those of deleted pipelines included."""
    found = []
    for path in _list_record_files(endpoint, "executions/*/execution.json"):
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            found.append(json.loads(path.read_text())["answer"]["PipelineExecutionArn"])
    return found


def list_jobs(endpoint: Endpoint) -> list[dict[str, str]]:
    """Return ``name``, ``kind``, ``arn``, ``status`` and ``reason`` of each job that really ran."""
    found = []
    for path in _list_record_files(endpoint, "jobs/*/job.json"):
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            document = json.loads(path.read_text())
            kind, record = document["kind"], document["describe"]
            arn, status = record.get(f"{kind}JobArn", ""), record[f"{kind}JobStatus"]
            job = {"name": path.parent.name, "kind": kind, "arn": arn, "status": status}
            found.append(job | {"reason": record.get("FailureReason", "")[:800]})
    return found


def _list_record_files(endpoint: Endpoint, pattern: str) -> list[Path]:
    """Return the files of every region that fit the pattern, but none in deeper folders."""
    state = Path(endpoint.env["AWS_CONFIG_FILE"]).parent
    return sorted([*state.glob(pattern), *state.glob(f"regions/*/{pattern}")])


INSIDE = Path(__file__).parent / "inside"
LEFT = 120  # seconds for what a test leaves running
TAIL = 6000  # characters of a test's output that are kept


def run_trial(specification: dict[str, Any]) -> dict[str, Any]:
    """Run one test on an emulator; return its result with the evidence of what it started.

    ``specification``: ``test``, ``checkout``, ``folder`` (to work in), ``python``, ``seconds``.
    """
    folder = Path(specification["folder"])
    os.environ["TRAINYARD_EMULATOR_IMAGES"] = CHANGES["images"]
    begun = time.monotonic()
    python = Path(specification["python"])
    with serve_emulator(folder / "aws", python=python) as endpoint, apply_environment(endpoint.env):
        _prepare_account(specification)
        watch = Watch(endpoint)
        with _mark_idleness(watch, folder / "idle"):
            status, output = _run_test(specification, endpoint, folder)
            end = time.monotonic() + LEFT  # until what it left running has ended, as on AWS
            while not watch.is_idle() and time.monotonic() < end:
                time.sleep(0.5)
        evidence = watch.collect()
    seconds = round(time.monotonic() - begun, 1)
    result = {"test": specification["test"], "passed": status == 0, "seconds": seconds}
    return result | {"output": output[-TAIL:], **evidence}


def _prepare_account(specification: dict[str, Any]) -> None:
    """Create what AWS's accounts have before a test: role, default buckets, public data."""
    boto3.client("iam").create_role(
        RoleName="SageMakerRole", AssumeRolePolicyDocument=json.dumps(TRUST)
    )
    bucket, _, key = CHANGES["abalone"].removeprefix("s3://").partition("/")
    s3 = boto3.client("s3")
    for name in CHANGES["default_buckets"]:
        s3.create_bucket(Bucket=name)
    found = [*Path(specification["checkout"]).glob("**/data/pipeline/abalone.csv")]
    if found:
        s3.create_bucket(Bucket=bucket)
        s3.upload_file(str(found[0]), bucket, key)


def _run_test(
    specification: dict[str, Any], endpoint: Endpoint, folder: Path
) -> tuple[int | None, str]:
    """Run the test or notebook; return its exit status (None: out of time) and its output."""
    test, checkout = specification["test"], Path(specification["checkout"])
    fixtures = folder / "fixtures.json"
    fixtures.write_text(json.dumps(CHANGES["fixtures"]))
    venv = str(Path(specification["python"]).parent)
    sleeps_long = any(name in test for name in CHANGES["long_sleeps"])
    environment = os.environ | {
        "PATH": os.pathsep.join([venv, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(INSIDE), os.environ["PYTHONPATH"]]),
        "SDK_TESTS_FIXTURES": str(fixtures),
        "SDK_TESTS_IDLE": "" if sleeps_long else str(folder / "idle"),
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
        command += ["--disable-warnings", f"--basetemp={folder}/tmp", "--color=no", "-q", test]
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
    output = log.read_text(errors="replace")
    return status, output if status is not None else f"{output}\nE   out of time"


@contextlib.contextmanager
def _mark_idleness(watch: Watch, file: Path) -> Iterator[None]:
    """Keep ``file`` in place while nothing runs."""
    ended = threading.Event()

    def watch_idleness() -> None:
        while not ended.wait(0.4):
            with contextlib.suppress(FileNotFoundError):
                file.touch() if watch.is_idle() else file.unlink()

    thread = threading.Thread(target=watch_idleness, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    specification = json.loads(Path(sys.argv[1]).read_text())
    Path(specification["result"]).write_text(json.dumps(run_trial(specification)))
