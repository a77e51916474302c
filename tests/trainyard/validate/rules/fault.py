"""A change to the valid definition that a rule is about, and short words for the usual ones."""

import re
from dataclasses import dataclass
from typing import Any

from tests.trainyard.validate.rules.definitions import (
    REGISTRY,
    WAIT,
    Change,
    add,
    default,
    document,
    file_system_channel,
    hyper,
    put,
    s3_channel,
    valid,
)
from trainyard.validate.location import Finding
from trainyard.validate.rules.rule import RULES


@dataclass(frozen=True, slots=True)
class Fault:
    """Changes to the valid definition, and the rule that they concern."""

    rule: str
    name: str
    changes: tuple[Change, ...]

    def apply(self) -> dict[str, Any]:
        """The valid definition with the changes."""
        definition = valid()
        for change in self.changes:
            change(definition)
        return definition

    def findings(self) -> list[Finding]:
        """What the rule says of it."""
        return list(RULES[self.rule].findings(document(self.apply())))

    def assert_found(self) -> None:
        """The rule says something, all of it, and at a place that is there."""
        assert (broken := self.findings()), "the rule said nothing"
        for finding in broken:
            assert finding.problem and finding.why and finding.fix and finding.source
            assert _at(self.apply(), finding.path) is not None


def _at(definition: Any, path: str) -> Any:
    """What stands at a finding's JSON path; the last part may be missing there."""
    value = definition
    *before, _ = re.findall(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]", path)
    for name, index, quoted in before:
        value = value[int(index)] if index else value[name or quoted]
    return value


def of(rule: str, **cases: Change | tuple[Change, ...]) -> list[Fault]:
    """Faults of one rule: a name with its change or changes."""
    return [
        Fault(rule, f"{rule}: {name.replace('_', ' ')}", c if isinstance(c, tuple) else (c,))
        for name, c in cases.items()
    ]


def machine(name: str) -> Change:
    return default("TrainInstanceType", name)


def nodes(count: int) -> Change:
    return default("TrainInstanceCount", count)


def image(uri: str) -> Change:
    return put("Train", "AlgorithmSpecification.TrainingImage", uri)


def neuron(repository: str = "pytorch-training-neuronx:2.8.0-neuronx-py311") -> Change:
    return image(f"{REGISTRY}/{repository}")


def environment(step: str, **values: str) -> Change:
    return put(step, "Environment", values)


def channel(**fields: Any) -> Change:
    return add("Train", "InputDataConfig", {**s3_channel("extra", "s3://b3b/x", "File"), **fields})


def fsx(**changes: Any) -> Change:
    channel = {**file_system_channel(), **changes}
    return add("Train", "InputDataConfig", {k: v for k, v in channel.items() if v is not None})


def retry(step: str, **fields: Any) -> Change:
    policy = {"ExceptionType": ["SageMaker.CAPACITY_ERROR"], "IntervalSeconds": 60}
    return put(step, "/RetryPolicies", [{**policy, **fields}])


SHARD = "ProcessingResources.ClusterConfig"
SPOT = (put("Train", "EnableManagedSpotTraining", True), put("Train", WAIT, 172_800))
TWO_SUBNETS = put("Train", "VpcConfig.Subnets", ["subnet-0a1b2c3d", "subnet-1a1b2c3d"])
ISOLATED = put("Train", "EnableNetworkIsolation", True)
OWN_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/train:1"
ONE_GPU = (machine("ml.g5.2xlarge"), hyper("Train", shard_degree="0", global_batch="8"))
OUTPUT = "ProcessingOutputConfig.Outputs.0.S3Output.S3Uri"
TUNED = "TrainingJobDefinition"
