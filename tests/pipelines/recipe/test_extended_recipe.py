"""A recipe that says only what differs from another."""

from pathlib import Path

import pytest

from pipelines.recipe.extended_recipe import read, sha256
from pipelines.recipe.read_recipe import load
from trainyard.common.errors import RecipeError
from trainyard.common.hashes import file_sha256

PROD = Path("recipes/prod.yaml").resolve()
SCRIPT = """\
pipeline: {name: own-script}
train: {script: train.py, source: ., channels: {train: s3://bucket/train}}
workload: {source: own}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_said_replaces_a_field_and_all_else_stays(tmp_path: Path):
    overlay = write(
        tmp_path / "other.yaml",
        f"extends: {PROD}\ntrain: {{instance_count: 8, loop: {{micro_batch: 4}}}}\n",
    )
    base, found = load(PROD), load(overlay)
    assert base.train.loop and found.train.loop
    assert (found.train.instance_count, found.train.loop.micro_batch) == (8, 4)
    changed = {"instance_count": 8, "loop": base.train.loop.model_copy(update={"micro_batch": 4})}
    assert found == base.model_copy(update={"train": base.train.model_copy(update=changed)})


def test_recipes_stand_upon_each_other_and_set_upon_all(tmp_path: Path):
    write(tmp_path / "a.yaml", f"extends: {PROD}\npipeline: {{name: a, description: kept}}\n")
    last = write(tmp_path / "b.yaml", "extends: a.yaml\npipeline: {name: b}\naws: {tags: {x: y}}\n")
    found = load(last, ["pipeline.max_parallel_steps=7"])
    assert (found.pipeline.name, found.pipeline.description) == ("b", "kept")
    assert found.pipeline.max_parallel_steps == 7
    assert found.aws.tags == load(PROD).aws.tags | {"x": "y"}


def test_paths_mean_what_they_mean_where_they_stand(tmp_path: Path):
    write(tmp_path / "base/recipe.yaml", SCRIPT)
    overlay = write(tmp_path / "over/lay.yaml", "extends: ../base/recipe.yaml\ntrain: {source: x}")
    tree = read(overlay)
    assert tree["train"]["script"] == "../base/train.py"
    assert tree["train"]["source"] == "x"
    assert tree["workload"]["source"] == "../base/own"
    assert tree["train"]["channels"] == {"train": "s3://bucket/train"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: [a]", r"extends: is \['a'\]; expected the path of a recipe"),
        ("extends: gone.yaml", "gone.yaml: no such recipe"),
        ("extends: self.yaml", "circular"),
        (f"extends: {PROD}\ntrain: {{instance_cuont: 3}}", "self.yaml:2: train.instance_cuont: u"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path: Path, text: str, said: str):
    with pytest.raises(RecipeError, match=said):
        load(write(tmp_path / "self.yaml", text))


def test_the_hash_covers_what_is_extended(tmp_path: Path):
    base = write(tmp_path / "base.yaml", PROD.read_text(encoding="utf-8"))
    overlay = write(tmp_path / "over.yaml", "extends: base.yaml\n")
    assert sha256(base) == file_sha256(base)
    before = sha256(overlay)
    write(base, base.read_text(encoding="utf-8") + "# changed\n")
    assert sha256(overlay) != before
