"""What a job has cost, from the service's own description of it."""

from datetime import UTC, datetime, timedelta

import pytest

from trainyard.plan.prices import HOURS_A_MONTH, Prices
from trainyard.runs.job_cost import compute_job_cost

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LISTED = {"list": {"estimated": False}, "guess": {"estimated": True}}


def price(usd: float, source: str = "list") -> dict:
    return {"usd": usd, "source": source}


PRICES = Prices(
    "us-east-1",
    "2026-11-01",
    {
        "training": {"ml.g5.xlarge": price(1.5), "ml.m5.large": price(0.1, "guess")},
        "processing": {"ml.m5.large": price(0.2)},
        "storage": {"training": price(0.14)},
    },
    LISTED,
)
TRAINING = {
    "TrainingJobStatus": "InProgress",
    "TrainingStartTime": NOON,
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 100},
}

ENDED = {"TrainingJobStatus": "Completed", "TrainingStartTime": NOON}
ENDED["TrainingEndTime"] = NOON + HOUR


def test_what_runs_is_charged_until_now_what_ended_to_its_end_and_spot_as_it_was_billed():
    found = compute_job_cost("TrainingJob", TRAINING, PRICES, NOON + HOUR)
    assert found.machines == "2 × ml.g5.xlarge"
    assert found.usd == pytest.approx(2 * (1.5 + 0.14 * 100 / HOURS_A_MONTH))
    assert found.usd_a_second == pytest.approx(found.usd / 3600)
    over = TRAINING | ENDED
    found = compute_job_cost("TrainingJob", over, PRICES, NOON + 5 * HOUR)
    assert (found.seconds, found.usd_a_second) == (3600, 0)
    spot = over | {"EnableManagedSpotTraining": True, "BillableTimeInSeconds": 900}
    assert compute_job_cost("TrainingJob", spot, PRICES, NOON).seconds == 900


def test_groups_of_machines_add_up():
    groups = [
        {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "InstanceGroupName": "a"},
        {"InstanceType": "ml.m5.large", "InstanceCount": 3, "InstanceGroupName": "b"},
    ]
    job = TRAINING | {"ResourceConfig": {"InstanceGroups": groups}}
    found = compute_job_cost("TrainingJob", job, PRICES, NOON + HOUR)
    assert found.machines == "1 × ml.g5.xlarge + 3 × ml.m5.large"
    assert (found.usd, found.estimated) == (pytest.approx(1.8), True)


@pytest.mark.parametrize(
    ("kind", "job", "usd"),
    [
        ("TrainingJob", {}, None),
        ("TrainingJob", TRAINING | {"ResourceConfig": {"InstanceType": "ml.new.huge"}}, None),
        ("TrainingJob", {"ResourceConfig": TRAINING["ResourceConfig"]}, 0),
        ("ProcessingJob", {"ProcessingResources": {}}, None),
        ("TransformJob", {"TransformResources": {"InstanceType": "ml.m5.large"}}, None),
    ],
)
def test_what_is_not_known_is_not_made_up(kind: str, job: dict, usd: float | None):
    assert compute_job_cost(kind, job, PRICES, NOON).usd == usd


def test_a_search_is_charged_for_each_of_its_trainings():
    where = TRAINING["ResourceConfig"]
    over = ENDED | {"TrainingJobStatus": "Stopped"}
    begun = {"TrainingJobStatus": "InProgress", "TrainingStartTime": NOON}
    definition = {"ResourceConfig": where}
    job = {"TrainingJobDefinition": definition, "TrainingJobSummaries": [over, begun, {}]}
    found = compute_job_cost("TuningJob", job, PRICES, NOON + 2 * HOUR)
    each = compute_job_cost("TrainingJob", TRAINING, PRICES, NOON + HOUR)
    assert (found.seconds, found.usd) == (3 * 3600, pytest.approx(3 * each.usd))
    assert found.usd_a_second == pytest.approx(each.usd_a_second) and not found.estimated
    assert found.machines == "3 training jobs on 2 × ml.g5.xlarge"
    spot = {"TrainingJobDefinition": definition | {"EnableManagedSpotTraining": True}}
    assert compute_job_cost("TuningJob", job | spot, PRICES, NOON).estimated
    other = {"ResourceConfig": {"InstanceType": "ml.unknown.large", "InstanceCount": 1}}
    assert (
        compute_job_cost("TuningJob", job | {"TrainingJobDefinition": other}, PRICES, NOON).usd
        is None
    )


@pytest.mark.parametrize("member", ["ResourceConfig", "HyperParameterTuningResourceConfig"])
def test_a_search_over_several_algorithms_is_charged_by_each_ones_machines(member):
    small = {"InstanceType": "ml.m5.large", "InstanceCount": 1}
    named = [{"DefinitionName": "a", "ResourceConfig": TRAINING["ResourceConfig"]},
             {"DefinitionName": "b", member: small}]  # fmt: skip
    trainings = [ENDED | {"TrainingJobDefinitionName": name} for name in "ab"]
    job = {"TrainingJobDefinitions": named, "TrainingJobSummaries": trainings}
    found = compute_job_cost("TuningJob", job, PRICES, NOON)
    assert found.machines == "2 training jobs on 2 × ml.g5.xlarge or 1 × ml.m5.large"
    assert found.usd == pytest.approx(2 * (1.5 + 14 / HOURS_A_MONTH) + 0.1)
