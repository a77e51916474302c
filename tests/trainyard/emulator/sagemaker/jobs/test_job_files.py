"""What a job wrote is read beneath its own tree, whatever it left there."""

import os
import socket
import threading
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, processing
from tests.trainyard.emulator.test_lambda_ import call, make, zip_function
from trainyard.emulator.sagemaker.jobs.job_files import JobFolder, LeadsOutError

pytestmark = pytest.mark.long


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    """A job's /opt/ml, beside which lies what is not the job's."""
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "ml"
    (folder / "model/sub").mkdir(parents=True)
    (folder / "input/data").mkdir(parents=True)
    (folder / "input/data/x").write_text("an input")
    (folder / "model/w").write_text("weights")
    return folder


def contents(folder: JobFolder) -> dict[str, str]:
    found = {}
    for file in folder.iter_files():
        with file.open() as stream:
            found[file.name] = stream.read().decode()
    return found


@pytest.mark.parametrize(
    ("name", "target", "more"),
    [
        ("l", "w", {"l": "weights"}),
        ("l", "/opt/ml/input/data/x", {"l": "an input"}),
        ("sub/l", "../../input/data/x", {"sub/l": "an input"}),
        ("l", "../../../opt/ml/input/data/x", {"l": "an input"}),  # out of the tree, and back
        ("l", "../input/data", {"l/x": "an input"}),
        ("l", "/opt/ml/input", {"l/data/x": "an input"}),
    ],
)
def test_a_link_within_the_tree_is_followed_as_the_job_saw_it(
    ml: Path, name: str, target: str, more: dict[str, str]
) -> None:
    (ml / "model" / name).symlink_to(target)
    assert contents(JobFolder(ml, "/opt/ml/model")) == {"w": "weights"} | more


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/etc/hostname", "/etc/hostname"),
        ("../../secret", "/opt/secret"),
        ("/proc/self/environ", "/proc/self/environ"),
        ("/opt/ml/../../etc/hostname", "/etc/hostname"),
        ("/opt/mlx", "/opt/mlx"),
        ("../..", "/opt"),
        ("chain", "/etc/hostname"),
    ],
)
def test_a_link_out_of_the_tree_is_refused_by_name(ml: Path, target: str, shown: str) -> None:
    (ml / "model/chain").symlink_to("sub/next")
    (ml / "model/sub/next").symlink_to("/etc/hostname")
    (ml / "model/evil").symlink_to(target)
    folder = JobFolder(ml, "/opt/ml/model")
    found = {file.name: file for file in folder.iter_files()}
    assert {"w", "evil"} <= found.keys()
    with pytest.raises(LeadsOutError, match=f"^/opt/ml/model/evil is a symbolic link to {shown}, "):
        found["evil"].open()
    assert folder.read("evil", 99) is None


def test_a_folder_that_is_a_link_out_of_the_tree_is_refused(ml: Path, tmp_path: Path) -> None:
    (ml / "model/all").symlink_to(tmp_path)
    (ml / "out").symlink_to(tmp_path)
    with pytest.raises(LeadsOutError, match="/opt/ml/model/all is a symbolic link"):
        contents(JobFolder(ml, "/opt/ml/model"))
    for path in ("/opt/ml/out", "/opt/ml/out/ml"):
        with pytest.raises(LeadsOutError, match=f"^{path} is a symbolic link to /"):
            list(JobFolder(ml, path).iter_files())


