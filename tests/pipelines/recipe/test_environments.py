"""Environments of a recipe: what they may change, which is read, and how each fault is told."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.advice.recipe_advice import write_advised_recipe as write_advised
from pipelines.recipe.environments import PARTS, WHOLE_SECTIONS
from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

LAPTOP = CHECKOUT / "recipes/laptop.yaml"
ENVIRONMENTS: dict[str, Any] = {
    "dev": None,
    "staging": {"aws": {"account": "111122223333", "role": "arn:aws:iam::111122223333:role/t"}},
    "prod": {
        "aws": {"account": 444455556666, "role": "arn:aws:iam::444455556666:role/t"},
        "pipeline": {"name": "trainyard-prod"},
        "gate": {"max_bits_per_byte": 2.5},
        "budget": {"usd_per_run": 50},
        "train": {"instance_type": "ml.m5.xlarge", "max_runtime_minutes": 60},
        "register": {"model_package_group": "trainyard-prod"},
    },
}


def write(folder: Path, environments: Any, **more: Any) -> Path:
    path = folder / "recipe.yaml"
    tree = {"extends": str(LAPTOP), **more, "environments": environments}
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def read_refusal(path: Path, environment: str | None = None, *overrides: str) -> str:
    with pytest.raises(RecipeError) as error:
        load_recipe(path, overrides, environment)
    return re.sub(r"(?m)^(\S+\.yaml(:\d+)?|--set): ", "", str(error.value))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write(tmp_path, ENVIRONMENTS)


def test_an_environment_is_laid_over_the_recipe_and_set_over_both(recipe: Path):
    base, prod = load_recipe(recipe), load_recipe(recipe, ["gate.max_bits_per_byte=2.4"], "prod")
    assert base == load_recipe(LAPTOP) == load_recipe(recipe, (), "dev")
    assert (prod.aws.account, prod.pipeline.name) == ("444455556666", "trainyard-prod")
    assert (prod.gate.thresholds["max_bits_per_byte"], prod.gate.below_baseline) == (2.4, "bigram")
    assert (prod.train.instance_type, prod.train.instance_count) == ("ml.m5.xlarge", 2)
    assert prod.train.loop == base.train.loop


def test_environments_are_extended_like_all_else(recipe: Path):
    over = recipe.with_name("over.yaml")
    over.write_text(
        "extends: recipe.yaml\nenvironments: {prod: {gate: {max_artifact_mb: 40}}, new: }\n"
    )
    prod = load_recipe(over, (), "prod").gate
    assert (prod.max_artifact_mb, prod.thresholds["max_bits_per_byte"]) == (40, 2.5)
    assert load_recipe(over, (), "new") == load_recipe(LAPTOP)


VARYING = {
    "aws.prefix": st.sampled_from(["a", "b/c"]),
    "aws.encrypt_traffic": st.booleans(),
    "pipeline.max_parallel_steps": st.integers(1, 50),
    "gate.max_bits_per_byte": st.floats(0.1, 9),
    "train.instance_type": st.sampled_from(["ml.m5.large", "ml.m5.xlarge"]),
    "register.approval": st.sampled_from(["manual", "automatic"]),
}
CHOICES = st.fixed_dictionaries({}, optional=VARYING)


@settings(deadline=None, max_examples=8)
@given(dev=CHOICES, prod=CHOICES)
def test_an_environment_is_what_set_would_make_whatever_others_say(tmp_path_factory, dev, prod):
    trees: dict[str, Any] = {"dev": {}, "prod": {}}
    for name, chosen in (("dev", dev), ("prod", prod)):
        for field, value in chosen.items():
            section, _, inner = field.partition(".")
            trees[name].setdefault(section, {})[inner] = value
    path = write(tmp_path_factory.mktemp("recipe"), trees)
    for name, chosen in (("dev", dev), ("prod", prod)):
        assert load_recipe(path, (), name) == load_recipe(
            LAPTOP, [f"{k}={v}" for k, v in chosen.items()]
        )


@pytest.mark.parametrize(
    ("prod", "told"),
    [
        ({"gate": {"max_bits_per_byt": 2}},
         "environments.prod.gate.max_bits_per_byt: unknown field; nearest valid name: max_bits_pe"),
        ({"gatee": {"margin": 2}}, "environments.prod.gatee: unknown field (value"),
        ({"train": {"instance_typ": "x"}}, "environments.prod.train.instance_typ: unknown field"),
        ({"train": {"instance_count": 7}}, "train.loop: global_batch"),
        ({"train": {"loop": {"seed": 2}}}, "environments.prod.train.loop: is the same in every"),
        ({"data": {"input": "s3://b/c"}}, "environments.prod.data: is the same in every env"),
        ({"workload": {}}, "since the same model is built once"),
        ({"register": {"card": {}}}, "environments.prod.register.card: is the same in every"),
        ({"aws": 3}, "environments.prod.aws: is 3; expected"),
        ({"aws": {"role": "me"}}, "environments.prod.aws.role: is 'me'; expected"),
        (3, "environments.prod: is 3; expected sections of a recipe"),
        ({"aws": {"account": "1" * 12, "role": f"arn:aws:iam::{'2' * 12}:role/t"}},
         "environments.prod.aws.role: is arn:aws:iam::222222222222:role/t, a role of account "
         "222222222222; expected a role of account 111111111111, as in aws.account"),
        ({"aws": {"job_role": f"arn:aws:iam::{'2' * 12}:role/t"}},
         "environments.prod.aws.job_role: is arn:aws:iam::222222222222:role/t, a role of account "
         "222222222222; expected a role of account 123456789012, as in aws.role"),
        ({"register": {"model_package_group": "arn:aws:sagemaker:eu-west-1:" + "1" * 12
                       + ":model-package-group/g"}},
         "environments.prod.register.model_package_group: is in region eu-west-1; expected"),
    ],
)  # fmt: skip
def test_a_fault_of_one_is_found_whichever_is_read(tmp_path: Path, prod: Any, told: str):
    path = write(tmp_path, {"dev": None, "prod": prod})
    for name in (None, "dev", "prod"):
        assert told in read_refusal(path, name)


def test_a_fault_by_what_the_recipe_says_is_told_there_and_its_own_once(tmp_path: Path):
    path = write(tmp_path, {"dev": None, "prod": {"aws": {"account": "1" * 12}}})
    line = "aws.role: is arn:aws:iam::123456789012:role/trainyard, a role of account 123456789012"
    assert read_refusal(path, "dev").startswith(f"environments.prod: {line}")
    assert read_refusal(path, "prod").startswith(line)
    path = write(tmp_path, ENVIRONMENTS, train={"instance_cuont": 3})
    for name in (None, "dev", "prod"):
        assert read_refusal(path, name).count("instance_cuont") == 1
        assert read_refusal(path, name).startswith("train.instance_cuont: unknown field")


def test_environments_are_named(tmp_path: Path):
    for wrong in ([], {}, "dev", 3):
        assert "environments: is " in read_refusal(write(tmp_path, wrong))


def test_one_that_is_not_there_is_told_with_the_nearest_and_none_can_be_set(recipe: Path):
    assert (
        "--env prd: the recipe has no such environment; nearest valid name: prod"
        in read_refusal(recipe, "prd")
    )
    assert "--env prod: this recipe has no environments" in read_refusal(LAPTOP, "prod")
    told = read_refusal(recipe, "prod", "environments.prod.gate.max_bits_per_byte=1")
    assert told.startswith("--set environments.…: cannot be set; give --env NAME")


@pytest.mark.parametrize(
    ("base", "lacks"),
    [
        ({"gate": {"max_bits_per_byte": 3, "below_baseline": "x"}}, "gate.below_baseline"),
        ({"aws": {"bucket": None}}, "aws.bucket: is missing"),
    ],
)
def test_what_is_incomplete_without_one_asks_for_one(tmp_path: Path, base: dict, lacks: str):
    own = {"aws": {"bucket": "abc"}, "gate": {"below_baseline": "unigram"}}
    path = write(tmp_path, {"dev": own, "prod": own}, **base)
    told = read_refusal(path)
    assert told.startswith("which environment? give --env dev or prod: without one, ")
    assert lacks in told
    assert load_recipe(path, (), "dev").aws.bucket == "abc"


def test_what_may_change_exists():
    for kind, names in PARTS.values():
        assert set(names) <= kind.model_fields.keys()
    assert not set(WHOLE_SECTIONS) & PARTS.keys()


def test_an_advised_recipe_changes_the_environments_machines_and_everybodys_loop(recipe: Path):
    advised = recipe.with_name("advised.yaml")
    changed = {"instance_type": "ml.m5.2xlarge", "loop": {"micro_batch": 2}}
    write_advised(advised, recipe, ["gate.max_artifact_mb=30"], changed, [], "prod")
    dev, prod = (load_recipe(advised, (), name) for name in ("dev", "prod"))
    assert dev.train.loop and prod.train.loop
    assert (prod.train.instance_type, prod.gate.max_artifact_mb) == ("ml.m5.2xlarge", 30)
    assert (dev.train.instance_type, dev.gate.max_artifact_mb) == ("ml.m5.large", 50)
    assert dev.train.loop.micro_batch == prod.train.loop.micro_batch == 2
