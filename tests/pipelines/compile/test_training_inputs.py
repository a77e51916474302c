"""A recipe that begins with another training's checkpoint, or with a registered model."""

import hashlib
import json
from pathlib import Path

import pytest

from pipelines.compile.training_inputs import refuse_other_base_model, resolve_starting_model
from pipelines.definition import build
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from tests.pipelines.registry.test_champion import clients, registry  # noqa: F401
from training.weights.starting_weights import parse_start
from trainyard.common.errors import DefinitionError, RecipeError, ServiceError
from trainyard.language.definition_document import iter_steps

pytestmark = pytest.mark.long

RECIPE = Path("recipes/laptop.yaml")
CHECKPOINT = "s3://trainyard-laptop/trainyard/trainyard-laptop/checkpoints/0123/4567/step-00000300"


def compile_training(recipe) -> tuple[dict, dict]:
    """(arguments of step Train, what the definition knew of the training)."""
    made = build(recipe, resolve_account(recipe.aws), commit="0" * 40, source=None)
    steps = {step.name: step.document for step in iter_steps(json.loads(made.body)["Steps"])}
    [record] = [a.files for a in made.assets if "provenance.json" in a.files]
    return steps["Train"]["Arguments"], json.loads(record["provenance.json"])["training"]


def test_a_checkpoint_is_a_channel_a_hyperparameter_and_in_the_record():
    asked = f"train.start_from={{checkpoint: {CHECKPOINT}, may_differ: [code, max_steps]}}"
    train, known = compile_training(load_recipe(RECIPE, [asked]))
    fresh, before = compile_training(load_recipe(RECIPE))
    start = train["InputDataConfig"][2]
    assert start["ChannelName"] == "start" and start["InputMode"] == "File"
    source = start["DataSource"]["S3DataSource"]
    assert source["S3Uri"] == f"{CHECKPOINT}/"
    assert source["S3DataDistributionType"] == "FullyReplicated"
    begun = parse_start(train["HyperParameters"]["start_from"])
    assert begun.checkpoint == CHECKPOINT and begun.may_differ == ("code", "max_steps")
    assert known["start_from"] == begun.model_dump(mode="json", exclude_defaults=True)
    assert known["code_sha256"] == before["code_sha256"] and before["start_from"] is None
    assert "start_from" not in fresh["HyperParameters"]
    assert "start" not in [channel["ChannelName"] for channel in fresh["InputDataConfig"]]
    assert train["CheckpointConfig"]["S3Uri"] != fresh["CheckpointConfig"]["S3Uri"]


def test_a_registered_model_is_looked_up_once_with_its_hash(registry):  # noqa: F811
    arn = registry.register("Approved")
    digest = hashlib.sha256(b"x").hexdigest()
    registry.sagemaker.update_model_package(
        ModelPackageArn=arn, CustomerMetadataProperties={"artifact_sha256": digest}
    )
    recipe = load_recipe(RECIPE, [f"train.start_from={{model_package: '{arn}'}}"])
    with pytest.raises(DefinitionError, match="was not looked up; set train.start_from.model"):
        compile_training(recipe)
    train, known = compile_training(resolve_starting_model(recipe))
    assert train["InputDataConfig"][2]["DataSource"]["S3DataSource"]["S3Uri"] == (
        "s3://models/Approved/model.tar.gz"
    )
    assert known["start_from"] == {
        "model_package": arn, "model": "s3://models/Approved/model.tar.gz", "model_sha256": digest
    }  # fmt: skip
    registry.s3.delete_object(Bucket="models", Key="Approved/model.tar.gz")
    with pytest.raises(ServiceError, match="does not exist; restore it, or name another in train"):
        resolve_starting_model(recipe)


def test_nobody_is_asked_without_one_or_where_the_file_is_named(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # a call would fail
    named = "train.start_from={model: s3://bucket/model.tar.gz}"
    for recipe in (load_recipe(RECIPE), load_recipe(RECIPE, [named])):
        assert resolve_starting_model(recipe) == recipe


LLAMA = {
    **{"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "rms_norm_eps": 1e-6},
    **{"num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 256},
    **{"vocab_size": 257, "tie_word_embeddings": True},
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "has no config.json; it contains nothing"),
        ({"config.json": LLAMA, "pytorch_model.bin": 0}, "pytorch_model.bin: is a pickle"),
        ({"config.json": LLAMA}, "model.safetensors: is missing"),
        (
            {"config.json": LLAMA | {"num_key_value_heads": 2}, "model.safetensors": 0},
            "workload.config.kv_heads is 4, the base has 2. Nothing was changed",
        ),
        ({"config.json": LLAMA | {"model_type": "gpt2"}, "model.safetensors": 0}, "is 'gpt2'"),
        ({"config.json": LLAMA, "model.safetensors": 0}, None),
    ],
)
def test_a_folder_that_is_no_base_is_named_before_anything_is_spent(
    registry,  # noqa: F811
    files: dict,
    expected: str | None,
    request,
):
    folder = f"base-{request.node.callspec.indices['files']}/"
    for name, content in files.items():
        registry.s3.put_object(Bucket="models", Key=folder + name, Body=json.dumps(content))
    asked = [f"train.start_from={{hugging_face: s3://models/{folder}}}",
             "workload.config.norm_eps=0.000001"]  # fmt: skip
    recipe = load_recipe(RECIPE, asked)
    made = build(recipe, resolve_account(recipe.aws), commit="0" * 40, source=None)
    if expected is None:
        return refuse_other_base_model(json.loads(made.body), "us-east-1")
    with pytest.raises(RecipeError) as refused:
        refuse_other_base_model(json.loads(made.body), "us-east-1")
    assert expected in str(refused.value)
    assert f"train.start_from.hugging_face s3://models/{folder}" in str(refused.value)
