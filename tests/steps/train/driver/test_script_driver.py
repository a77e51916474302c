"""Tests of a script's driver: description, note, code, and the signal that is handed on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steps.train.driver import script_driver as driver
from training.checkpoint.marker import Lineage
from training.identity import Parts
from trainyard.common.hashes import hash_json

CHANNEL_FILE = "input/config/inputdataconfig.json"
KNOWN = Parts(
    workload="script",
    workload_config={},
    settings={"script": "train.py", "arguments": {"epochs": 3}},
    code={},
)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A training job's /opt/ml, and the environment that AWS's drivers prepare."""
    for name in ("output", "checkpoints"):
        (tmp_path / name).mkdir()
    places = {"CODE": "input/data/code", "CHANNELS": "input/data", "MODEL": "model",
              "CHECKPOINTS": "checkpoints", "CHANNEL_FILE": CHANNEL_FILE}  # fmt: skip
    for name, value in places.items():
        monkeypatch.setattr(driver, name, tmp_path / value)
    modes = {"code": {}, "sm_drivers": {}, "a": {}, "b": {"TrainingInputMode": "FastFile"}}
    put(tmp_path, {CHANNEL_FILE: json.dumps(modes), "input/data/code/train.py": "print(1)\n",
                   "input/data/a/x.csv": "1,2\n", "input/data/b/y.csv": "3,4\n"})  # fmt: skip
    told = {"ENTRY_SCRIPT": "train.py", "HPS": '{"epochs": 3}', "HOST_COUNT": "2",
            "CURRENT_HOST": "algo-1", "MASTER_ADDR": "algo-1"}  # fmt: skip
    for name, value in told.items():
        monkeypatch.setenv(f"SM_{name}", value)
    return tmp_path


def config(**more: Any) -> dict[str, Any]:
    parts = {name: value for name, value in KNOWN.as_json.items() if name != "code"}
    return {
        "launcher": "torchrun", "driver": "torchrun_driver.py", "process_count_per_node": 4,
        "inference": None, "parts": parts, "searched": [], "mounted": [], **more,
    }  # fmt: skip


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_description_is_a_lineage_whose_parts_have_its_identity(job: Path):
    told = driver.describe_training(config())
    training = dict(told["training"])
    identity = training.pop("identity")
    lineage = Lineage.model_validate(training)
    assert lineage.parts.name == identity == lineage.stretches[0].identity
    assert lineage.parts.code_sha256 == lineage.stretches[0].code_sha256
    assert lineage.parts.code.keys() == {"train.py"} and lineage.stretches[0].world_size == 8
    assert told["arguments"] == {"epochs": 3} and told["script"] == "train.py"
    assert told["channels"].keys() == {"a", "b"}
    assert told["train_fingerprint"] == lineage.parts.data


def test_a_value_that_a_search_found_counts_for_the_identity(job: Path, monkeypatch):
    before = driver.describe_training(config())["training"]
    monkeypatch.setenv("SM_HPS", '{"epochs": 4}')
    found = driver.describe_training(config(searched=["epochs"]))["training"]
    assert found["parts"]["settings"]["arguments"]["epochs"] == 4
    assert found["identity"] != before["identity"]


def test_data_count_by_content_and_streamed_data_by_name_and_size(job: Path):
    before = driver.describe_training(config())["channels"]
    (job / "input/data/a/x.csv").write_text("1,3\n")
    (job / "input/data/b/y.csv").write_text("3,5\n")
    after = driver.describe_training(config())["channels"]
    assert after["a"] != before["a"] and after["a"]["contents"]
    assert after["b"] == before["b"] and not after["b"]["contents"]
    (job / "input/data/b/y.csv").write_text("3,55\n")
    assert driver.describe_training(config())["channels"]["b"] != before["b"]
    assert not driver.describe_training(config(mounted=["a"]))["channels"]["a"]["contents"]


@pytest.mark.parametrize(
    ("launcher", "count", "world"), [("torchrun", None, 2), ("mpi", 8, 8), ("none", None, 2)]
)
def test_processes_are_counted_as_the_launcher_starts_them(job: Path, launcher, count, world):
    more = config(launcher=launcher, process_count_per_node=count)
    assert driver.count_processes(more) == world


def run(job: Path, checkpoint: str | None) -> tuple[list[str], dict[str, Any]]:
    """A run whose script sees the names that are given back, and writes one checkpoint."""
    told = driver.describe_training(config())
    note = driver.load_resume_note(driver.CHECKPOINTS, told)
    seen = driver.list_files(driver.CHECKPOINTS)
    if checkpoint:
        (driver.CHECKPOINTS / checkpoint).parent.mkdir(exist_ok=True)
        (driver.CHECKPOINTS / checkpoint).write_text(f"{checkpoint} {told['train_fingerprint']}")
        driver.write_note_after_checkpoint(driver.CHECKPOINTS, note)
    return seen, note


def test_a_script_sees_its_own_checkpoints_and_a_run_on_other_machines_is_a_stretch(
    job: Path, monkeypatch
):
    assert run(job, None)[0] == []
    assert run(job, "one/a.pt")[0] == []
    seen, note = run(job, "two/b.pt")
    assert seen == ["one/a.pt"] and len(note["training"]["stretches"]) == 1
    assert driver.NOTE in os.listdir(driver.CHECKPOINTS)
    monkeypatch.setenv("SM_HOST_COUNT", "1")
    seen, note = run(job, None)
    worlds = [stretch["world_size"] for stretch in note["training"]["stretches"]]
    assert seen == ["one/a.pt", "two/b.pt"] and worlds == [8, 4]


