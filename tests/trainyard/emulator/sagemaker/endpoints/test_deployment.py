"""Deployment guardrails: the plan of a DeploymentConfig, a bad canary, and a good one."""

import time

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.sagemaker.endpoints.test_endpoints import (
    WHO,
    config,
    in_service,
    invoke,
    model,
    wait_for_endpoint,
)
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.endpoints.endpoint import plan_deployment
from trainyard.emulator.sagemaker.endpoints.serving_instance import WeightedRoundRobin

pytestmark = pytest.mark.slow


def percent(value: int) -> dict:
    return {"Type": "CAPACITY_PERCENT", "Value": value}


def blue_green(kind: str, wait: int = 0, alarms: tuple[str, ...] = (), **more) -> dict:
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **more}
    found: dict = {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}
    if alarms:
        named = [{"AlarmName": name} for name in alarms]
        found["AutoRollbackConfiguration"] = {"Alarms": named}
    return found


@pytest.mark.parametrize(
    ("asked", "shares"),
    [
        ({}, (1.0,)),
        (blue_green("ALL_AT_ONCE"), (1.0,)),
        (blue_green("CANARY", CanarySize=percent(10)), (0.1, 1.0)),
        (blue_green("CANARY", CanarySize={"Type": "INSTANCE_COUNT", "Value": 1}), (0.25, 1.0)),
        (blue_green("LINEAR", LinearStepSize=percent(10)), tuple(n / 10 for n in range(1, 11))),
        (blue_green("LINEAR", LinearStepSize=percent(50)), (0.5, 1.0)),
        (blue_green("LINEAR", LinearStepSize=percent(40)), (0.4, 0.8, 1.0)),
        ({"RollingUpdatePolicy": {"MaximumBatchSize": percent(50), "WaitIntervalInSeconds": 0}},
         (0.5, 1.0)),
    ],
)  # fmt: skip
def test_a_policy_is_its_shares(asked, shares):
    assert plan_deployment(asked, 4).shares == pytest.approx(shares)


@pytest.mark.parametrize(
    "asked",
    [
        blue_green("CANARY"),
        blue_green("CANARY", CanarySize=percent(60)),
        blue_green("LINEAR", LinearStepSize=percent(5)),
        {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration":
            {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 600},
            "MaximumExecutionTimeoutInSeconds": 600}},
    ],
)  # fmt: skip
def test_a_policy_that_aws_would_not_take_is_refused(asked):
    with pytest.raises(ApiError):
        plan_deployment(asked, 4)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any), st.integers(1, 60))
def test_turns_hold_every_share_to_one_request(weights, count):
    turns, names = WeightedRoundRobin(), {str(i): float(w) for i, w in enumerate(weights)}
    found = [turns.choose_name(names) for _ in range(count)]
    for name, weight in names.items():
        assert abs(found.count(name) - count * weight / sum(weights)) <= len(weights) - 1
        assert weight or name not in found


def test_a_bad_canary_is_rolled_back_by_its_alarm_and_a_good_one_stays(aws):
    bad = WHO.replace('if text == "bad": ', "")
    for name, handlers in (("first", WHO), ("broken", bad), ("second", WHO)):
        config(aws, name, {model(aws, name, name, handlers): 1.0})
    watch(aws, "errors")
    aws.sm.create_endpoint(EndpointName="e", EndpointConfigName="first")
    in_service(aws, "e")

    canary = blue_green("CANARY", 20, ("errors",), CanarySize=percent(50))
    found, answers = update(aws, "broken", canary)
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "first")
    assert "alarm errors is in the state ALARM" in found["FailureReason"]
    assert set(answers) == {"first", "ModelError"}
    assert found["LastDeploymentConfig"]["AutoRollbackConfiguration"]
    assert invoke(aws, "e")[0] == "first"

    found, _ = update(aws, "second", canary)
    assert "The deployment was not started: alarm errors" in found["FailureReason"]
    linear = blue_green("LINEAR", 1, LinearStepSize=percent(50))
    aws.sm.update_endpoint(EndpointName="e", EndpointConfigName="second", DeploymentConfig=linear)
    assert aws.sm.describe_endpoint(EndpointName="e")["EndpointStatus"] == "Updating"
    found = wait_for_endpoint(aws, "e")
    assert (found["EndpointConfigName"], found.get("FailureReason")) == ("second", None)
    assert invoke(aws, "e")[0] == "second"
    with pytest.raises(ClientError, match="alarm nobody does not exist"):
        update(aws, "first", blue_green("ALL_AT_ONCE", 0, ("nobody",)))


def watch(aws, name: str) -> None:
    dimensions = {"EndpointName": "e", "VariantName": "broken", "EndpointConfigName": "broken"}
    make_client(aws.endpoint, "cloudwatch").put_metric_alarm(
        AlarmName=name, Namespace="AWS/SageMaker", MetricName="Invocation5XXErrors",
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        Statistic="Sum", Period=60, EvaluationPeriods=1, Threshold=1.0,
        ComparisonOperator="GreaterThanOrEqualToThreshold", TreatMissingData="notBreaching",
    )  # fmt: skip


def update(aws, to: str, deployment: dict, name: str = "e") -> tuple[dict, list[str]]:
    """Update the endpoint; return its final description and the answers during the update."""
    aws.sm.update_endpoint(EndpointName=name, EndpointConfigName=to, DeploymentConfig=deployment)
    answers = []
    while aws.sm.describe_endpoint(EndpointName=name)["EndpointStatus"] != "InService":
        try:
            answers.append(invoke(aws, name)[0])
        except ClientError as error:
            answers.append(error.response["Error"]["Code"])
        time.sleep(0.1)
    return aws.sm.describe_endpoint(EndpointName=name), answers
