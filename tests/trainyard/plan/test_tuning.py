"""A tuning step's cost: at most so many jobs, each as long as it may take."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.trainyard.plan.test_run_cost import PRICES
from trainyard.plan.cache_prediction import History, predict
from trainyard.plan.run_cost import Cost, Jobs, estimate, jobs_of

MACHINE = {"InstanceType": "ml.g5.12xlarge", "InstanceCount": 2, "VolumeSizeInGB": 0}


def tuning(limits: dict[str, Any], **config: Any) -> Cost:
    definition = {"ResourceConfig": MACHINE, "StoppingCondition": {"MaxRuntimeInSeconds": 3600}}
    arguments = {
        "HyperParameterTuningJobConfig": {"Strategy": "Random", "ResourceLimits": limits, **config},
        "TrainingJobDefinition": definition,
    }
    step = {"Name": "Tune", "Type": "Tuning", "Arguments": arguments}
    count = [{"Name": "Count", "Type": "Integer", "DefaultValue": 7}]
    document = {"Version": "2020-12-01", "Parameters": count, "Steps": [step]}
    history = History(None, None)
    [cost] = estimate(document, predict(document, "p", history, datetime.now(UTC)), history, PRICES)
    return cost


def test_it_costs_at_most_all_its_jobs_and_takes_as_long_as_their_turns() -> None:
    cost = tuning({"MaxNumberOfTrainingJobs": 7, "MaxParallelTrainingJobs": 3})
    assert cost.machines == "at most 7 jobs × 2 × ml.g5.12xlarge"
    assert cost.usd_limit == pytest.approx(7 * 2 * 7.09)
    assert cost.limit == 3 * 3600


def test_a_parameters_default_counts() -> None:
    count = {"Get": "Parameters.Count"}
    cost = tuning({"MaxNumberOfTrainingJobs": count, "MaxParallelTrainingJobs": 1})
    assert cost.usd_limit == pytest.approx(7 * 2 * 7.09)


def test_the_tuning_jobs_own_limit_counts() -> None:
    limits = {"MaxNumberOfTrainingJobs": 7, "MaxParallelTrainingJobs": 3}
    cost = tuning({**limits, "MaxRuntimeInSeconds": 1800})
    assert cost.limit == 1800
    assert cost.usd_limit == pytest.approx(3 * 0.5 * 2 * 7.09)


def test_where_only_a_run_can_tell_nothing_is_told() -> None:
    later = {"Get": "Execution.PipelineArn"}
    assert tuning({"MaxNumberOfTrainingJobs": later, "MaxParallelTrainingJobs": 3}).limit is None
    assert tuning({"MaxParallelTrainingJobs": 3}).usd_limit is None


def test_a_grid_has_as_many_jobs_as_combinations() -> None:
    ranges = [{"Name": "a", "Values": ["1", "2"]}, {"Name": "b", "Values": ["1", "2", "3"]}]
    config = {
        "Strategy": "Grid",
        "ResourceLimits": {"MaxParallelTrainingJobs": 4},
        "ParameterRanges": {"CategoricalParameterRanges": ranges},
    }
    assert jobs_of(config) == Jobs(6, 4, math.inf)
