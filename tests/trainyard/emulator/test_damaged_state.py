"""A damaged document costs only itself; a full disk neither hides an end nor prevents a
deletion.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, Gate, cloud, fail_step, process_step, until
from tests.trainyard.emulator.standin import NoPipelines
from trainyard.common import atomic_file
from trainyard.common.errors import EmulatorError
from trainyard.emulator import damaged_state
from trainyard.emulator.json_documents import RepeatedWrite
from trainyard.emulator.sagemaker.pruning import References
from trainyard.emulator.server import serve_emulator

pytestmark = pytest.mark.long

LISTED = {  # what lies there → what lists it, and how many there are
    "pipelines/*/pipeline.json": ("list_pipelines", 2),
    "executions/*/execution.json": ("list_pipeline_executions", 2),
    "jobs/*/job.json": ("list_processing_jobs", 1),
    "registry/ModelPackageGroup/*.json": ("list_model_package_groups", 1),
    "registry/ModelPackage/*/*.json": ("list_model_packages", 1),
    "stored/Experiment/*.json": ("list_experiments", 1),
    "stored/Model/*.json": ("list_models", 1),
}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with documents of every kind."""
    path = tmp_path_factory.mktemp("aws")
    with cloud(path) as aws:
        aws.create("p", [fail_step("f", "x")])
        aws.create("q", [process_step("work", "true")])
        aws.run("p")
        aws.run("p")
        aws.sm.add_tags(ResourceArn=ARN, Tags=[{"Key": "k", "Value": "v"}])
        aws.process("one", "true")
        aws.sm.create_model_package_group(ModelPackageGroupName="g")
        aws.sm.create_model_package(ModelPackageGroupName="g")
        aws.sm.create_experiment(ExperimentName="e")
        aws.sm.create_model(ModelName="m", PrimaryContainer={"Image": "i"})
    return path


ARN = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p"


def count_listed(aws: Cloud, pattern: str) -> int:
    operation = LISTED[pattern][0]
    asked = {"list_pipeline_executions": {"PipelineName": "p"}}
    asked["list_model_packages"] = {"ModelPackageGroupName": "g"}
    answer = getattr(aws.sm, operation)(**asked.get(operation, {}))
    [listed] = [value for value in answer.values() if isinstance(value, list)]
    return len(listed)


@pytest.mark.parametrize("pattern", LISTED)
def test_a_damaged_document_costs_only_itself(state: Path, tmp_path: Path, caplog, pattern: str):
    copy = shutil.copytree(state, tmp_path / "aws")
    damaged = next(path for path in sorted(copy.glob(pattern)) if path.parent.name != "q")
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    with cloud(copy) as aws:
        assert f"{damaged} cannot be read" in caplog.text and "is lost" in caplog.text
        kept = copy / damaged_state.FOLDER / damaged.relative_to(copy)
        assert kept.read_bytes() == data[: len(data) // 2]
        gone = {pattern}
        if pattern.startswith("pipelines"):  # and with it the way to list its executions
            assert aws.sm.describe_pipeline_execution(PipelineExecutionArn=run_of(copy))
            gone.add("executions/*/execution.json")
        if pattern.startswith("registry/ModelPackageGroup"):
            gone.add("registry/ModelPackage/*/*.json")
        for other in LISTED.keys() - gone:
            assert count_listed(aws, other) == LISTED[other][1], other
        if len(gone) == 1:
            assert count_listed(aws, pattern) == LISTED[pattern][1] - 1


def run_of(state: Path) -> str:
    path = next(state.glob("executions/*/execution.json"))
    return json.loads(path.read_text())["answer"]["PipelineExecutionArn"]


DOCUMENTS = (*LISTED, "tags.json", "pipelines/p/definition-1.json", "executions/*/definition.json")


@given(st.sampled_from(DOCUMENTS), st.floats(0, 1), st.sampled_from([b"", b"null", b"\xff", b"[]"]))
def test_no_truncation_keeps_the_rest_from_being_read(
    state: Path, tmp_path_factory: pytest.TempPathFactory, pattern: str, cut: float, end: bytes
):
    copy = tmp_path_factory.mktemp("copy")
    for part in ("pipelines", "executions", "jobs", "registry", "stored", "tags.json"):
        whole = state / part
        (shutil.copytree if whole.is_dir() else shutil.copy)(whole, copy / part)
    path = sorted(copy.glob(pattern))[0]
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)] + end)
    damaged_state.set_aside_damaged_documents(copy)
    References(copy)  # which reads all of it
    damaged_state.set_aside_damaged_documents(copy)  # what is left can be read


def test_a_damaged_function_takes_its_code_along(tmp_path: Path):
    """Otherwise a new function of this name would delete code that is not recorded."""
    code = tmp_path / "functions/f/code-1/main.py"
    code.parent.mkdir(parents=True)
    code.write_text("pass")
    (tmp_path / "functions/f/function.json").write_text("{")
    damaged_state.set_aside_damaged_documents(tmp_path)
    assert (tmp_path / "damaged/functions/f/code-1/main.py").read_text() == "pass"
    assert not (tmp_path / "functions/f").exists()


