"""Whether the section ``tune`` searches hyperparameters of its own recipe."""

from pathlib import Path

import pytest

from pipelines.recipe.read_recipe import load
from trainyard.common.errors import RecipeError

RATE = "learning_rate: {min: 0.0001, max: 0.1, scale: log}"


def tuned(tune: str, recipe: str = "recipes/laptop.yaml", *more: str):
    return load(Path(recipe), [f"tune={tune}", *more])


def test_a_range_of_the_loops_own_field_is_taken():
    recipe = tuned(f"{{ranges: {{{RATE}, optimizer: [adamw, lamb]}}, trainings: 4}}")
    assert recipe.tune is not None and [*recipe.tune.ranges] == ["learning_rate", "optimizer"]


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        ("{ranges: {learnin_rate: {min: 0.1, max: 1}}}", "nearest valid name: learning_rate"),
        ("{ranges: {learning_rate: {min: 0.1, max: 1}}}",
         "does not hold train.loop.learning_rate, which is 0.005"),
        ("{ranges: {learning_rate: {min: 0.01, max: 0.001}}}", "is not below max"),
        ("{ranges: {learning_rate: {min: 0, max: 0.1, scale: log}}}", "has no logarithm"),
        ("{ranges: {learning_rate: {min: -1, max: 0.1}}}", "expected a finite number (above 0)"),
        ("{ranges: {warmup_steps: {min: 0.5, max: 30}}}", "expected a whole number"),
        ("{ranges: {optimizer: [adamw, sgd]}}", "expected one of adamw, lamb"),
        ("{ranges: {optimizer: {min: 0, max: 1}}}", "optimizer is 'adamw', not a number"),
        ("{ranges: {global_batch: {min: 8, max: 64}}}", "with global_batch 9: train.loop: "),
        ("{ranges: {workload_config_dim: {min: 128, max: 64}}}", "is not below max"),
        ("{ranges: {workload_config_dimm: [128]}}", "nearest valid name: workload_config_dim"),
        ("{ranges: {workload_config_dim: {min: 256, max: 512}}}",
         "does not hold workload.config.dim, which is 128"),
        ("{ranges: {workload_config_dim: {min: 64, max: 128}}}",
         "with workload_config_dim 65: workload.config: "),
        ("{ranges: {workload_config_dim: [96, 128], workload_config_heads: [4, 8, 64]}}",
         "with workload_config_dim 96, workload_config_heads 64: workload.config: "),
        ("{ranges: {workload_config_hidden_dim: [64, 128]}}",
         "workload.config.hidden_dim is None; a search varies numbers, words, true and false"),
        ("{ranges: {workload_config_context_length: [64, 128]}}",
         "that the samples are packed with, before the search"),
        ("{ranges: {log_interval: {min: 1, max: 20}}}", "does not change the weights"),
        ("{ranges: {max_steps: {min: 100, max: 400}}}", "the length of a training"),
        (f"{{ranges: {{{RATE}}}, strategy: grid}}", "strategy grid takes lists of values only"),
        ("{ranges: {seed: [0, 1, 2]}, strategy: grid}", "trainings: is 10, and the grid has 3"),
        (f"{{ranges: {{{RATE}}}, strategy: hyperband, stop_early: true}}", "stops trainings"),
        (f"{{ranges: {{{RATE}}}, trainings: 2, parallel: 3}}", "more than trainings 2"),
        (f"{{ranges: {{{RATE}}}, metric: loss}}", "are compared by their validation loss"),
        ("{ranges: {seed: [0, 0]}}", "1 to 30 different values"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_is_refused_by_its_field(tune, said):
    with pytest.raises(RecipeError) as caught:
        tuned(tune)
    assert said in str(caught.value) and "tune" in str(caught.value)


SCRIPT = "{ranges: {slope: {min: 0.1, max: 3}}, trainings: 3"


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        (f"{SCRIPT}}}", "one of train.metrics: none is set"),
        (f"{SCRIPT}, metric: lost}}", "one of train.metrics: loss"),
        (f"{SCRIPT}, metric: loss, strategy: hyperband}}", "needs the number of lines"),
        ("{ranges: {slop: [1, 2]}, trainings: 2}", "nearest valid name: slope"),
    ],
)
def test_a_scripts_search_is_by_a_metric_that_it_prints(tune, said):
    metrics = [] if "none is set" in said else [r"train.metrics={loss: 'loss=(\S+)'}"]
    with pytest.raises(RecipeError) as caught:
        tuned(tune, "tests/somebodys/recipe.yaml", *metrics)
    assert said in str(caught.value)
