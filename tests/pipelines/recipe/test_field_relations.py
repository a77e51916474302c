"""What is unlikely is a warning of validate, shown with its line."""

import json
from pathlib import Path

import pytest
import yaml

from pipelines.recipe.field_relations import list_warnings
from pipelines.recipe.read_recipe import load_recipe
from pipelines.validate import validate_recipe
from tests.conftest import CHECKOUT
from trainyard.common.errors import suggest_nearest

LAPTOP, FLIGHTS, TUNED = (
    CHECKOUT / f"recipes/{name}.yaml" for name in ("laptop", "flights", "tuned")
)
SPOT = ("train.spot=true", "train.max_wait_minutes=60")


@pytest.mark.parametrize(
    ("path", "overrides"),
    [
        *((path, ()) for path in sorted((CHECKOUT / "recipes").glob("*.yaml"))),
        (LAPTOP, ("aws.region=me-west-1",)),  # of AWS's images, and not of botocore
        (LAPTOP, ("aws.region=null",)),
        (LAPTOP, ("train.loop.warmup_steps=299",)),
        (LAPTOP, ("train.loop.learning_rate=0.1",)),
        (LAPTOP, ("train.loop.checkpoint_interval=300",)),
        (LAPTOP, (*SPOT, "train.loop.checkpoint_interval=299")),
        (FLIGHTS, ("gate.min_accuracy=0.9", "gate.max_log_loss=0.3", "gate.min_auc=1")),
        (TUNED, ("train.loop.validation_interval=120", "tune.stop_early=false")),
    ],
)
def test_what_is_next_to_a_fault_has_no_warning(path: Path, overrides: tuple[str, ...]):
    assert [*list_warnings(load_recipe(path, overrides))] == []


@pytest.mark.parametrize(
    ("path", "overrides", "line"),
    [
        (LAPTOP, ("train.loop.learning_rate=0.5",), "train.loop.learning_rate: is 0.5; adamw se"),
        (LAPTOP, ("gate.min_loss=0.3",), "gate.min_loss: rejects the better models: lower loss is"),
        (FLIGHTS, ("gate.max_auc=0.9",), "gate.max_auc: rejects the better models: higher auc"),
        (FLIGHTS, ("gate.min_auc=-1",), "gate.min_auc: is -1, which every model meets"),
        (LAPTOP, ("train.loop.checkpoint_interval=301",),
         "train.loop.checkpoint_interval: is 301, beyond max_steps 300: no checkpoint before"),
        (LAPTOP, ("train.loop.validation_interval=400",), "no validation before the last step"),
        (LAPTOP, ("train.loop.log_interval=301",), "train.loop.log_interval: is 301, beyond"),
        (LAPTOP, ("train.loop.schedule=wsd", "train.loop.decay_share=0.95"),
         "train.loop.decay_share: is 0.95, 285 of 300 steps, and warmup_steps is 20"),
        (LAPTOP, ("train.loop.decay_share=0.2",), "has no effect without schedule: wsd"),
        (LAPTOP, ("train.loop.window_samples=9",), "has no effect without shuffle: windowed"),
        (LAPTOP, ("train.loop.profile_at=9",), "has no effect without profile_steps"),
        (LAPTOP, ("train.max_wait_minutes=90",), "max_wait_minutes: has no effect without spot"),
    ],
)  # fmt: skip
def test_what_is_unlikely_is_a_warning(path: Path, overrides: tuple[str, ...], line: str):
    assert line in "\n".join(list_warnings(load_recipe(path, overrides)))


def test_validate_shows_problems_and_warnings_with_their_lines(tmp_path: Path):
    text = LAPTOP.read_text(encoding="utf-8")
    path = tmp_path / "recipe.yaml"
    path.write_text(text.replace("learning_rate: 0.005", "learning_rate: 0.5"), encoding="utf-8")
    body, found = validate_recipe(path, ["train.loop.log_interval=400"])
    assert json.loads(body)["Version"]
    assert [(one.severity, one.path, one.source, one.why, one.fix) for one in found] == [
        ("warning", "train.loop.learning_rate", f"{path}:43", "", ""),
        ("warning", "train.loop.log_interval", "--set", "", ""),
    ]
    path.write_text(text.replace("m5.large", "m5.lrage"), encoding="utf-8")
    body, found = validate_recipe(path, [])
    assert (body, len(found)) == ("", 4)
    for one in found:
        words = f"{one.problem} {one.why} {one.fix} {one.source}"
        assert one.severity == "error" and ".py" not in words and words.count(one.problem) == 1


def test_what_only_compiling_shows_has_its_line(tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    tree = yaml.safe_load(LAPTOP.read_text(encoding="utf-8")) | {
        "images": {"pytorch_version": "2.1.0"}
    }
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    _, (found,) = validate_recipe(path, [])
    written = path.read_text(encoding="utf-8").splitlines()
    line = int(found.source.rpartition(":")[2])
    assert found.path == "images.pytorch_version" and "pytorch_version" in written[line - 1]


def test_no_list_of_names_is_empty_or_long():
    assert suggest_nearest("x", []) == "there is none to choose"
    assert suggest_nearest("x", ["aa", "bb"]) == "valid names: aa, bb"
    names = [f"{letter}{letter}{letter}" for letter in "abcdefghijk"]
    assert suggest_nearest("zzz", names).count(",") == 4  # noqa: PLR2004
    assert suggest_nearest("us-esat-1", ["us-west-1", "us-east-1", "us-east-2"]).endswith(
        ": us-east-1"
    )
