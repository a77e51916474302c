"""Going on from another training, and starting from a model: exactly what was asked for."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from steps.train import job
from tests.training import worlds
from tests.training.trainings import TOYS, arguments, history, losses, write_ragged
from training.identity import Parts
from training.weights.starting_weights import DIFFERENT, open_start, parse_start
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

CONSTANT = {"warmup_steps": 0, "min_learning_rate_ratio": 1.0}
"""Learning-rate schedule that does not depend on max_steps."""
BUCKET = "s3://bucket/checkpoints/key/"


@pytest.fixture(autouse=True, scope="module")
def _toy_import_path() -> Iterator[None]:
    """Make the toy workload importable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        yield


def run(root: Path, **settings) -> Path:
    job.main(arguments(root, {"strategy": "single"} | CONSTANT | settings))
    return root


@pytest.fixture(scope="module")
def short_training(tmp_path_factory) -> Path:
    """Train five steps; the tests take copies of what that left behind."""
    root = tmp_path_factory.mktemp("short") / "ml"
    write_ragged(root / "input/data/train", 100, seed=1)
    write_ragged(root / "input/data/validation", 20, seed=2)
    return run(root, max_steps=5)


@pytest.fixture
def short(short_training: Path, tmp_path: Path) -> Path:
    return shutil.copytree(short_training, tmp_path / "short")


@pytest.fixture(scope="module")
def uninterrupted(short_training: Path) -> Path:
    """Train ten steps without a stop."""
    return run(copy_inputs(short_training, "whole"))


def copy_inputs(root: Path, name: str) -> Path:
    shutil.copytree(root / "input", root.parent / name / "input")
    return root.parent / name


def after(root: Path, name: str, folder: str = "") -> Path:
    """Create a container with the checkpoints of ``root``, or one ``folder`` of them."""
    [training] = root.glob("checkpoints/*/")
    made = copy_inputs(root, name)
    shutil.copytree(training / folder, made / "input/data/start")
    return made


def with_model(root: Path, name: str) -> Path:
    """Create a container with the model of ``root``."""
    made = copy_inputs(root, name)
    (made / "input/data/start").mkdir()
    with tarfile.open(made / "input/data/start/model.tar.gz", "w:gz") as tar:
        tar.add(root / "model", ".")
    return made


def checkpoint(*may_differ: str) -> str:
    return json.dumps({"checkpoint": BUCKET, "may_differ": may_differ})


MODEL = json.dumps({"model": "s3://bucket/model.tar.gz"})


def read_training_settings(root: Path) -> dict:
    return json.loads((root / "model/config.json").read_text())["training"]


def failure(root: Path, **settings) -> str:
    with pytest.raises(SystemExit):
        run(root, **settings)
    return (root / "output/failure").read_text()


def same_weights(*roots: Path) -> bool:
    one, other = (load_file(root / "model/model.safetensors") for root in roots)
    return all(one[name].equal(other[name]) for name in one | other)


@pytest.mark.parametrize("folder", ["", "step-00000005"])
def test_a_training_that_is_extended_is_bitwise_the_longer_one(
    short, uninterrupted, folder, caplog
):
    caplog.set_level("INFO", logger="training")
    extended = run(after(short, "extended", folder), start_from=checkpoint("max_steps"))
    assert same_weights(uninterrupted, extended)
    curve = {step: loss for step, loss in losses(uninterrupted).items() if step > 5 or not folder}
    assert losses(extended) == curve
    names = [read_training_settings(one)["identity"] for one in (short, extended, uninterrupted)]
    stretches = [
        (stretch["since"], stretch["identity"])
        for stretch in read_training_settings(extended)["stretches"]
    ]
    assert stretches == [(0, names[0]), (5, names[1])]
    assert read_training_settings(extended)["parts"]["start"] == {"checkpoint": names[0], "step": 5}
    assert "different since: max_steps 5 → 10" in caplog.text
    assert len(set(names)) == 3


def test_the_learning_rate_goes_on_by_the_new_schedule_and_that_is_said(short, caplog):
    caplog.set_level("INFO", logger="training")
    allowed = checkpoint("max_steps", "min_learning_rate_ratio")
    extended = after(short, "extended")
    run(extended, min_learning_rate_ratio=0.0, start_from=allowed, max_steps=7)
    rates = {line["step"]: line["learning_rate"] for line in history(extended) if "loss" in line}
    assert rates[5] == 0.01 > rates[6] > rates[7]
    said = f"learning rate 0.01 at step 5, then {rates[6]:g} by this training's schedule"
    assert said in caplog.text


def test_it_goes_on_from_its_own_checkpoints_when_it_is_started_again(short, caplog):
    caplog.set_level("INFO", logger="training")
    extended = after(short, "extended")
    settings = {"start_from": checkpoint("max_steps"), "checkpoint_interval": 2}
    before = losses(run(extended, **settings))
    [newest] = extended.glob("checkpoints/*/step-00000010")
    shutil.rmtree(newest)
    caplog.clear()
    assert losses(run(extended, **settings)) == before
    assert "resumed from the checkpoint of step 8" in caplog.text
    assert [s["since"] for s in read_training_settings(extended)["stretches"]] == [0, 5]


def test_what_the_recipe_does_not_name_may_not_differ(short):
    extended = after(short, "extended")
    said = failure(extended, start_from=checkpoint("max_steps"), learning_rate=0.02, seed=3)
    assert "is of another training: learning_rate 0.01 → 0.02; seed 0 → 3" in said
    assert said.endswith("or add learning_rate, seed to train.start_from.may_differ")


