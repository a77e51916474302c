"""The choice among a tuning's best trainings, by the archives that SageMaker keeps of them."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml

from steps.choose import job

SETTINGS = {"learning_rate": 0.1 + 0.2, "optimizer": "lamb", "seed": 3}


def archive(root: Path, name: str, trial: object, member: str = "trial.json") -> None:
    folder = root / "processing/input" / name
    folder.mkdir(parents=True)
    content = json.dumps(trial).encode()
    with tarfile.open(folder / "output.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def trial(name: str, held_out: float | None, **settings: object) -> dict:
    losses = (
        {} if held_out is None else {"step": 9, "validation_loss": 1, "held_out_loss": held_out}
    )
    return {"training_job": name, "settings": SETTINGS | settings, **losses}


def choose(root: Path, *inputs: str) -> None:
    job.main(
        ["--names", *SETTINGS, "--inputs", *inputs, "--completed", "7", "--stopped", "2",
         "--root", str(root)]
    )  # fmt: skip


def test_the_lowest_loss_on_held_out_samples_wins_whatever_the_objective_said(tmp_path):
    archive(tmp_path, "top0", trial("first", 2.5))
    archive(tmp_path, "top1", trial("second", 2.25, optimizer="adamw"))
    archive(tmp_path, "top2", trial("stopped", None))
    choose(tmp_path, "top0", "top1", "top2")
    found = json.loads((tmp_path / "processing/output/choice/choice.json").read_text())
    assert (found["training_job"], found["tried"], found["stopped"]) == ("second", 9, 2)
    assert found["values"] == {
        "learning_rate": "0.30000000000000004", "optimizer": "adamw", "seed": "3"
    }  # fmt: skip
    assert [one["held_out_loss"] for one in found["candidates"]] == [2.5, 2.25, None]
    overlay = yaml.safe_load((tmp_path / "processing/output/choice/overlay.yaml").read_text())
    assert overlay == {"train": {"loop": SETTINGS | {"optimizer": "adamw"}}}


def test_the_overlay_has_each_setting_in_its_own_section(tmp_path):
    archive(tmp_path, "top0", trial("first", 2.5) | {"workload_config": {"width": 32, "stem": "a"}})
    names = ["seed", "workload_config_width", "workload_config_stem"]
    arguments = ["--names", *names, "--inputs", "top0", "--completed", "1", "--stopped", "0"]
    job.main([*arguments, "--root", str(tmp_path)])
    found = json.loads((tmp_path / "processing/output/choice/choice.json").read_text())
    assert found["values"] == dict(zip(names, ("3", "32", "a"), strict=True))
    overlay = yaml.safe_load((tmp_path / "processing/output/choice/overlay.yaml").read_text())
    assert overlay == {
        "train": {"loop": {"seed": 3}}, "workload": {"config": {"width": 32, "stem": "a"}}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "member", "said"),
    [
        (
            trial("stopped", None),
            "trial.json",
            "none of the 1 best trainings came to its last step",
        ),
        (trial("other", 1.0), "other.json", "holds no trial.json"),
        ([], "trial.json", "is not a JSON object"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, capsys, written, member, said):
    archive(tmp_path, "top0", written, member)
    with pytest.raises(SystemExit):
        choose(tmp_path, "top0")
    assert said in (tmp_path / "output/message").read_text()
    assert not (tmp_path / "processing/output/choice/choice.json").exists()
