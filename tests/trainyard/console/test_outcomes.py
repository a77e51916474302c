"""Outcomes of runs: which metric a run is about, beside the champion's, and what it cost."""

import json
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from tests.trainyard.console.looking import faults
from tests.trainyard.console.test_models import spec
from tests.trainyard.emulator.harness import IMAGE, Cloud, process_step, train_step
from trainyard.console.account_cache import Account, format_run_title
from trainyard.console.outcomes import Outcome, defer_judgement, read_outcome, sort_by_importance

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["seed", "train:loss", "validation:loss", "train:step_seconds"], "validation:loss"),
        (["seed", "max_steps", "weight"], "weight"),
        (["Gate.Gate.checks.0.value", "Train.train:loss"], "Train.train:loss"),
        (["epochs", "mae", "mae.standard_deviation"], "mae"),
        (["seed"], "seed"),
    ],
)
def test_quality_comes_before_settings_and_counts(names: list[str], first: str):
    assert sort_by_importance(names)[0] == first
    assert sorted(sort_by_importance(names)) == sorted(names)


def register(loss: float) -> dict:
    """Return a step that registers a package with that loss."""
    arguments = {
        "ModelPackageGroupName": "judged",
        "ModelApprovalStatus": "PendingManualApproval",
        "InferenceSpecification": spec(IMAGE),
        "CustomerMetadataProperties": {"seed": "7", "loss": json.dumps(loss)},
    }
    return {"Name": "Register", "Type": "RegisterModel", "Arguments": arguments}


def run_to_outcome(cloud: Cloud, name: str, *steps: dict) -> Outcome:
    """Run a pipeline; return its outcome as a new console sees it."""
    cloud.create(name, list(steps))
    found, _ = cloud.run(name)
    id = found["PipelineExecutionArn"].rpartition("/")[2]
    return read_outcome(Account(), name, id, defer_judgement)


@pytest.fixture(scope="module")
def outcomes(cloud: Cloud) -> tuple[Outcome, Outcome]:
    """Outcomes of the pipelines ``first``, whose package is then approved, and ``second``."""
    cloud.put("m.tar.gz", "x")
    cloud.sm.create_model_package_group(ModelPackageGroupName="judged")
    first = run_to_outcome(cloud, "first", register(0.5))
    listed = cloud.sm.list_model_packages(ModelPackageGroupName="judged")
    arn = listed["ModelPackageSummaryList"][0]["ModelPackageArn"]
    cloud.sm.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    return first, run_to_outcome(cloud, "second", register(0.25))


def test_a_registered_model_stands_beside_the_champion(outcomes: tuple[Outcome, Outcome]):
    first, second = outcomes
    assert (first.metric, first.value, first.change) == ("loss", 0.5, None)
    assert first.verdict == "registered"
    assert (second.value, second.champion, second.change) == (0.25, 0.5, -0.25)


def test_without_a_model_it_is_the_metric_of_the_training_and_it_has_a_cost(cloud: Cloud):
    train = train_step("Train", "echo 'loss=0.75'")
    measured = [{"Name": "loss", "Regex": "loss=(\\S+)"}]
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = measured
    found = run_to_outcome(cloud, "trained", train)
    assert (found.metric, found.value, found.verdict) == ("loss", 0.75, "")
    assert found.cost and found.cost.so_far > 0
    nothing = run_to_outcome(cloud, "untrained", process_step("Look", "true"))
    assert nothing.value is None and nothing.cost


def test_a_run_is_called_what_people_called_it_else_by_pipeline_and_time():
    when = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert format_run_title("p", "my-run", when, "abc") == "my-run"
    for unnamed in ("", "abc", "execution-1795529872736"):
        assert format_run_title("p", unnamed, when, "abc") == f"p {when.astimezone():%d %b %H:%M}"
    assert format_run_title("p", "", None, "abc") == "abc"


def test_the_list_shows_outcomes_as_soon_as_they_are_read(outcomes, page):
    row = page.locator("tbody tr", has_text="second")
    expect(row).to_contain_text("0.25 loss")
    expect(row).to_contain_text("-0.25")
    expect(row.locator("td.registered")).to_have_count(1)
    assert faults(page) == []