def test_a_training_with_nothing_left_is_an_error(short):
    said = failure(after(short, "again"), start_from=checkpoint(), max_steps=5)
    assert "is after step 5, and max_steps is 5: nothing is left to train; raise" in said


def torn(folder: Path) -> None:
    part = next(folder.glob("step-00000005/*.safetensors"))
    part.write_bytes(part.read_bytes()[:-1] + b"!")


def stray(folder: Path) -> None:
    part = next(folder.glob("step-00000005/*.safetensors"))
    shutil.copy(part, part.with_name("other.safetensors"))


def without_lineage(folder: Path) -> None:
    path = folder / "step-00000005/complete.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lineage": None}))


def of_another_form(folder: Path) -> None:
    path = folder / "step-00000005/complete.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({name: said[name] for name in ("step", "files", "lineage")}))


@pytest.mark.parametrize(
    ("change", "said"),
    [(torn, "was changed since it was written: the hash of bytes 0 to "),
     (stray, "other.safetensors does not belong to this checkpoint; remove it"),
     (without_lineage, "does not say what it was trained with; start from"),
     (of_another_form, "complete.json has format 1; this version reads format 2"),
     (lambda folder: shutil.rmtree(folder / "step-00000005"), 'but ["history.jsonl"]; name a')],
)  # fmt: skip
def test_a_checkpoint_that_cannot_be_gone_on_from_is_an_error(short, change, said):
    extended = after(short, "extended")
    change(extended / "input/data/start")
    assert said in failure(extended, start_from=checkpoint("max_steps"))


def test_a_checkpoint_of_another_optimizers_state_says_so(short):
    extended = after(short, "extended")
    said = failure(extended, start_from=checkpoint("max_steps", "ema_decay"), ema_decay=0.5)
    assert "does not fit this model and optimizer" in said and "average." in said


BEGUN = {"start_from": MODEL, "learning_rate": 1e-30, "max_steps": 1}


def test_a_training_begins_with_a_models_weights(short, caplog):
    caplog.set_level("INFO", logger="training")
    begun = run(with_model(short, "begun"), **BEGUN, seed=5)
    assert same_weights(short, begun)
    sha256 = open_start(parse_start(MODEL), begun / "input/data/start").sha256
    assert read_training_settings(begun)["parts"]["start"] == {
        "model": sha256,
        "model_package": None,
    }
    assert "begins at step 1 with the weights of s3://bucket/model.tar.gz" in caplog.text


@pytest.mark.slow
def test_so_it_does_when_the_weights_are_sharded(short):
    begun = worlds.train(with_model(short, "begun"), 2, strategy="fsdp", micro_batch=4, **BEGUN)
    assert same_weights(short, begun)


def other_workload(model: Path) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"workload": "tabular"}))


def other_shape(model: Path) -> None:
    save_file({"out.weight": torch.zeros(3, 3)}, model / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "said"),
    [(other_workload, "is a model of workload 'tabular'; this training has 'toys.ragged'"),
     (other_shape, "are not those of this training's model: Error(s) in loading state_dict"),
     (lambda model: (model / "config.json").unlink(), "contains no config.json; it is not a model"),
     (lambda model: (model / "model.safetensors").write_bytes(b"{"), "are not those of this")],
)  # fmt: skip
def test_a_model_that_is_none_of_this_trainings_is_an_error(short, change, said):
    change(short / "model")
    assert said in failure(with_model(short, "begun"), start_from=MODEL)


def test_a_replaced_model_and_a_damaged_one_are_errors(short):
    begun = with_model(short, "begun")
    archive = begun / "input/data/start/model.tar.gz"
    replaced = json.dumps(json.loads(MODEL) | {"model_sha256": "0" * 64})
    assert "the file was replaced" in failure(begun, start_from=replaced)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    assert "cannot be unpacked" in failure(begun, start_from=MODEL)
    archive.unlink()
    assert "model.tar.gz: is missing" in failure(begun, start_from=MODEL)


def test_every_part_of_a_training_may_be_named():
    """Otherwise an error would suggest a value that is refused."""
    known = Parts(workload="v", workload_config={"a": 1}, settings={"seed": 0}, code={"f": "1"})
    other = Parts(workload="w", workload_config={}, settings={}, code={}, data="f", torch="2")
    parts = {name.partition(".")[0] for name in other.describe_differences(known)}
    assert parts == {"workload", "workload_config", "seed", "code", "data", "torch"} <= DIFFERENT


@pytest.mark.parametrize(
    ("fields", "said"),
    [({}, "set one of the two"),
     ({"checkpoint": BUCKET, "model": "s3://bucket/m"}, "set one of the two"),
     ({"checkpoint": BUCKET, "may_differ": ["colour"]}, "colour is not a part of a training"),
     ({"model": "s3://bucket/m", "may_differ": ["code"]}, "may_differ code is for checkpoint"),
     ({"checkpoint": BUCKET, "model_sha256": "0" * 64}, "model_sha256 is for model"),
     ({"checkpoint": "checkpoints/here"}, "start_from.checkpoint"),
     ({"model_package": "trainyard/1"}, "start_from.model_package"),
     ({"checkpoints": BUCKET}, "start_from.checkpoints")],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_says_why(fields, said):
    with pytest.raises(TrainingError, match=said):
        parse_start(json.dumps(fields))
