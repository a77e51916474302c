"""A training on a mixture: the same curve on any ranks, killed, resumed and continued."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.training import worlds
from tests.training.test_loop import copy_inputs, same, weights
from tests.training.trainings import TOYS, history, losses, write_dataset
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.manifest import Field
from training.input_shares import parse_mixture
from training.loop import create_order, select_validation
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

FIELD = Field(dtype="uint16", shape=(9,))
WEIGHTS = {"code": 20, "tiny": 10, "web": 70}
CHANGED = {"code": 1, "tiny": 1}
SIZES = {"web": 90, "code": 31, "tiny": 3}
LATER = {"warmup_steps": 0, "min_learning_rate_ratio": 1.0}
"""Learning-rate schedule that does not depend on max_steps."""


def mixture(**changes: dict) -> str:
    """Return a mixture; ``step5={…}`` gives other weights after five steps."""
    told = [{"step": int(name[4:]), "weights": weights} for name, weights in changes.items()]
    return json.dumps({"weights": WEIGHTS, "changes": told})


def write_inputs(folder: Path, sizes: dict[str, int], seed: int) -> None:
    """Write samples of the toy workload; each input has different numbers."""
    random = np.random.default_rng(seed)
    for number, (name, samples) in enumerate(sorted(sizes.items())):
        rows = np.zeros((samples, 9), np.uint16)
        rows[:, 0] = np.where(random.random(samples) < 0.5, 1, 8)
        rows[:, 1:] = random.integers(8 * number, 8 * number + 8, (samples, 8))
        told = {"workload": {"kind": "ragged"}, "unit": f"{name}/000000-of-000001"}
        write_dataset(folder, {"numbers": rows}, {"numbers": FIELD}, host=f"algo-{number}", **told)


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """Create a training container's folders with the samples of three inputs."""
    monkeypatch.syspath_prepend(str(TOYS))
    write_inputs(tmp_path / "ml/input/data/train", SIZES, 1)
    write_inputs(tmp_path / "ml/input/data/validation", {"web": 12, "code": 5, "tiny": 1}, 2)
    return tmp_path / "ml"


def after(root: Path, name: str) -> Path:
    [training] = root.glob("checkpoints/*/")
    made = copy_inputs(root, name)
    shutil.copytree(training, made / "input/data/start")
    return made


def going_on(*may_differ: str) -> str:
    return json.dumps({"checkpoint": "s3://bucket/checkpoints/key/", "may_differ": may_differ})


@pytest.mark.parametrize("shuffle", ["uniform", "windowed"])
def test_the_samples_are_taken_by_their_weights_and_each_input_by_its_epochs(root, shuffle):
    given = {"max_steps": 9, "global_batch": 8, "micro_batch": 8, "learning_rate": 1}
    config = TrainConfig(**given, shuffle=shuffle, window_samples=30)
    data = Dataset(root / "input/data/train")
    made = create_order(config, data, parse_mixture(mixture(step5=CHANGED)))
    values = data.read(made.indices_at(range(400)))["numbers"][:, 1] // 8  # the input's number
    assert np.bincount(values[:40]).tolist() == [8, 4, 28]
    assert np.bincount(values[40:400]).tolist() == [180, 180]
    tiny = made.indices_at(range(400))[values == 1]
    assert all(len(set(tiny[start : start + 3])) == 3 for start in range(0, 180, 3))


