"""Several inputs in a recipe: what is wrong is named, and what follows for the definition."""

import json
from pathlib import Path

import pytest

from pipelines.compile.training_inputs import loop_parts
from pipelines.definition import CHECKOUT, build
from pipelines.recipe.environments import resolve
from pipelines.recipe.read_recipe import load
from pipelines.registry.ledger import channels, split
from trainyard.common.errors import RecipeError
from trainyard.language.definition_document import steps_of

LAPTOP = Path("recipes/laptop.yaml")
WEB = "{uri: s3://corpus/raw/web/, weight: 0.7}"
CODE = "{uri: s3://corpus/raw/code/, weight: 0.3}"


def inputs(*given: str, changes: str = "[]") -> list[str]:
    return [f"data={{inputs: [{', '.join(given)}], weight_changes: {changes}}}"]


def document(*overrides: str) -> dict:
    recipe = load(LAPTOP, overrides)
    compiled = build(recipe, resolve(recipe.aws), commit="0" * 40, source=None)
    return json.loads(compiled.body)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([WEB, "{uri: s3://corpus/raw/code/, weight: 0}"], "data.inputs.1.weight: is 0"),
        ([WEB, "{uri: s3://corpus/raw/code/, weight: -1}"], "data.inputs.1.weight: is -1"),
        ([WEB, "{uri: s3://corpus/raw/code/, weight: .nan}"], "data.inputs.1.weight: is nan"),
        ([WEB, "{uri: s3://corpus/raw/code/, weight: .inf}"], "data.inputs.1.weight: is inf"),
        ([WEB, "{uri: s3://corpus/raw/code/, weight: 1.0e-6}"], "weights: code has 1e-06, less"),
        ([WEB, "{uri: s3://corpus/raw/code/}"], "inputs.1.weight: is missing, and no change"),
        ([WEB, "{uri: /raw/code, weight: 1}"], "data.inputs.1.uri: is '/raw/code'"),
        ([WEB, "{uri: s3://other/raw/web, weight: 1}"],
         "inputs.1: is called web, as inputs.0 is; set another name"),
        ([WEB, "{uri: s3://other/x, name: WEB, weight: 1}"], "inputs.1: is called WEB"),
        ([WEB, "{uri: s3://other/x, name: _x, weight: 1}"], "data.inputs.1.name: is '_x'"),
        ([WEB, "{uri: s3://other/a.b/, weight: 1}"], "ends in no folder that can be a name"),
        ([WEB, "{uri: s3://corpus/raw/web/deep/, weight: 1}"],
         "inputs.1.uri: s3://corpus/raw/web/deep/ and inputs.0.uri s3://corpus/raw/web/ overlap"),
        ([WEB, "{uri: s3://corpus/raw/web, name: w, weight: 1}"], "overlap"),
        (["{uri: s3://corpus/web, weight: 1}", "{uri: s3://corpus/web-old, weight: 1}"], "overlap"),
        ([f"{{uri: s3://corpus/{n}/, weight: 1}}" for n in "abcdefghi"], "data.inputs: is [{'uri"),
        ([WEB, "{uri: s3://corpus/raw/code/, wieght: 1}"], "data.inputs.1.wieght: unknown field"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_named_with_what_to_do(given, said):
    with pytest.raises(RecipeError) as caught:
        load(LAPTOP, inputs(*given))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("[{step: 0, weights: {web: 1}}]", "data.weight_changes.0.step: is 0"),
        (
            "[{step: 5, weights: {wbe: 1}}]",
            "after step 5 name wbe, which is not one of inputs: web",
        ),
        ("[{step: 5, weights: {web: 0}}]", "data.weight_changes.0.weights.web: is 0"),
        ("[{step: 5, weights: {web: 1, code: 1.0e-9}}]", "weights after step 5: code has 1e-09"),
        ("[{step: 5, weights: {web: 1}}, {step: 5, weights: {code: 1}}]", "do not ascend"),
    ],
)
def test_wrong_changes_are_named(changes, said):
    with pytest.raises(RecipeError) as caught:
        load(LAPTOP, inputs(WEB, CODE, changes=changes))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data={}", "data: input, inputs, shards: none is set"),
        (f"data={{input: s3://abc/d, inputs: [{WEB}]}}",
         "data: input, inputs, shards: input and inputs are set"),
        (f"data={{inputs: [{WEB}], example: stdlib}}", "data.example: stdlib is for input"),
        ("data={input: s3://abc/d, weight_changes: [{step: 1, weights: {d: 1}}]}",
         "data.weight_changes: need inputs"),
        ("data={inputs: [{uri: s3://abc/d}]}", "data.inputs.0.weight: is missing"),
    ],
)  # fmt: skip
def test_one_input_and_several_exclude_each_other(override, said):
    with pytest.raises(RecipeError) as caught:
        load(LAPTOP, [override])
    assert said in str(caught.value)


def test_who_starts_a_run_cannot_name_another_input():
    with pytest.raises(RecipeError, match="'InputUri' is not a parameter that a run may change"):
        load(LAPTOP, [*inputs(WEB, CODE), "pipeline.overridable=[InputUri]"])


