"""The state that the console's benchmark looks at is one that the emulator serves."""

from pathlib import Path

import pytest

from benchmarks.console.state import PIPELINES, STEPS, make
from tests.trainyard.emulator.harness import cloud

pytestmark = pytest.mark.long

EXECUTIONS = 12


def test_copies_are_executions_with_steps_and_jobs(tmp_path: Path):
    make(tmp_path / "state", EXECUTIONS, jobs=1)
    with cloud(tmp_path / "state") as aws:
        answer = aws.sm.search(Resource="PipelineExecution", MaxResults=100)
        found = [result["PipelineExecution"] for result in answer["Results"]]
        assert len({one["PipelineExecutionArn"] for one in found}) == EXECUTIONS
        assert {one["PipelineArn"].rpartition("/")[2] for one in found} == set(PIPELINES)
        assert len({one["CreationTime"] for one in found}) == EXECUTIONS
        for one in found:
            steps = aws.steps(one["PipelineExecutionArn"])
            job = steps["Work0"]["Metadata"]["ProcessingJob"]["Arn"].rpartition("/")[2]
            described = aws.sm.describe_processing_job(ProcessingJobName=job)
            assert len(steps) == STEPS and described["ProcessingJobStatus"] == "Completed"
