"""Recipes: what is right is read, what is wrong is named."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.recipe import read_recipe as recipe
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import resolve
from trainyard.common.errors import RecipeError

LAPTOP = Path("recipes/laptop.yaml")


def refused(*overrides: str, path: Path = LAPTOP) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe.load(path, overrides)
    return str(caught.value)


@pytest.mark.parametrize("path", sorted(Path("recipes").glob("*.yaml")), ids=str)
def test_every_recipe_in_the_repository_is_valid(path: Path):
    assert recipe.load(path).pipeline.name


def test_every_field_is_documented():
    def undocumented(model, path=""):
        for name, field in model.model_fields.items():
            here = f"{path}{name}"
            if not field.description:
                yield here
            inner = field.annotation
            if isinstance(inner, type) and hasattr(inner, "model_fields"):
                yield from undocumented(inner, f"{here}.")

    assert list(undocumented(Recipe)) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.loop.max_stepz=3", "train.loop.max_stepz: unknown field (value 3); nearest"),
        ("shard.instance_cuont=3", "shard.instance_cuont: unknown field (value 3); nearest"),
        ("reigster.x=1", "nearest valid name: register"),
        ("gate.max_bits_per_bit=1", "unknown field; nearest valid name: max_bits_per_byte"),
        ("gate.below_baseline=bigrma", "nearest valid name: bigram"),
        ("gate.max_bits_per_byte=low", "gate.max_bits_per_byte: is 'low'"),
        ("gate.max_bits_per_byte=.nan", "is nan; expected a finite number"),
        ("gate.superiority={bits: 0}", "gate.superiority.bits: is not a metric of workload"),
        ("gate.superiority={perplexity: 0}", "gate.superiority.perplexity: is not a sum over"),
        ("gate.superiority={bits_per_byte: -1}", "gate.superiority.bits_per_byte: is -1"),
        ("gate.non_inferiority={loss: 0}", "gate.non_inferiority.loss: is 0"),
        ("gate.clip={loss: .inf}", "gate.clip.loss: is inf"),
        ("gate.range={bits: 1}", "gate.range.bits: no check compares it"),
        ("gate.clip={perplexity: 1}", "gate.clip.perplexity: no check compares it"),
        ("gate.confidence=1", "gate.confidence: is 1"),
        ("gate.cold_start=maybe", "gate.cold_start: is 'maybe'"),
        ("gate={superiority: {loss: 0}}", "gate.cold_start: is 'pass', so nothing would check"),
        ("gate={cold_start: reject}", "gate: nothing to check"),
        ("train.instance_count=0", "train.instance_count: is 0"),
        ("train.instance_type=p4d.24xlarge", "train.instance_type: is 'p4d.24xlarge'"),
        ("train.spot=true", "train: spot needs max_wait_minutes"),
        ("train.input_mode=FSxLustre", "train: input_mode FSxLustre and the fsx section"),
        ("workload.name=langauge_model", "langauge_model"),
        ("workload.config.layrs=2", "workload.config.layrs: unknown field"),
        ("data.input=/local/folder", "data.input: is '/local/folder'"),
        ("shard.test_share=0.45", "shard.test_share"),
    ],
)  # fmt: skip
def test_wrong_field_is_named_with_its_value_and_the_fix(override: str, expected: str):
    more = ["shard.validation_share=0.4"] if override.startswith("shard.test") else []
    expected = "shard: validation_share" if more else expected
    assert expected in refused(override, *more)


def test_spot_and_a_warm_pool_exclude_each_other():
    message = refused("train.spot=true", "train.max_wait_minutes=60", "train.keep_alive_minutes=10")
    assert "cannot be combined with spot" in message


def test_a_sequence_that_the_ranks_cannot_share_is_refused_with_the_arithmetic():
    message = refused("workload.config.context_length=33", "train.loop.tensor_parallel=2")
    assert "context_length 33 / tensor_parallel 2 = 16.50 positions per rank" in message


def test_all_problems_are_told_at_once():
    assert len(refused("shard.instance_count=0", "evaluate.volume_gb=no").splitlines()) == 2


def test_missing_section_is_named(tmp_path: Path):
    tree = yaml.safe_load(LAPTOP.read_text())
    del tree["register"]
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tree))
    assert "register: is missing" in refused(path=path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1\n", "is not YAML"),
        ("pipeline: {name: a}\npipeline: {name: b}\n", "'pipeline' stands twice"),
        ("", "must be a mapping"),
    ],
)
def test_file_that_is_no_recipe(tmp_path: Path, text: str, expected: str):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert expected in refused(path=path)


def test_missing_file_says_which_recipes_there_are():
    assert "recipes/laptop.yaml" in refused(path=Path("recipes/latpop.yaml"))


@pytest.mark.parametrize("override", ["train", "=3", "train..loop=3", "train.spot.x=1"])
def test_malformed_override(override: str):
    more = ["train.spot=true"] if override.startswith("train.spot") else []
    assert f"--set {override}" in refused(*more, override)


@given(steps=st.integers(1, 10**6), rate=st.floats(1e-6, 1.0))
def test_override_reads_back(steps: int, rate: float):
    loaded = recipe.load(
        LAPTOP,
        [
            *(f"train.loop.max_steps={steps}", f"train.loop.learning_rate={rate!r}"),
            "train.loop.warmup_steps=0",
        ],
    )
    assert loaded.train.loop.max_steps == steps
    assert loaded.train.loop.learning_rate == rate


def test_account_comes_from_the_recipe_first_then_from_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("ARTIFACT_BUCKET", "from-environment")
    loaded = recipe.load(LAPTOP, ["aws.bucket=null"])
    account = resolve(loaded.aws)
    assert (account.region, account.bucket) == ("us-east-1", "from-environment")
    monkeypatch.delenv("ARTIFACT_BUCKET")
    with pytest.raises(RecipeError, match="aws.bucket: neither .* ARTIFACT_BUCKET"):
        resolve(loaded.aws)
