"""The request of the tuning job, as it is derived from the train step's."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import rules
from pipelines.definition import build
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from steps.tune.config import TuneConfig
from trainyard.validate.all_checks import check_definition

pytestmark = pytest.mark.long
TUNE = "tune={ranges: {learning_rate: {min: 0.00001, max: 0.01, scale: log}}, trainings: 4}"

SYSTEM = "{file_system_id: fs-0123456789abcdef0, directory_path: /mount/shards}"
FSX = ("train.input_mode=FSxLustre", f"train.fsx={SYSTEM}")


def compile_recipe(recipe: str, *overrides: str):
    read = load_recipe(Path(recipe), overrides)
    return build(read, resolve_account(read.aws), commit="0" * 40, source=None)


def step(body: str, name: str) -> dict:
    return next(one for one in json.loads(body)["Steps"] if one["Name"] == name)


def test_trainings_are_the_train_steps_own_down_to_spot_keys_and_subnets():
    """SDK 3.27's HyperparameterTuner drops the volume's key and the encryption."""
    body = compile_recipe("recipes/prod.yaml", TUNE, *FSX).body
    assert step(body, "Train")["DependsOn"] == step(body, "Tune")["DependsOn"] == ["Shard"]
    train = step(body, "Train")["Arguments"]
    trial = step(body, "Tune")["Arguments"]["TrainingJobDefinition"]
    same = ("RoleArn", "ResourceConfig", "StoppingCondition", "VpcConfig", "Environment",
            "EnableManagedSpotTraining", "EnableInterContainerTrafficEncryption")  # fmt: skip
    assert {name: trial[name] for name in same} == {name: train[name] for name in same}
    static = trial["StaticHyperParameters"]
    assert static["sagemaker_submit_directory"] == "/opt/ml/input/data/sm_drivers"
    shared = {n: v for n, v in static.items() if not n.startswith("sagemaker_")}
    assert shared == {
        name: value for name, value in train["HyperParameters"].items() if name != "learning_rate"
    }
    metrics = [one["Name"] for one in trial["AlgorithmSpecification"]["MetricDefinitions"]]
    assert metrics[:3] == ["validation:loss", "train:step", "train:loss"] and len(metrics) == 20


def test_the_drivers_of_a_trial_hold_the_program_that_starts_them_and_nothing_else_differs():
    found = compile_recipe("recipes/tuned.yaml")
    folders = {asset.uri: asset.files for asset in found.assets}

    def drivers(channels: list[dict]) -> dict[str, bytes]:
        [one] = [c for c in channels if c["ChannelName"] == "sm_drivers"]
        return dict(folders[one["DataSource"]["S3DataSource"]["S3Uri"]])

    trial = step(found.body, "Tune")["Arguments"]["TrainingJobDefinition"]
    mine = drivers(trial["InputDataConfig"])
    assert mine.pop(trial["StaticHyperParameters"]["sagemaker_program"])
    assert mine == drivers(step(found.body, "Train")["Arguments"]["InputDataConfig"])


@pytest.mark.parametrize(
    ("tune", "expected"),
    [
        ("{ranges: {warmup_steps: {min: 1, max: 20}}, trainings: 4}", "IntegerParameterRanges"),
        ("{ranges: {weight_decay: {min: 0, max: 1}}, trainings: 4}", "ContinuousParameterRanges"),
        ("{ranges: {weight_decay: [0.05, 1]}, trainings: 2, strategy: grid}",
         "CategoricalParameterRanges"),
        ("{ranges: {beta2: {min: 0.9, max: 0.99}}, trainings: 3, strategy: hyperband}",
         "ContinuousParameterRanges"),
    ],
)  # fmt: skip
def test_ranges_are_typed_by_the_loops_fields_and_the_service_takes_them(tune, expected):
    body = compile_recipe("recipes/tuned.yaml", f"tune={tune}").body
    config = step(body, "Tune")["Arguments"]["HyperParameterTuningJobConfig"]
    assert [*config["ParameterRanges"]] == [expected]
    problems = [p for p in check_definition(body) if p.step in ("Tune", "Train")]
    assert not problems


@pytest.mark.parametrize(("widths", "expected"), [("[2048]", []), ("[2048, 8192]", ["Tune"])])
def test_the_largest_model_of_a_search_is_held_to_the_machines_memory(widths, expected):
    ranges = f"{{workload_config_dim: {widths}, global_batch: [1024, 2048]}}"
    tune = f"tune={{ranges: {ranges}, trainings: 4}}"
    found = rules.check_definition(compile_recipe("recipes/prod.yaml", tune).body)
    assert [p.step for p in found if p.rule == "training-runs-out-of-memory"] == expected


@given(low=st.floats(1e-6, 1e3), ratio=st.floats(1.001, 1e6), at=st.floats(0, 1))
def test_a_range_allows_what_lies_in_it_and_nothing_beyond(low, ratio, at):
    high = low * ratio
    config = TuneConfig.model_validate(
        {"ranges": {"x": {"min": low, "max": high}, "y": ["a", 2]}, "trainings": 3}
    )
    assert config.allows("x", min(high, max(low, low + at * (high - low))))
    assert not config.allows("x", high * 1.01) and not config.allows("x", low / 1.01)
    assert config.allows("y", 2) and not config.allows("y", "b") and not config.allows("x", "a")