def test_each_input_is_a_folder_of_the_shard_job_and_a_slice_of_the_evaluation():
    found = document(*inputs(WEB, CODE, changes="[{step: 9, weights: {code: 1}}]"))
    steps = {step.name: step.arguments for step in steps_of(found["Steps"])}
    places = {
        one["InputName"]: (one["S3Input"]["S3Uri"], one["S3Input"]["LocalPath"])
        for one in steps["Shard"]["ProcessingInputs"]
        if one["InputName"] != "code"
    }
    assert places == {
        "raw-web": ("s3://corpus/raw/web/", "/opt/ml/processing/input/raw/web"),
        "raw-code": ("s3://corpus/raw/code/", "/opt/ml/processing/input/raw/code"),
    }
    words = steps["Shard"]["AppSpecification"]["ContainerArguments"]
    assert words[words.index("--inputs") + 1 :][:2] == ["web", "code"]
    assert json.loads(steps["Train"]["HyperParameters"]["mixture"]) == {
        "weights": {"web": 0.7, "code": 0.3},
        "changes": [{"step": 9, "weights": {"code": 1.0}}],
    }
    words = steps["Evaluate"]["AppSpecification"]["ContainerArguments"]
    assert words[words.index("--slices") + 1] == "source"
    assert "InputUri" not in {parameter["Name"] for parameter in found["Parameters"]}


def test_other_weights_shard_nothing_again_and_have_other_checkpoints():
    plain = document(*inputs(WEB, CODE))
    other = document(*inputs(WEB, CODE.replace("0.3", "0.2")))
    steps = [{s.name: s.arguments for s in steps_of(d["Steps"])} for d in (plain, other)]
    assert steps[0]["Shard"] == steps[1]["Shard"]
    checkpoints = {one["Train"]["CheckpointConfig"]["S3Uri"] for one in steps}
    assert len(checkpoints) == 2


def test_weights_in_the_same_ratio_are_one_training():
    names = [
        loop_parts(load(LAPTOP, inputs(*given)), None, CHECKOUT).name
        for given in ((WEB, CODE), (CODE.replace("0.3", "3"), WEB.replace("0.7", "7")), (WEB,))
    ]
    assert names[0] == names[1] != names[2]


def test_a_look_at_the_test_split_knows_all_inputs_by_their_places():
    shards = [
        next(s.arguments for s in steps_of(document(*inputs(*given))["Steps"]) if s.name == "Shard")
        for given in ((WEB, CODE), (CODE, WEB.replace("0.7", "7")), (WEB,))
    ]
    assert split(shards[0]) == split(shards[1]) != split(shards[2])
    assert split(shards[0])["input"] == ["s3://corpus/raw/code/", "s3://corpus/raw/web/"]


GIVEN = ["data={shards: s3://corpus/packed/}", "shard={}"]


def test_a_recipe_with_shards_begins_at_the_training():
    """Nothing else of the definition changes but where the splits lie."""
    body = document(*GIVEN)
    steps = {one["Name"]: one["Arguments"] for one in body["Steps"]}
    assert [*steps] == ["Train", "Evaluate", "Gate", "Verdict"]
    uris = {
        one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"]
        for one in steps["Train"]["InputDataConfig"]
    }
    split = "s3://corpus/packed/{}".format
    assert uris == uris | {name: split(name) for name in ("train", "validation")}
    inputs = {one["InputName"]: one["S3Input"] for one in steps["Evaluate"]["ProcessingInputs"]}
    assert (inputs["train"]["S3Uri"], inputs["test"]["S3Uri"]) == (split("train"), split("test"))
    assert "summary" not in inputs
    names = {one["Name"] for one in body["Parameters"]}
    assert not names & {"InputUri", "ShardInstanceCount"}
    assert "Steps.Shard" not in json.dumps(body)


def test_looks_at_another_engines_shards_are_counted_by_where_they_lie():
    [evaluate] = [one for one in steps_of(document(*GIVEN)["Steps"]) if one.name == "Evaluate"]
    assert channels(evaluate) == {"channels": {"test": "s3://corpus/packed/test"}}
    [evaluate] = [one for one in steps_of(document()["Steps"]) if one.name == "Evaluate"]
    assert channels(evaluate) == {}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["data={shards: s3://corpus/x, input: s3://corpus/raw/}", "shard={}"],
            "input and shards are set",
        ),
        (
            ["data={shards: s3://corpus/x, inputs: [{uri: s3://corpus/raw/}]}", "shard={}"],
            "inputs and shards are set",
        ),
        (["data={shards: /local/packed}", "shard={}"], "data.shards: is '/local/packed'"),
        (
            ["data={shards: s3://corpus/x, example: stdlib}", "shard={}"],
            "example: stdlib is for input; remove it",
        ),
        ([*GIVEN, "shard.key=repository"], "shard.key: is for raw data"),
        (
            [
                *GIVEN,
                "train.input_mode=FSxLustre",
                "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcdefgh/data}",
                "aws.vpc={subnets: [subnet-0a1b2c3d], security_groups: [sg-0a1b2c3d]}",
            ],
            "train.fsx: mirrors what the shard step writes",
        ),
    ],
)
def test_shards_beside_what_is_for_raw_data_are_refused(overrides, said):
    with pytest.raises(RecipeError) as caught:
        load(LAPTOP, overrides)
    assert said in str(caught.value)
