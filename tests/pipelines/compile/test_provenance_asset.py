"""Tests of the record of where models come from, and of its effect on the step cache."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from conditions.gate_documents import OriginRecord
from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.provenance_asset import hash_changes, mask_record_name
from pipelines.definition import build
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from tests.documents import keys_that_differ
from tests.pipelines.test_definition import steps


def compile_laptop_recipe(commit: str, *overrides: str) -> CompiledPipeline:
    recipe = load_recipe(Path("recipes/laptop.yaml"), overrides)
    return build(recipe, resolve_account(recipe.aws), commit=commit, source=None)


@pytest.fixture(scope="module")
def first() -> CompiledPipeline:
    return compile_laptop_recipe("a" * 40)


def record(definition: CompiledPipeline) -> dict:
    [asset] = [a for a in definition.assets if "provenance.json" in a.files]
    return json.loads(asset.files["provenance.json"])


def test_another_commit_of_the_same_code_changes_the_gates_input_and_nothing_else(first):
    second = compile_laptop_recipe("b" * 40)
    before, after = steps(json.loads(first.body)), steps(json.loads(second.body))
    assert {name for name in before if before[name] != after[name]} == {"Gate"}
    assert first.body == compile_laptop_recipe("a" * 40).body
    assert mask_record_name(first.body) == mask_record_name(second.body)
    assert record(first) | {"commit": "b" * 40} == record(second)


def test_the_record_binds_the_definition_that_names_it_and_has_the_keys_of_its_type(first):
    [asset] = [a for a in first.assets if "provenance.json" in a.files]
    assert asset.uri in first.body and not keys_that_differ(record(first), OriginRecord)
    expected = hashlib.sha256(mask_record_name(first.body).encode()).hexdigest()
    assert record(first)["definition_sha256"] == expected
    recipe = hashlib.sha256(asset.files["recipe.json"]).hexdigest()
    assert record(first)["recipe"]["sha256"] == recipe


def test_the_record_names_every_steps_code_and_image(first):
    found = record(first)
    code = {uri: sha256 for assets in found["code"].values() for uri, sha256 in assets.items()}
    no_code = {"provenance.json", "no-champion.json"}
    others = [asset for asset in first.assets if not no_code & asset.files.keys()]
    assert code == {asset.uri: asset.sha256 for asset in others}
    assert len(found["code"]["Train"]) == 2  # ours and AWS's drivers
    assert "pytorch-inference" in found["images"]["Register"]["uri"]


def test_an_image_given_by_digest_is_bound_by_it():
    digest = "sha256:" + "1" * 64
    found = record(compile_laptop_recipe("a", f"images.inference=example.com/mine@{digest}"))
    assert found["images"]["Register"]["digest"] == digest
    assert found["images"]["Gate"]["digest"] is None  # a tag can be moved


def test_uncommitted_changes_have_a_hash_of_their_own(tmp_path):
    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    assert hash_changes(tmp_path) is None  # no repository
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a")
    assert hash_changes(tmp_path) is None
    (tmp_path / "a").write_text("2")
    edited = hash_changes(tmp_path)
    (tmp_path / "new").write_text("3")
    with_new = hash_changes(tmp_path)
    (tmp_path / "new").write_text("4")
    assert len({edited, with_new, hash_changes(tmp_path), None}) == 4
    (tmp_path / "new").write_text("3")
    assert hash_changes(tmp_path) == with_new