def test_equally_many_samples_of_each_input_are_validated_on(root):
    config = TrainConfig(
        max_steps=9, global_batch=8, micro_batch=8, learning_rate=1, validation_samples=12
    )
    data = Dataset(root / "input/data/validation")
    found = select_validation(config, data, parse_mixture(mixture()))
    assert {name: len(indices) for name, indices in found.items()} == {
        "code": 4, "tiny": 1, "web": 4,
    }  # fmt: skip
    for number, name in enumerate(sorted(found)):
        assert (data.read(found[name])["numbers"][:, 1:] // 8 == number).all()
    with pytest.raises(DataError, match="has samples of code, tiny, web, and of no input of the"):
        select_validation(config, data, parse_mixture('{"weights": {"absent": 1}}'))


def test_how_much_of_each_input_was_seen_and_its_own_loss_are_reported(root, train):
    lines = history(train(root, mixture=mixture(step5=CHANGED), micro_batch=4))
    [last] = [line for line in lines if line["step"] == 10 and "loss" in line]
    seen = {name: last[f"samples.{name}"] for name in SIZES}
    assert seen == {"code": 8 + 20, "tiny": 4 + 20, "web": 28}
    assert {name: last[f"epochs.{name}"] for name in SIZES} == {
        name: count / SIZES[name] for name, count in seen.items()
    }
    [validation] = [line for line in lines if line["step"] == 10 and "validation_loss" in line]
    own = [validation[f"validation_loss.{name}"] for name in SIZES]
    assert min(own) < validation["validation_loss"] < max(own)


@pytest.mark.sweep
@pytest.mark.slow
def test_resumed_on_other_ranks_the_curve_is_that_of_one(root, train):
    """Weights change on the way: on two ranks, then on one from the middle."""
    settings = {"max_steps": 30, "mixture": mixture(step10=CHANGED, step20=WEIGHTS)}
    settings |= {"micro_batch": 2, "validation_interval": 10}
    alone = losses(train(copy_inputs(root, "alone"), **settings))
    for again in (False, True):
        resumed = train(root, **settings) if again else worlds.train(root, 2, **settings)
        assert losses(resumed) == pytest.approx(alone, rel=1e-5)
        for folder in root.glob("checkpoints/*/step-*"):
            if int(folder.name[5:]) > 15:
                shutil.rmtree(folder)


@pytest.mark.parametrize("shuffle", ["uniform", "windowed"])
def test_a_training_that_is_resumed_is_bitwise_the_undisturbed_one(root, train, shuffle):
    settings = {"mixture": mixture(step3=CHANGED), "shuffle": shuffle, "window_samples": 40}
    settings |= {"max_steps": 30, "micro_batch": 4, "checkpoint_interval": 7}
    undisturbed, trained = losses(train(root, **settings)), weights(root)
    for folder in root.glob("checkpoints/*/step-*"):
        if int(folder.name[5:]) >= 14:  # behind the change, and in a later epoch
            shutil.rmtree(folder)
    shutil.rmtree(root / "model")
    train(root, **settings)
    assert losses(root) == undisturbed and same(weights(root), trained)


def test_weights_that_change_later_go_on_as_if_it_had_been_so_and_earlier_ones_are_named(
    root, train
):
    """A change after the checkpoint's step need not be declared, and does not alter the outcome;
    a change before it has to be.
    """
    short = train(root, mixture=mixture(), max_steps=5, **LATER)
    whole = train(copy_inputs(root, "whole"), mixture=mixture(step5=CHANGED), **LATER)
    settings = {"mixture": mixture(step5=CHANGED), "start_from": going_on("max_steps"), **LATER}
    extended = train(after(short, "extended"), **settings)
    assert same(weights(whole), weights(extended)) and losses(extended) == losses(whole)

    other, settings = after(short, "other"), {"mixture": mixture(step4=CHANGED), **LATER}
    with pytest.raises(SystemExit):
        train(other, start_from=going_on("max_steps"), **settings)
    said = (other / "output/failure").read_text()
    assert "is of another training: mixture [{'step': 0, " in said
    assert said.endswith("or add mixture to train.start_from.may_differ")
    train(other, start_from=going_on("max_steps", "mixture"), **settings)
    assert 10 in losses(other)


def test_other_weights_and_inputs_that_changed_places_make_another_training(root, train):
    train(root, mixture=mixture(), max_steps=1)
    train(root, mixture=mixture(step5=CHANGED), max_steps=1)
    for manifest in (root / "input/data/train").glob("manifest-*.json"):
        swapped = manifest.read_text().replace("web/", "x/").replace("code/", "web/")
        manifest.write_text(swapped.replace("x/", "code/"))
    train(root, mixture=mixture(), max_steps=1)
    assert len(list((root / "checkpoints").glob("*/history.jsonl"))) == 3


def test_an_input_that_has_no_sample_ends_the_job_before_its_first_step(root, train):
    told = json.dumps({"weights": WEIGHTS | {"absent": 5}})
    with pytest.raises(SystemExit):
        train(root, mixture=told)
    said = (root / "output/failure").read_text()
    assert "has no sample of input 'absent', only of code, tiny, web; it is too small" in said
