"""recipes/schema.json is current, agrees with the reader, and every recipe names it."""

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from pipelines.recipe.schema import FILE, LINE, build_schema, render_schema
from tests.conftest import CHECKOUT
from tests.pipelines.recipe.test_environments import ENVIRONMENTS

RECIPES = sorted((CHECKOUT / "recipes").glob("*.yaml"))
VALIDATOR = Draft202012Validator(build_schema())


def problems(tree: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(tree)]


def test_the_file_is_current_and_a_schema():
    assert FILE.read_text(encoding="utf-8") == render_schema(), (
        "run python -m pipelines.recipe.schema"
    )
    Draft202012Validator.check_schema(build_schema())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_names_the_schema_and_keeps_to_it_with_all_its_defaults(path):
    written = path.read_text(encoding="utf-8")
    assert written.splitlines()[0] == LINE
    assert problems(yaml.safe_load(written)) == []
    assert problems(load_recipe(path).model_dump(mode="json", by_alias=True)) == []


def test_every_field_says_what_it_is():
    def iter_undocumented_fields(tree: Any, where: str = ""):
        if isinstance(tree, dict):
            for name, field in tree.get("properties", {}).items():
                if "description" not in field and "$ref" not in field and "const" not in field:
                    yield f"{where}.{name}"
            for key, value in tree.items():
                if key != "allOf":
                    yield from iter_undocumented_fields(value, f"{where}.{key}")

    def sections(model: Any):
        for name, field in model.model_fields.items():
            yield field.description and name
            if hasattr(field.annotation, "model_fields"):
                yield from sections(field.annotation)

    assert list(iter_undocumented_fields(build_schema())) == [] and all(sections(Recipe))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train.loop.learning_rat", 0.1),
        ("train.loop.strategy", "fsdp2"),
        ("train.instance_count", 0),
        ("train.start_from", {"chekpoint": "s3://bucket/key"}),
        ("workload.config.layer", 3),
        ("workload.config.layers", "three"),
        ("gate.maximum_loss", 3),
        ("gate.max_loss", "low"),
        ("gate.non_inferiority", {"loss": 0}),
        ("data.input", "/here"),
        ("shards", {}),
        ("environments", {"prod": {"data": {}}}),
        ("environments", {"prod": {"train": {"loop": {}}}}),
        ("environments", {"prod": {"gate": {"maximum": 1}}}),
        ("environments", {"prod": {"aws": {"x": 1}}}),
    ],
)
def test_a_wrong_field_is_marked(field: str, value: Any):
    tree = yaml.safe_load((CHECKOUT / "recipes/laptop.yaml").read_text(encoding="utf-8"))
    good = {"prod": {**ENVIRONMENTS["prod"], "aws": {"account": "444455556666"}}, "dev": None}
    assert problems(tree | {"environments": good}) == []
    *sections, name = field.split(".")
    inner = tree
    for section in sections:
        inner = inner[section]
    inner[name] = value
    assert problems(tree)


@pytest.mark.parametrize(
    ("recipe", "metric"), [("laptop", "max_bits_per_byte"), ("flights", "min_auc")]
)
def test_an_editor_offers_the_thresholds_of_the_workload(recipe: str, metric: str):
    tree = yaml.safe_load((CHECKOUT / f"recipes/{recipe}.yaml").read_text(encoding="utf-8"))
    offered = [
        rule["then"]["properties"]["gate"]["properties"]
        for rule in build_schema()["allOf"]
        if Draft202012Validator(rule["if"]).is_valid(tree)
    ]
    assert len(offered) == 1 and metric in offered[0]
