"""Recipes: what is right is read, what is no recipe is named; region, roles and bucket."""

from pathlib import Path

import pytest

from pipelines.recipe import read_recipe as recipe
from pipelines.recipe.config import Aws
from pipelines.recipe.environments import find_account, resolve_account
from pipelines.recipe.extended_recipe import hash_recipe, read_extended_recipe
from pipelines.recipe.read_recipe import load_recipe
from trainyard.common.errors import RecipeError
from trainyard.common.hashes import hash_file

LAPTOP = Path("recipes/laptop.yaml")


def read_refusal(*overrides: str, path: Path = LAPTOP) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe.load_recipe(path, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1\n", "is not YAML"),
        ("pipeline: {name: a}\npipeline: {name: b}\n", "'pipeline' is repeated"),
        ("", "must be a mapping"),
    ],
)
def test_file_that_is_no_recipe(tmp_path: Path, text: str, expected: str):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert expected in read_refusal(path=path)


def test_missing_file_says_which_recipes_there_are():
    assert "recipes/laptop.yaml" in read_refusal(path=Path("recipes/latpop.yaml"))


@pytest.mark.parametrize("override", ["train", "=3", "train..loop=3", "train.spot.x=1"])
def test_malformed_override(override: str):
    more = ["train.spot=true"] if override.startswith("train.spot") else []
    assert f"--set {override}" in read_refusal(*more, override)


@pytest.mark.parametrize("rate", [1e-06, 0.0001234, 1.0])
def test_override_reads_back(rate: float):
    sets = [f"train.loop.learning_rate={rate!r}", "train.loop.max_steps=1000000"]
    loop = recipe.load_recipe(LAPTOP, sets).train.loop
    assert (loop.max_steps, loop.learning_rate) == (1_000_000, rate)


def test_account_comes_from_the_recipe_first_then_from_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("ARTIFACT_BUCKET", "from-environment")
    loaded = recipe.load_recipe(LAPTOP, ["aws.bucket=null"])
    account = resolve_account(loaded.aws)
    assert (account.region, account.bucket) == ("us-east-1", "from-environment")
    monkeypatch.delenv("ARTIFACT_BUCKET")
    with pytest.raises(RecipeError, match="aws.bucket: is set neither .* ARTIFACT_BUCKET"):
        resolve_account(loaded.aws)
    monkeypatch.setenv("AWS_REGION", "eu-wset-1")
    with pytest.raises(RecipeError, match="is 'eu-wset-1'; no such .*: eu-west-1"):
        resolve_account(recipe.load_recipe(LAPTOP, ["aws.region=null"]).aws)


ROLE, JOBS, OTHER = (f"arn:aws:iam::123456789012:role/{n}" for n in ("pipeline", "jobs", "other"))
PLACE = {"region": "eu-west-1", "bucket": "our-bucket"}


@pytest.mark.parametrize(
    ("recipe", "environment", "expected"),
    [
        ({"role": ROLE}, {}, (ROLE, ROLE)),
        ({"role": ROLE, "job_role": JOBS}, {"SAGEMAKER_JOB_ROLE_ARN": OTHER}, (ROLE, JOBS)),
        # a variable in someone's shell changes nothing beside a recipe's own role
        ({"role": ROLE}, {"SAGEMAKER_JOB_ROLE_ARN": OTHER}, (ROLE, ROLE)),
        ({}, {"SAGEMAKER_PIPELINE_ROLE_ARN": ROLE}, (ROLE, ROLE)),
        ({}, {"SAGEMAKER_PIPELINE_ROLE_ARN": ROLE, "SAGEMAKER_JOB_ROLE_ARN": JOBS}, (ROLE, JOBS)),
        ({"job_role": JOBS}, {"SAGEMAKER_PIPELINE_ROLE_ARN": ROLE}, (ROLE, JOBS)),
    ],
)
def test_the_two_roles(recipe, environment, expected, monkeypatch: pytest.MonkeyPatch):
    for variable in ("SAGEMAKER_PIPELINE_ROLE_ARN", "SAGEMAKER_JOB_ROLE_ARN"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    account = resolve_account(Aws(**PLACE, **recipe))
    assert (account.role, account.job_role) == expected


def test_roles_are_of_the_account_that_is_stated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAGEMAKER_PIPELINE_ROLE_ARN", ROLE)
    assert resolve_account(Aws(**PLACE, account="123456789012")).role == ROLE
    with pytest.raises(
        RecipeError, match=rf"aws.role: is {ROLE}, .*; expected a role of account 1{{12}},"
    ):
        resolve_account(Aws(**PLACE, account="1" * 12))
    other = JOBS.replace("123456789012", "2" * 12)
    with pytest.raises(RecipeError, match="aws.job_role: is .*2{12}:.* as in aws.role"):
        resolve_account(Aws(**PLACE, job_role=other))


@pytest.mark.parametrize(
    ("aws", "environment", "expected"),
    [
        ({}, None, None),
        ({"role": ROLE}, None, None),  # tried on the emulator with the roles of another account
        ({"role": ROLE}, "dev", "123456789012"),
        ({"account": "1" * 12}, None, "1" * 12),
        ({}, "dev", None),
    ],
)
def test_the_account_that_the_caller_must_be_of(aws, environment, expected):
    assert find_account(Aws(**aws), environment) == expected


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


def test_what_is_said_replaces_a_field_and_recipes_stand_upon_each_other(tmp_path: Path):
    text = f"extends: {PROD}\ntrain: {{instance_count: 8, loop: {{micro_batch: 4}}}}\n"
    base, found = load_recipe(PROD), load_recipe(write(tmp_path / "other.yaml", text))
    assert base.train.loop and found.train.loop
    changed = {"instance_count": 8, "loop": base.train.loop.model_copy(update={"micro_batch": 4})}
    assert found == base.model_copy(update={"train": base.train.model_copy(update=changed)})
    write(tmp_path / "a.yaml", f"extends: {PROD}\npipeline: {{name: a, description: kept}}\n")
    last = write(tmp_path / "b.yaml", "extends: a.yaml\npipeline: {name: b}\naws: {tags: {x: y}}\n")
    found = load_recipe(last, ["pipeline.max_parallel_steps=7"])
    assert (found.pipeline.name, found.pipeline.description) == ("b", "kept")
    assert found.pipeline.max_parallel_steps == 7, "set stands upon all"
    assert found.aws.tags == base.aws.tags | {"x": "y"}


def test_paths_mean_what_they_mean_where_they_stand(tmp_path: Path):
    write(tmp_path / "base/recipe.yaml", SCRIPT)
    overlay = write(tmp_path / "over/lay.yaml", "extends: ../base/recipe.yaml\ntrain: {source: x}")
    tree = read_extended_recipe(overlay)
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
        load_recipe(write(tmp_path / "self.yaml", text))


def test_the_hash_covers_what_is_extended(tmp_path: Path):
    base = write(tmp_path / "base.yaml", PROD.read_text(encoding="utf-8"))
    overlay = write(tmp_path / "over.yaml", "extends: base.yaml\n")
    assert hash_recipe(base) == hash_file(base)
    before = hash_recipe(overlay)
    write(base, base.read_text(encoding="utf-8") + "# changed\n")
    assert hash_recipe(overlay) != before
