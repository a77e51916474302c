"""What an alarm does when its state changes: SNS topics are told."""

import json
import logging
from datetime import UTC, datetime

from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader

from trainyard.emulator.api import ACCOUNT, ApiError
from trainyard.emulator.aws import Aws
from trainyard.emulator.regions import region

log = logging.getLogger(__name__)
LISTS = {
    "OK": "OKActions",
    "ALARM": "AlarmActions",
    "INSUFFICIENT_DATA": "InsufficientDataActions",
}
_TRIGGER = (
    *("MetricName", "Namespace", "Statistic", "ExtendedStatistic", "Unit", "Period"),
    *("EvaluationPeriods", "DatapointsToAlarm", "ComparisonOperator", "Threshold"),
    *("TreatMissingData", "EvaluateLowSampleCountPercentile"),
)


def check(alarm: dict) -> None:
    """Raises ``ValidationError`` for an action that nobody here does."""
    for member in LISTS.values():
        for arn in alarm.get(member, []):
            if not str(arn).startswith("arn:aws:sns:"):
                message = f"{member}: {arn}: only SNS topics are told here"
                raise ApiError("ValidationError", message)


def perform(aws: Aws, alarm: dict, before: str) -> None:
    """The actions of the state that ``alarm`` has now; one that fails is said, and no more."""
    if not alarm.get("ActionsEnabled", True):
        return
    for arn in alarm.get(LISTS[alarm["StateValue"]], []):
        try:
            _notify(aws, arn, alarm, before)
        except (ClientError, BotoCoreError) as failure:
            log.warning("alarm %s: %s was not called: %s", alarm["AlarmName"], arn, failure)


def _notify(aws: Aws, topic: str, alarm: dict, before: str) -> None:
    subject = f'{alarm["StateValue"]}: "{alarm["AlarmName"]}" in {_place()}'
    aws.client("sns").publish(
        TopicArn=topic, Subject=subject[:100], Message=json.dumps(_message(alarm, before))
    )


def _message(alarm: dict, before: str) -> dict:
    """The JSON that CloudWatch sends to a topic."""
    trigger = {key: alarm.get(key) for key in _TRIGGER if alarm.get(key) is not None}
    dimensions = [{"name": d["Name"], "value": d["Value"]} for d in alarm.get("Dimensions", [])]
    return {
        "AlarmName": alarm["AlarmName"],
        "AlarmDescription": alarm.get("AlarmDescription"),
        "AWSAccountId": ACCOUNT,
        "AlarmConfigurationUpdatedTimestamp": _time(alarm["AlarmConfigurationUpdatedTimestamp"]),
        "NewStateValue": alarm["StateValue"],
        "NewStateReason": alarm["StateReason"],
        "StateChangeTime": _time(alarm["StateUpdatedTimestamp"]),
        "Region": _place(),
        "AlarmArn": alarm["AlarmArn"],
        "OldStateValue": before,
        **{member: alarm.get(member, []) for member in LISTS.values()},
        "Trigger": trigger | {"Dimensions": dimensions},
    }


def _place() -> str:
    """The region as people call it: ``US East (N. Virginia)``."""
    regions = Loader().load_data("endpoints")["partitions"][0]["regions"]
    return regions.get(region(), {}).get("description", region())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000"
