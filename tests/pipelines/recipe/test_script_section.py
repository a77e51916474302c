"""Tests of the recipe of your own script: all its fields are given, or none."""

import pytest

from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

RECIPE = CHECKOUT / "tests/somebodys/recipe.yaml"


def test_the_first_metric_is_the_primary_one():
    found = load(RECIPE).workload_spec
    assert (found.primary_metric, dict(found.metrics)) == (
        "accuracy",
        {"accuracy": "higher", "log_loss": "lower"},
    )


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("evaluate.script=null", "evaluate.script: is missing"),
        ("evaluate.script=evaluate.sh", "evaluate.script: 'evaluate.sh' must end in .py"),
        ("evaluate.metrics={}", "evaluate.metrics: is missing"),
        ("evaluate.metrics={label: higher}", "evaluate.metrics: 'label' is not a metric's name"),
        ("evaluate.metrics={a.b: higher}", "evaluate.metrics: 'a.b' is not a metric's name"),
        ("evaluate.metrics={leaked_groups: lower}", "evaluate.metrics.leaked_groups: gate.max_"),
        ("evaluate.channels={}", "evaluate.channels: is missing"),
        ("evaluate.channels={train: s3://somebodys/a}", "evaluate.channels: is missing"),
        ("evaluate.channels={model: s3://somebodys/a}", "evaluate.channels: 'model' is the job's"),
        ("evaluate.request=null", "gate.max_latency_p95_ms: needs evaluate.request"),
        ("inference.script=null", "gate.max_latency_p95_ms: needs inference.script"),
        ("gate.max_near_duplicates=0", "gate.max_near_duplicates: the examples"),
        ("gate.below_baseline=chance", "gate.below_baseline: 'chance' is not a baseline"),
        ("gate.min_acuracy=0.5", "gate.min_acuracy: unknown field; nearest valid name: min_accur"),
        ("transform={input: s3://somebodys/new}", "transform: scores by a workload's answers"),
        ("gate.superiority={auc: 0}", "gate.superiority.auc: is not a metric"),
    ],
)
def test_what_is_missing_or_untold_is_refused_by_its_field(override, field):
    with pytest.raises(RecipeError) as error:
        load(RECIPE, [override])
    assert field in str(error.value)


@pytest.mark.parametrize("field", ["script: a.py", "baselines: [b]", "metrics: {m: lower}"])
def test_a_workload_has_no_evaluation_script(field):
    name, _, value = field.partition(": ")
    with pytest.raises(RecipeError, match=f"evaluate.{name}: is for a training script"):
        load(CHECKOUT / "recipes/laptop.yaml", [f"evaluate.{name}={value}"])


def test_a_baseline_that_the_script_scores_can_be_demanded():
    given = ["evaluate.baselines=[chance]", "gate.below_baseline=chance"]
    assert load(RECIPE, given).workload_spec.baselines == ("chance",)