def test_checkpoints_of_other_data_are_out_of_sight_and_stay_so(job: Path):
    run(job, "a.pt")
    run(job, "sub/b.pt")
    stored = {
        n: (driver.CHECKPOINTS / n).read_text() for n in driver.list_files(driver.CHECKPOINTS)
    }
    (job / "input/data/a/x.csv").write_text("other")
    seen, _ = run(job, "a.pt")
    assert seen == [] and not (driver.CHECKPOINTS / "sub").exists()
    hidden = stored.keys() - {"a.pt", driver.NOTE}  # S3 has kept what was put out of sight
    put(driver.CHECKPOINTS, {name: stored[name] for name in hidden})
    seen, note = run(job, None)
    assert seen == ["a.pt"] and len(note["training"]["stretches"]) == 1


def test_what_is_added_lies_beside_the_scripts_own_files(job: Path):
    model = driver.MODEL
    own = ("config.json", "code/packages.txt", "code/helper.py")
    put(model, dict.fromkeys(own, "the script's"))
    ours = ("serve/answer.py", "serve/helper.py", "serve/deep/more.py", "serve/notes.txt")
    put(driver.CODE, dict.fromkeys(ours, "ours"))
    driver.add_description(model, driver.describe_training(config()), "serve/answer.py")
    theirs = {n for n in driver.list_files(model) if (model / n).read_text() == "the script's"}
    assert theirs == {*own}
    assert {*driver.list_files(model)} - theirs == {
        "code/trainyard.json", "code/trainyard-packages.txt",
        "code/inference.py", "code/answer.py", "code/deep/more.py",
    }  # fmt: skip
    told = json.loads((model / "code/trainyard.json").read_text())
    lines = (model / "code/trainyard-packages.txt").read_bytes()
    assert told["packages_sha256"] == driver.hashlib.sha256(lines).hexdigest()


def test_it_hashes_json_as_the_rest_of_trainyard():
    value = {"b": [1, None, "é"], "a": {"x": 0.5}}
    assert driver.json_sha256(value) == hash_json(value)


SCRIPT = """
import os, signal, sys, time
def stop(*_):
    os.write(1, b"saved\\n")  # print may be interrupted in the middle of "ready"
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(60)
"""
OWN = """
import os, subprocess, sys
from pathlib import Path
here = Path(__file__).parent
sys.exit(subprocess.call([sys.executable, str(here / os.environ["SM_ENTRY_SCRIPT"])]))
"""


def start_driver(job: Path, **code: str) -> subprocess.Popen[str]:
    """Start the driver with a launcher of the project's own, and this code beside it."""
    put(job / "input/data/code", {f"{name}.py": text for name, text in code.items()})
    text = Path(driver.__file__).read_text().replace("/opt/ml", str(job))
    (job / "driver.py").write_text(text)
    settings = json.dumps(config(launcher="own", driver="own.py"))
    return subprocess.Popen(
        [sys.executable, str(job / "driver.py")],
        env=os.environ | {"SM_DISTRIBUTED_CONFIG": settings}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_processes_that_end_while_children_are_looked_for_are_none(monkeypatch):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        ended = subprocess.Popen(["true"])
        ended.wait()
        listed = os.listdir("/proc")
        monkeypatch.setattr(driver.os, "listdir", lambda _: [str(ended.pid), *listed])
        assert driver.list_child_pids(os.getpid()).count(child.pid) == 1
        monkeypatch.setattr(driver, "list_child_pids", lambda _: [ended.pid, child.pid])
        driver.forward_signal(signal.SIGTERM)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("files", "holds"),
    [
        ({}, "is empty"),
        ({"weights.pt": ""}, "holds only weights.pt;"),
        ({"train.log": "loss 1", "code/model.pt": "x"}, "holds only code/model.pt, train.log;"),
        ({"a/events.out.tfevents.1": "x"}, "holds only a/events.out.tfevents.1;"),
        ({"a/weights.pt": "x", "train.log": "loss 1"}, None),
    ],
)
def test_a_script_that_saves_no_model_fails(job: Path, files, holds):
    lines = "".join(
        f"p = Path({str(job / 'model' / name)!r}); p.parent.mkdir(parents=True, exist_ok=True)\n"
        f"p.write_text({text!r})\n"
        for name, text in files.items()
    )
    process = start_driver(job, own=f"from pathlib import Path\n{lines}")
    printed, failure = process.communicate()[0], job / "output/failure"
    assert (process.returncode, failure.exists()) == ((0, False) if holds is None else (1, True))
    if holds is None:
        assert (job / "model/code/trainyard.json").is_file()
        return
    said = failure.read_text()
    assert said.startswith(f"train.py saved no model: SM_MODEL_DIR ({job / 'model'}) {holds}")
    assert "save it in os.environ['SM_MODEL_DIR']" in said
    assert f"error: {said}" in printed


def test_an_own_driver_starts_the_script_and_sigterm_goes_on_to_it(job: Path):
    process = start_driver(job, train=SCRIPT, own=OWN)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == "saved\n"
    assert process.wait(120) == 3
    assert not (job / "model").exists()
    said = (job / "output/failure").read_text()
    assert said == "train.py ended with exit status 3; see the log"
