"""Resources that jobs leave when they have ended."""

import contextlib
import gc
import os
import subprocess
import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, Gate, cloud, processing, until
from trainyard.emulator.containers.cluster import Cluster, _find_host_pid
from trainyard.emulator.containers.isolation import Namespaces
from trainyard.emulator.containers.node import Node
from trainyard.emulator.sagemaker.jobs.job import Job

pytestmark = pytest.mark.long

JOBS = 12
SCRIPT = "echo said; echo wrote > /opt/ml/processing/out/file"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def count_held_objects() -> tuple[int, int, int]:
    """Return descriptors, threads and job objects of this process, in which the emulator runs."""
    gc.collect()
    jobs = sum(isinstance(found, Job) for found in gc.get_objects())
    return descriptors(), threading.active_count(), jobs


def run(aws: Cloud, name: str, script: str = SCRIPT) -> dict:
    request = processing(script, outputs={"out": f"s3://bkt/{name}"})
    return aws.process(name, script, **request)


@pytest.mark.sweep
def test_jobs_that_have_ended_hold_nothing(aws: Cloud):
    run(aws, "first")
    before = count_held_objects()
    for number in range(JOBS):
        run(aws, f"job-{number}", SCRIPT if number % 2 else "exit 3")

    def is_within_first_count() -> bool:
        counts = zip(count_held_objects(), before, strict=True)
        return all(now <= then for now, then in counts)

    until(is_within_first_count)  # a job's last thread ends after its last answer


def test_a_job_that_has_ended_leaves_its_record_only_and_is_still_described(aws: Cloud):
    described = run(aws, "left")
    directory = aws.state / "jobs/left"
    until(lambda: [path.name for path in directory.iterdir()] == ["job.json"])
    assert described["ProcessingJobStatus"] == "Completed"
    again = aws.sm.describe_processing_job(ProcessingJobName="left")
    assert again["ProcessingEndTime"] == described["ProcessingEndTime"]
    assert aws.log("Processing", "left") == ["said"]


def list_jobs_by_name(aws: Cloud) -> dict[str, dict]:
    found = aws.sm.list_processing_jobs(SortBy="CreationTime")["ProcessingJobSummaries"]
    return {job["ProcessingJobName"]: job for job in found}


def test_a_listing_is_the_same_of_running_and_ended_jobs_and_after_a_restart(tmp_path: Path):
    with cloud(tmp_path) as aws:
        aws.sm.create_processing_job(ProcessingJobName="runs", **processing("sleep 60"))
        for name in ("a", "b"):
            run(aws, name)
        before = list_jobs_by_name(aws)
        statuses = {name: job["ProcessingJobStatus"] for name, job in before.items()}
        assert statuses == {"a": "Completed", "b": "Completed", "runs": "InProgress"}
    with cloud(tmp_path) as aws:
        after = list_jobs_by_name(aws)
        assert list(after) == list(before)
        assert [after[name] for name in "ab"] == [before[name] for name in "ab"]


def test_nodes_that_cannot_be_started_leave_no_descriptor(tmp_path: Path):
    class Nowhere(Namespaces):
        def supervisor(self, spec: Path) -> list[str]:
            return ["/nowhere/unshare"]

    node = Node("algo-1", tmp_path / "algo-1")
    before = descriptors()
    for number in range(3):
        cluster = Cluster(tmp_path / str(number), [node], Nowhere(), print)
        with contextlib.suppress(FileNotFoundError):
            cluster.run(None, 1)
    assert descriptors() == before


def test_a_node_that_ends_while_its_number_is_looked_up_is_no_failure(monkeypatch):
    """The node ends while /proc is read: before it is opened, or between open and read."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert _find_host_pid(ended.pid, 1) is None

    def gone(path: Path) -> str:
        raise ProcessLookupError(3, "No such process", str(path))

    with subprocess.Popen(["sleep", "60"]) as child:
        monkeypatch.setattr(Path, "read_text", gone)
        assert _find_host_pid(os.getpid(), 1) is None
        child.kill()


def test_an_ended_job_is_deleted_and_its_name_and_results_remain(aws: Cloud):
    arn = run(aws, "gone")["ProcessingJobArn"]
    aws.sm.add_tags(ResourceArn=arn, Tags=[{"Key": "k", "Value": "v"}])
    named = {"ProcessingJobName": "gone"}
    aws.sm.delete_processing_job(**named)
    with pytest.raises(ClientError, match="Could not find requested job"):
        aws.sm.describe_processing_job(**named)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        aws.sm.delete_processing_job(**named)
    assert "gone" not in list_jobs_by_name(aws) and aws.get("gone/file") == b"wrote\n"
    gate = Gate(aws)
    aws.sm.create_processing_job(**named, **processing(gate.wait))
    with pytest.raises(ClientError, match="ResourceInUse.*InProgress"):
        aws.sm.delete_processing_job(**named)
    assert aws.sm.list_tags(ResourceArn=arn)["Tags"] == []
    gate.open()
