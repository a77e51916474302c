"""Ctrl-C while a run is watched: who stops what, and what is written of it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT, clean_environment
from tests.trainyard.emulator.harness import Cloud, process_step, taken_for_aws
from tests.trainyard.emulator.harness import cloud as emulated_cloud
from trainyard.console import frozen_page
from trainyard.emulator.client_environment import apply_environment
from trainyard.runs.execution import Execution

pytestmark = pytest.mark.long

SECONDS = 600  # of the step: nobody waits for its end


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with emulated_cloud(tmp_path_factory.mktemp("state")) as cloud:
        cloud.create("slow", [process_step("Slow", f"sleep {SECONDS}")])
        yield cloud


@pytest.fixture
def watched(cloud: Cloud, tmp_path: Path, request) -> Iterator[tuple[str, subprocess.Popen]]:
    """``pipelines.start --wait`` with the test's options, as it shows the running step."""
    options = ["--pipeline", "slow", "--wait", *request.param]
    with subprocess.Popen(
        [sys.executable, "-m", "pipelines.start", *options],
        cwd=CHECKOUT,
        env=clean_environment() | cloud.endpoint.env | {"HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=_heed_interrupts,
    ) as process:  # fmt: skip
        started = process.stdout.readline().split()
        assert started[0] == "started", started + process.stdout.readlines()
        assert "Executing" in process.stdout.readline()
        yield started[1], process
        process.kill()


def _heed_interrupts() -> None:
    """A shell starts what it puts into the background deaf to Ctrl-C, these tests included."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(process: subprocess.Popen) -> list[str]:
    """What it says after Ctrl-C."""
    time.sleep(0.5)  # rich repeats a line in the middle of whose writing it was interrupted
    process.send_signal(signal.SIGINT)
    said = process.stdout.read().splitlines()
    process.wait()
    return said


@pytest.mark.parametrize("watched", [["--stop-on-interrupt"]], indirect=True)
def test_a_run_is_stopped_and_the_report_says_by_what(cloud: Cloud, watched):
    arn, process = watched
    said = interrupt(process)
    assert process.returncode == 130
    assert said[0].startswith("Ctrl-C: stopping the run"), said
    assert said[-1].startswith("run Stopped after ") and said[-1].endswith(": stopped by Ctrl-C")
    with taken_for_aws(cloud):
        page = frozen_page.render_page(arn).partition("</style>")[
            2
        ]  # whose classes are statuses, too
    assert "stopped by Ctrl-C" in page and "Executing" not in page


@pytest.mark.parametrize("watched", [[]], indirect=True)
def test_a_run_that_is_only_watched_goes_on_and_one_is_told_so(cloud: Cloud, watched):
    arn, process = watched
    said = interrupt(process)
    assert process.returncode == 130
    assert said == [f"stopped watching; to resume: python -m pipelines.watch {arn}"]
    told = cloud.sm.describe_pipeline_execution(PipelineExecutionArn=arn)
    assert told["PipelineExecutionStatus"] == "Executing"
    cloud.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="0" * 32)


def test_a_file_is_looked_for_in_a_step_that_has_no_outputs(cloud: Cloud):
    cloud.create("bare", [process_step("Gate", "true")])
    arn = cloud.start("bare")
    cloud.wait_for_execution(arn)
    with apply_environment(cloud.endpoint.env):
        execution = Execution(arn)
        [gate] = execution.list_steps()
        assert execution.read_output_json(gate, "gate", "gate.json") is None
