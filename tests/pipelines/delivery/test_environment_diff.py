"""Two environments compared: the definition differs where they say so, and nowhere else."""

import json
from functools import cache
from pathlib import Path

import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import plan
from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.provenance_asset import mask_record_name
from pipelines.definition import from_recipe
from pipelines.delivery.pipeline_objects import compare_environments
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

pytestmark = pytest.mark.long

LAPTOP = CHECKOUT / "recipes/laptop.yaml"
PROD = {"aws.bucket": "prod-bucket", "aws.account": "444455556666",
        "aws.role": "arn:aws:iam::444455556666:role/t", "aws.kms_key": "a-key",
        "aws.encrypt_traffic": True, "pipeline.name": "trainyard-prod",
        "gate.max_bits_per_byte": 2.5, "budget.usd_per_run": 50, "cache.enabled": False,
        "retry.max_attempts": 2, "train.instance_type": "ml.m5.xlarge", "evaluate.volume_gb": 50,
        "register.model_package_group": "trainyard-prod"}  # fmt: skip
TOGETHER = {"aws.account", "aws.role"}  # one without the other is refused


def write(folder: Path, **environments: tuple[str, ...]) -> Path:
    tree: dict = {"extends": str(LAPTOP), "environments": {}}
    for name, chosen in environments.items():
        own = tree["environments"].setdefault(name, {})
        for field in chosen:
            section, _, inner = field.partition(".")
            own.setdefault(section, {})[inner] = PROD[field]
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def places(dev: CompiledPipeline, folder: Path, chosen: tuple[str, ...]) -> set[tuple[str, str]]:
    """Where an environment that changes these fields differs from one that changes none."""
    prod = from_recipe(write(folder, prod=chosen), (), "prod")
    assert read_checkpoint_name(dev.body) == read_checkpoint_name(prod.body), (
        "another model would be trained"
    )
    diff = compare_environments(dev, prod).diff
    found = {("pipeline", change.path) for change in (*diff.pipeline, *diff.parameters)}
    return found | {(step.name, change.path) for step in diff.steps for change in step.changes}


def read_checkpoint_name(body: str) -> str:
    """The name of the training's checkpoints, made of all that shapes the weights."""
    [train] = [step for step in json.loads(body)["Steps"] if step["Name"] == "Train"]
    return train["Arguments"]["CheckpointConfig"]["S3Uri"].rpartition("/")[2]


@pytest.fixture(scope="module")
def dev(tmp_path_factory) -> CompiledPipeline:
    return from_recipe(write(tmp_path_factory.mktemp("dev"), dev=()), (), "dev")


@pytest.fixture(scope="module")
def alone(dev, tmp_path_factory):
    """Field → where it makes a difference alone, or with what it needs."""

    @cache
    def find_changed_places(field: str) -> set[tuple[str, str]]:
        fields = tuple(sorted(TOGETHER)) if field in TOGETHER else (field,)
        return places(dev, tmp_path_factory.mktemp("alone"), fields)

    return find_changed_places


@settings(deadline=None, max_examples=2)
@given(chosen=st.sets(st.sampled_from(sorted(PROD)), min_size=2, max_size=6))
def test_the_definition_differs_only_where_declared(tmp_path_factory, dev, alone, chosen):
    chosen |= TOGETHER if chosen & TOGETHER else set()
    here = places(dev, tmp_path_factory.mktemp("together"), tuple(sorted(chosen)))
    declared = {place for field in chosen for place in alone(field)}
    assert here <= declared, here - declared


@pytest.mark.parametrize(
    ("field", "values", "shown"),
    [
        ("deploy.compare", (None, {"error": 0.1}), "deploy.compare.error"),
        ("monitor.days", (7, 1), "monitor.days 7 → 1"),
        ("budget.usd_per_run", (5, 50), "budget.usd_per_run 5.0 → 50.0"),
        ("train.fallback_instance_types", ([], ["ml.m5.xlarge"]),
         'fallback_instance_types [] → ["ml.m5.xlarge"]'),
    ],
)  # fmt: skip
def test_what_no_definition_holds_is_shown(
    tmp_path: Path, capsys, field: str, values: tuple, shown: str
):
    section, name = field.split(".")
    usual = {"deploy": {"endpoint": "live", "capture_share": 0.1}, "monitor": {"days": 7}}
    usual["pipeline"] = {"overridable": ["TrainInstanceType"]}
    tree: dict = {"extends": str(LAPTOP), "environments": {}, **usual}
    for env, value in zip(("dev", "prod"), values, strict=True):
        tree["environments"][env] = {section: {name: value}}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(typer.Exit) as done:
        plan.main(recipe, environment="prod", against="dev")
    assert done.value.exit_code == plan.CHANGES
    assert shown in " ".join(capsys.readouterr().out.split())


def test_an_environment_without_a_change_differs_by_its_record_alone(tmp_path: Path):
    recipe = write(tmp_path, dev=(), staging=())
    base, dev, staging = (from_recipe(recipe, (), name) for name in (None, "dev", "staging"))
    assert not compare_environments(dev, staging).diff
    assert mask_record_name(base.body) == mask_record_name(dev.body)
    assert base.body != dev.body != staging.body
    records = [json.loads(one.assets[-1].files["provenance.json"]) for one in (base, dev)]
    assert [record["recipe"].get("environment") for record in records] == [None, "dev"]
    assert (base.environment, base.account) == (None, None)
    assert (dev.environment, dev.account) == ("dev", "123456789012")


def run_plan_diff(capsys, recipe: Path, *names: str, **more) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as done:
        plan.main(recipe, environment=names[0], against=names[1], **more)
    return done.value.exit_code, capsys.readouterr().out


def test_the_difference_is_shown_without_aws(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    recipe = write(tmp_path, dev=(), staging=(), prod=tuple(PROD))
    assert run_plan_diff(capsys, recipe, "staging", "dev")[0] == 0
    status, said = run_plan_diff(capsys, recipe, "prod", "dev")
    assert status == plan.CHANGES
    assert "environment prod against dev" in said
    for line in (
        "PipelineName trainyard-laptop → trainyard-prod",
        "ModelPackageGroupName trainyard-laptop → trainyard-prod",
        "--threshold max_bits_per_byte 2.8 → 2.5",
    ):
        assert line in " ".join(said.split())
    _, text = run_plan_diff(capsys, recipe, "prod", "dev", as_json=True)
    assert json.loads(text)["against"] == "dev"
    with pytest.raises(RecipeError, match="--env dve: the recipe has no such .* valid name: dev"):
        plan.main(recipe, environment="prod", against="dve")
