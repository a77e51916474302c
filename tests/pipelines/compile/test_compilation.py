"""Content-addressed code: same content, same key; nothing that does not belong travels."""

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.compile.compilation import Asset, collect_step_code, read_folder
from tests.conditions.evidence import CHAMPION, Evidence
from trainyard.common.errors import DefinitionError

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parents[3]
STEPS = ("shard", "train", "evaluate", "gate")
folders = st.dictionaries(st.text("abc/.", min_size=1, max_size=4), st.binary(max_size=8))


@given(folders, folders, st.data())
def test_equal_folders_and_only_those_have_equal_hashes(one, other, data):
    def key(files):
        return Asset("bucket", "prefix", files).key

    assert (key(one) == key(other)) == (one == other)
    assert key(one) == key(dict(reversed(one.items())))
    if some := sorted(name for name in one if one[name]):
        name = data.draw(st.sampled_from(some))
        changed = bytes([one[name][0] ^ 1]) + one[name][1:]
        assert key(one) != key(one | {name: changed})


def test_time_place_and_litter_do_not_change_the_hash(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "somewhere" / "else"
    (first / "room").mkdir(parents=True)
    (first / "room" / "module.py").write_text("x = 1\n")
    shutil.copytree(first, second)
    os.utime(second / "room" / "module.py", (0, 0))
    (second / "room" / "__pycache__").mkdir()
    (second / "room" / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"compiled")
    assert read_folder(first) == read_folder(second) == {"room/module.py": b"x = 1\n"}


def test_a_step_carries_what_its_job_needs_and_nothing_else():
    """Neither another step's job, nor what measures jobs, nor the SDK."""
    measuring = "training/tools/shapes.py"
    assert (CHECKOUT / measuring).is_file()
    for step in STEPS:
        code = collect_step_code(CHECKOUT, step, None)
        assert {name for name in code if name.endswith("job.py")} == {f"steps/{step}/job.py"}
        assert measuring not in code
        for name, content in code.items():
            assert not name.endswith("step.py")
            assert not re.search(rb"(import|from) sagemaker\b", content)
    assert not any(
        name.startswith("training/") for name in collect_step_code(CHECKOUT, "gate", None)
    )
    carried = set(collect_step_code(CHECKOUT, "shard", None))
    assert {"steps/shard/raw_objects.py", "steps/shard/readers/__init__.py",
            "training/data/shard_writer.py",
            "training/workloads/language_model/scores.py"} <= carried  # fmt: skip
    others = {f"steps/shard/{name}.py" for name in ("step", "config", "inspect")} | {
        f"training/{name}.py" for name in ("loop", "checkpoint/save", "config", "strategies/ddp")
    }
    assert not carried & others and all((CHECKOUT / name).is_file() for name in others)


def write_step_code(folder: Path, step: str) -> dict[str, str]:
    """Write a step's code into ``folder``; an environment with nothing else of ours to import."""
    for name, content in collect_step_code(CHECKOUT, step, None).items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # In an editable installation a finder would bring in what the folder lacks.
    blocker = (
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if '__editable__' not in "
        "getattr(f, '__module__', '')]\n"
    )
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(blocker)
    return {"PYTHONPATH": f"{folder}/code:{folder}/site"}


@pytest.mark.parametrize("step", ["train", "evaluate"])
def test_the_carried_code_is_whole(step: str, tmp_path: Path, run_python):
    """Outside the checkout the job prints its help; the other steps' run, below."""
    env = write_step_code(tmp_path, step)
    done = run_python(f"code/steps/{step}/job.py", "--help", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr


def test_the_carried_shard_job_shards(tmp_path: Path, run_python):
    """Run the job with workers, whose imports differ from the job's."""
    env = write_step_code(tmp_path, "shard")
    (tmp_path / "raw").mkdir()
    for name in "ab":
        lines = [f'{{"key": "{number}", "text": "{name} {number}"}}\n' for number in range(50)]
        (tmp_path / f"raw/{name}.jsonl").write_text("".join(lines))
    done = run_python(
        "code/steps/shard/job.py", "--workload", "language_model", "--key", "key",
        "--input", "raw", "--output", "out", "--root", "root", "--processes", "2",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out/train/manifest-algo-1.json").is_file()


def test_the_carried_gate_job_judges_scores(tmp_path: Path, run_python):
    env = write_step_code(tmp_path, "gate")
    Evidence().write(tmp_path / "root")
    done = run_python(
        "code/steps/gate/job.py", "--primary_metric", "loss", "--direction", "lower",
        "--superiority", "loss", "lower", "0", "--max_calibration_error", "0.2",
        "--champion", CHAMPION, "--look", "1", "--root", "root",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("pass: "), done.stdout + done.stderr


def test_users_own_workload_travels_with_the_code(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    assert "mine/__init__.py" in collect_step_code(CHECKOUT, "train", tmp_path)
    with pytest.raises(DefinitionError, match="workload.source: .*nowhere is not a folder"):
        collect_step_code(CHECKOUT, "train", tmp_path / "nowhere")
