"""YAML that is too deep, expands without end or holds no values: an error at once."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from trainyard.common.errors import DefinitionError, RecipeError
from trainyard.permissions.role_template import parse_template as read_template
from trainyard.read_yaml import DEEPEST, LARGEST, MOST, load_yaml

pytestmark = pytest.mark.long

LAPTOP = CHECKOUT / "recipes/laptop.yaml"
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
WRONG = {
    "lists 3,000 deep": ("[" * 3000 + "]" * 3000, "is nested deeper than 100"),
    "mappings 300 deep": ("\n".join(" " * n + "a:" for n in range(300)), "nested deeper"),
    "aliases of aliases": (LAUGHS, "more than 20,000 values with its aliases expanded"),
    "itself": ("a: &a [*a]", "an alias is inside the value that it refers to"),
    "itself in a mapping": ("a: &a {b: {c: *a}}", "an alias is inside the value that it refers to"),
    "no such alias": ("a: *nobody", "undefined alias"),
    "too large": ("a: " + "x" * LARGEST, "at most 262,144 are allowed"),
    "a day that is none": ("a: 2026-99-99", "month must be in 1..12"),
    "a number without end": ("a: " + "9" * 6000, "Exceeds the limit"),
    "an object of Python": ("a: !!python/object:os.system x", "could not determine"),
    "a key that is no text": ("a: {1: b}", "the key 1 is not a name"),
    "a key that is a list": ("a: {[b]: c}", r"the key \['b'\] is not a name"),
    "a zero byte": ("a: \0", "special characters are not allowed"),
}


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=list(WRONG))
def test_a_recipe_that_cannot_be_read_is_told_at_once(tmp_path: Path, text: str, why: str):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(RecipeError, match=f"{path}: is not YAML: .*{why}"):
        load_recipe(path)
    if len(text) < LARGEST:
        with pytest.raises(RecipeError, match=rf"the value is not YAML; quote it \(.*{why}"):
            load_recipe(LAPTOP, [f"train.environment={text}"])
    assert time.process_time() - began < 10


def test_a_template_is_read_in_the_same_bounds():
    text, why = WRONG["aliases of aliases"]
    with pytest.raises(DefinitionError, match=why):
        read_template(text, "roles.yaml")


def test_a_path_of_many_fields_and_a_long_value_make_short_messages():
    for override in (".".join(["a"] * 5000) + "=1", "train.instance_count=[" + "1," * 9000 + "]"):
        with pytest.raises(RecipeError) as refused:
            load_recipe(LAPTOP, [override])
        assert len(str(refused.value)) < 1000


def test_aliases_and_merges_work_within_the_bounds(tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    text = LAPTOP.read_text(encoding="utf-8").replace("\nretry:", "\nunused:")
    path.write_text(text + "\nretry: &r {max_attempts: 1}\n")
    assert load_recipe(path).retry.max_attempts == 1
    merged = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]"
    assert load_yaml(merged)["b"] == {"x": 1, "y": 3}


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(TREES)
def test_what_is_within_the_bounds_is_read_as_by_pyyaml(tree):
    text = yaml.safe_dump({"a": tree, "b": tree})  # makes aliases where it can
    assert load_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(("depth", "reads"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_the_bounds_are_exact(depth: int, reads: bool):
    nested = "[" * depth + "]" * depth
    many = f"[{','.join('x' * (MOST - 1 + (not reads)))}]"
    for text in (nested, many):
        with nullcontext() if reads else pytest.raises(yaml.YAMLError):
            load_yaml(text)
