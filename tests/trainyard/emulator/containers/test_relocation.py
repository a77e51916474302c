"""Jobs without namespaces: rewritten files, unchanged files, and complete runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, cloud, processing, s3_input, training
from trainyard.emulator.containers.install_layer import relocate_paths
from trainyard.emulator.containers.isolation import VARIABLE
from trainyard.emulator.containers.torchrun_shim import rewrite_master_address


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "relocate")
        with cloud(tmp_path_factory.mktemp("aws")) as running:
            yield running


OTHERS = "/opt/mlflow and /data/opt/ml/x and /opt/ml.old"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("cat /opt/ml/input", "cat /job/ml/input"),
        ("X=/opt/ml:/opt/ml/code", "X=/job/ml:/job/ml/code"),
        ("'/opt/ml'", "'/job/ml'"),
        (OTHERS, OTHERS),
    ],
)
def test_only_paths_under_opt_ml_move(text: str, moved: str) -> None:
    assert relocate_paths(text, Path("/job/ml")) == moved


@given(st.text())
def test_moving_twice_changes_nothing_more(text: str) -> None:
    once = relocate_paths(text, Path("/job/ml"))
    assert relocate_paths(once, Path("/job/ml")) == once


def test_the_shim_moves_torchruns_master() -> None:
    given = "--nnodes=2 --master_addr=algo-1 --master-port 7777 train.py --lr 1".split()
    moved = "--nnodes=2 --master_addr=127.0.0.1 --master-port 5 train.py --lr 1".split()
    assert rewrite_master_address(given, "5") == moved


def test_a_processing_job_runs_relocated_and_says_so(aws: Cloud) -> None:
    script = """
import json, pathlib, sys
root = pathlib.Path("/opt/ml/processing")
host = json.load(open("/opt/ml/config/resourceconfig.json"))["current_host"]
(root / "out" / host).write_text((root / "in/data.py").read_text() + sys.argv[1])
"""
    aws.put("raw/data.py", "open('/opt/ml/x')")
    code = aws.put("code/job.py", script)
    request = processing("", nodes=2, outputs={"out": "s3://bkt/out"})
    request["AppSpecification"] |= {
        "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/job.py"],
        "ContainerArguments": ["--out=/opt/ml/processing/out"],
    }
    inputs = [s3_input("code", code), s3_input("in", "s3://bkt/raw")]
    done = aws.process("p", "", **request, ProcessingInputs=inputs)
    assert done["ProcessingJobStatus"] == "Completed", done
    data, _, argument = aws.get("out/algo-2").decode().partition("--out=")
    assert data == "open('/opt/ml/x')", "data must not be rewritten"
    assert argument.startswith(str(aws.state))
    notice = aws.all_lines("Processing", "p")[0]
    assert "runs without namespaces (TRAINYARD_EMULATOR_ISOLATION=relocate)" in notice


def test_killing_a_node_leaves_nothing_here_either(aws: Cloud) -> None:
    script = "(setsid sleep 50 &); setsid sleep 51 & sleep 52 & wait"
    aws.sm.create_training_job(TrainingJobName="kill", **training(script, nodes=2))
    family = aws.family("kill", 8)
    nodes = aws.processes("kill")
    nodes[0].kill()
    done = aws.wait_for_training("kill")
    assert "algo-1 was killed by signal 9 (SIGKILL)" in done["FailureReason"]
    assert not [process for process in family if process.is_running()]


def test_temporary_files_go_with_the_job(aws: Cloud) -> None:
    done = aws.train("tmp", "echo $TMPDIR; touch $TMPDIR/x")
    assert done["TrainingJobStatus"] == "Completed"
    folder = Path(aws.log("Training", "tmp")[0])
    assert len(str(folder)) < 60, "a Unix socket's path has at most 108 bytes"
    assert not folder.exists()