@pytest.mark.parametrize("before", [None, 0o755])
def test_nobody_else_reads_the_state(tmp_path: Path, before: int | None):
    """Also in a directory of an earlier release: files in a closed folder are closed."""
    state = tmp_path / "aws"
    if before:
        state.mkdir()
        state.chmod(before)
    with serve_emulator(state, make_sagemaker=NoPipelines):
        assert state.stat().st_mode & 0o777 == 0o700


def test_damaged_credentials_are_a_message(tmp_path: Path):
    path = tmp_path / "credentials.json"
    for text in (b"", b"[]", b"\xff", b'{"AccessKeyId": "a"}',
                 b'{"AccessKeyId": "a", "SecretAccessKey": 1}'):  # fmt: skip
        path.write_bytes(text)
        path.chmod(0o600)
        with (
            pytest.raises(EmulatorError, match=r"credentials.json cannot be read.*Remove it"),
            serve_emulator(tmp_path),
        ):
            pass
    path.unlink()
    with serve_emulator(tmp_path, make_sagemaker=NoPipelines) as endpoint:
        assert endpoint.app.keys.own_pair


def test_a_place_that_cannot_be_written_is_a_message():
    with pytest.raises(EmulatorError, match="cannot store the emulator's state.*--state"):
        damaged_state.prepare_state_directory(Path("/proc/trainyard"))


def test_a_damaged_line_of_a_log_is_shown_and_hides_no_other(state: Path, tmp_path: Path):
    copy = shutil.copytree(state, tmp_path / "aws")
    stream = next(copy.glob("logs/*/*.jsonl"))
    lines = stream.read_bytes().splitlines(keepends=True)
    good = b'{"t": 1, "i": 1, "m": "good"}\n'
    stream.write_bytes(b"{torn\n" + b"".join(lines[1:]) + b"{torn\n" + good)
    with cloud(copy) as aws:
        group = aws.logs.describe_log_groups()["logGroups"][0]["logGroupName"]
        name = aws.logs.describe_log_streams(logGroupName=group)["logStreams"][0]["logStreamName"]
        asked = {"logGroupName": group, "logStreamName": name, "startFromHead": True}
        messages = [e["message"] for e in aws.logs.get_log_events(**asked)["events"]]
        assert messages[-1] == "good" and "a damaged line" in messages[-2]


# a full disk


def test_what_has_ended_while_the_disk_was_full_has_ended(tmp_path: Path, monkeypatch):
    full, write = threading.Event(), atomic_file.write_file

    def refusing(path: Path, *parts: str | bytes | memoryview) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *parts)

    monkeypatch.setattr(atomic_file, "write_file", refusing)
    with cloud(tmp_path / "aws") as aws:
        gate = Gate(aws)
        aws.create("p", [process_step("work", gate.wait)])
        arn = aws.start("p")
        job = until(lambda: aws.sm.list_processing_jobs()["ProcessingJobSummaries"])[0]
        named = {"ProcessingJobName": job["ProcessingJobName"]}
        until(lambda: "work" in aws.steps(arn) and aws.processes(named["ProcessingJobName"]))
        full.set()
        gate.open()
        assert aws.wait_for_execution(arn)["PipelineExecutionStatus"] == "Succeeded"
        assert aws.sm.describe_processing_job(**named)["ProcessingJobStatus"] == "Completed"
        [path] = (tmp_path / "aws/executions").glob("*/execution.json")
        assert '"PipelineExecutionStatus": "Executing"' in path.read_text()
        with pytest.raises(aws.sm.exceptions.ClientError, match="InsufficientStorage.*is full"):
            aws.start("p")
        full.clear()
        until(lambda: '"PipelineExecutionStatus": "Succeeded"' in path.read_text())
        listed = aws.sm.list_pipeline_executions(PipelineName="p")["PipelineExecutionSummaries"]
        assert len(listed) == 1
    with cloud(tmp_path / "aws") as again:
        assert again.sm.describe_processing_job(**named)["ProcessingJobStatus"] == "Completed"
        assert again.wait_for_execution(arn)["PipelineExecutionStatus"] == "Succeeded"


def test_what_is_late_is_written_once_the_disk_takes_it():
    tries: list[int] = []

    def write() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    late = RepeatedWrite(write, "it", every=0.01)
    late()
    assert late.pending
    until(lambda: not late.pending)
    assert len(tries) == 3


FILL = """
import sys
from pathlib import Path
from trainyard.emulator.damaged_state import is_disk_full
from trainyard.emulator.s3.object_store import ObjectStore

store = ObjectStore(Path(sys.argv[1]))
store.create_bucket("bkt")
count = 0
for size in (300_000, 30_000, 1000, 1):
    while True:
        try:
            store.put_bytes("bkt", f"{count}", b"x" * size)
            count += 1
        except Exception as failure:
            assert is_disk_full(failure), failure
            break
for number in range(count):
    store.delete("bkt", f"{number}")
assert list(store.list("bkt")) == []
store.put_bytes("bkt", "again", b"x" * 300_000)
print("freed", count)
"""


def test_on_a_full_disk_deletion_works_and_frees(tmp_path: Path):
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    disk, script = tmp_path / "disk", tmp_path / "full.py"
    script.write_text(FILL)
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=6m tmpfs {disk} && exec {sys.executable} {script} {disk}"
    env = {"PYTHONPATH": ".", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount], check=False, capture_output=True, text=True, env=env
    )
    assert done.stdout.startswith("freed"), done.stderr