def test_what_is_no_file_is_left_out_once_by_its_name(ml: Path) -> None:
    os.mkfifo(ml / "model/pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(ml / "model/socket"))
    (ml / "model/nothing").symlink_to("gone")
    (ml / "model/self").symlink_to("self")
    (ml / "model/sub/up").symlink_to("..")
    os.link(ml / "model/w", ml / "model/same")
    lines: list[str] = []
    folder = JobFolder(ml, "/opt/ml/model", report=lines.append)
    for _ in range(2):
        assert contents(folder) == {"w": "weights", "same": "weights"}
    starts = ["nothing: No such", "pipe: is a pipe", "self: Too many", "socket: is a", "sub/up: "]
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(f"/opt/ml/model/{start}")
    assert all(line.endswith(": left out.") for line in lines[:-1])
    assert folder.read("pipe", 9) is None, "a pipe that nobody writes to would wait for ever"


def test_a_missing_folder_has_no_files(ml: Path) -> None:
    assert contents(JobFolder(ml, "/opt/ml/none/at/all")) == {}
    assert contents(JobFolder(ml, "/opt/ml/model/w")) == {}
    assert JobFolder(ml, "/opt/ml/output").read("failure", 9) is None


def test_a_folder_that_becomes_a_link_while_it_is_read_shows_nothing(ml: Path, tmp_path: Path):
    """A job swaps a folder for a link to another that has a file of the same name."""
    (tmp_path / "w").write_text("secret")
    (ml / "model/sub/w").write_text("weights")
    (ml / "model/evil").symlink_to(tmp_path)
    ended = threading.Event()

    def swap() -> None:
        sub, aside, evil = ml / "model/sub", ml / "aside", ml / "model/evil"
        while not ended.is_set():
            sub.rename(aside)
            evil.rename(sub)
            sub.rename(evil)
            aside.rename(sub)

    thread = threading.Thread(target=swap)
    thread.start()
    read: set[str] = set()
    try:
        folder = JobFolder(ml, "/opt/ml/model")
        while "weights" not in read or len(read) < 2:
            for name in ("sub/w", "evil/w"):
                try:
                    with folder.open(name) as file:
                        read.add(file.read().decode())
                except (OSError, LeadsOutError) as error:
                    read.add(type(error).__name__)
    finally:
        ended.set()
        thread.join()
    assert "secret" not in read


# whole jobs


def secret_in_s3(aws: Cloud) -> list[str]:
    secret = aws.endpoint.app.keys.own_pair[1].encode()
    return [key for key in aws.keys("") if secret in aws.get(key)]


@pytest.mark.parametrize("mode", ["EndOfJob", "Continuous"])
@pytest.mark.parametrize("target", ["STATE/credentials.json", "STATE"])
def test_a_processing_output_that_is_a_link_out_fails_the_job(
    aws: Cloud, way: str, mode: str, target: str
) -> None:
    name = f"{way}-{mode}-{len(target)}"
    target = target.replace("STATE", str(aws.state))
    script = f"cd /opt/ml/processing/out; echo fine > fine; ln -s {target} c"
    request = processing(script, outputs={"out": f"s3://bkt/{name}"})
    request["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3UploadMode"] = mode
    done = aws.process(name, "", **request)
    assert done["ProcessingJobStatus"] == "Failed"
    start = f"ClientError: /opt/ml/processing/out/c is a symbolic link to {target}, outside /opt/ml"
    assert done["FailureReason"].startswith(start)
    assert not secret_in_s3(aws) and not aws.keys(f"{name}/c")


@pytest.mark.parametrize("folder", ["model", "output/data", "checkpoints"])
def test_a_trainings_result_that_is_a_link_out_fails_the_job(aws: Cloud, way: str, folder: str):
    target = aws.state / "credentials.json"
    name = f"{way}-{folder.replace('/', '-')}"
    checkpoints = {"S3Uri": f"s3://bkt/{name}"}
    done = aws.train(name, f"ln -s {target} /opt/ml/{folder}/x", CheckpointConfig=checkpoints)
    assert done["TrainingJobStatus"] == "Failed"
    assert f"/opt/ml/{folder}/x is a symbolic link to {target}, outside" in done["FailureReason"]
    assert not secret_in_s3(aws)


def test_a_links_content_within_the_tree_is_uploaded(aws: Cloud, way: str) -> None:
    script = "cd /opt/ml/processing/out; echo one > a; ln -s a b; ln -s /opt/ml/processing/out/a c"
    request = processing(script, outputs={"out": f"s3://bkt/{way}-within"})
    done = aws.process(f"{way}-within", "", **request)
    assert done["ProcessingJobStatus"] == "Completed", done
    assert {aws.get(f"{way}-within/{name}") for name in "abc"} == {b"one\n"}


def test_a_message_that_is_a_link_out_is_not_read(aws: Cloud, way: str) -> None:
    target = aws.state / "credentials.json"
    secret = aws.endpoint.app.keys.own_pair[1]
    for status, ended in ((0, "Completed"), (3, "Failed")):
        script = f"ln -s {target} /opt/ml/output/failure; exit {status}"
        done = aws.train(f"{way}-failure-{status}", script)
        assert secret not in str(done) and done["TrainingJobStatus"] == ended
    done = aws.process(f"{way}-message", f"ln -s {target} /opt/ml/output/message")
    assert secret not in str(done) and "ExitMessage" not in done


def test_what_ended_a_job_is_its_reason_also_beside_a_link_out(aws: Cloud, way: str) -> None:
    script = "ln -s /etc/hostname /opt/ml/checkpoints/x; exit 5"
    done = aws.train(f"{way}-both", script, CheckpointConfig={"S3Uri": f"s3://bkt/{way}-both"})
    assert done["FailureReason"].endswith("exit code: 5")


@pytest.fixture(scope="module")
def answers(aws: Cloud) -> str:
    """Name of a function that writes its answer itself, by the code in its event."""
    source = """
import os, pathlib
def main(event, context):
    home = pathlib.Path(os.environ["HOME"])
    exec(event["write"])
    os._exit(0)
"""
    make(aws, "answers", Handler="app.main.main", Code={"ZipFile": zip_function(source)})
    return "answers"


@pytest.mark.parametrize(
    "write",
    [
        "(home / 'answer.json').symlink_to(event['target'])",
        "os.mkfifo(home / 'answer.json')",
        "(home / 'answer.json').write_text('[' * 100_000)",
        '(home / \'answer.json\').write_text(\'{"result": 1, "error": "e"}\')',
        '(home / \'answer.json\').write_text(\'{"result": 1, "error": null, "memory": 1, '
        '"milliseconds": NaN}\')',
    ],
)
def test_an_answer_that_the_runtime_did_not_write_is_none(aws, way: str, answers: str, write: str):
    target = str(aws.state / "credentials.json")
    _, error = call(aws, answers, {"target": target, "write": write})
    assert error["errorType"] == "Runtime.ExitError", error
    assert error["errorMessage"].endswith("Runtime exited without providing a reason")
