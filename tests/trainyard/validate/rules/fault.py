"""A change to the valid definition that a rule is about, and short words for the usual ones."""

import re
from dataclasses import dataclass, replace
from functools import partial
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
    is_near: bool = False
    """Whether the changes are right, or not the rule's business: it must be silent."""

    def apply(self) -> dict[str, Any]:
        """The valid definition with the changes."""
        definition = valid()
        for change in self.changes:
            change(definition)
        return definition

    def findings(self) -> list[Finding]:
        """What the rule says of it."""
        return list(RULES[self.rule].iter_findings(document(self.apply())))

    def assert_found(self) -> None:
        """The rule says something, all of it, and at a place that is there."""
        assert (broken := self.findings()), "the rule said nothing"
        for finding in broken:
            assert finding.problem and finding.why and finding.fix and finding.source
            assert _find_value(self.apply(), finding.path) is not None


def _find_value(definition: Any, path: str) -> Any:
    """What stands at a finding's JSON path; the last part may be missing there."""
    value = definition
    *before, _ = re.findall(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]", path)
    for name, index, quoted in before:
        value = value[int(index)] if index else value[name or quoted]
    return value


Case = Change | tuple[Change, ...]


def seed(rule: str, *cases: Case, **named: Case) -> list[Fault]:
    """Faults of one rule: the change or changes of each, with a name if they do not say it."""
    return [
        Fault(
            rule, f"{rule}: {name.replace('_', ' ')}", case if isinstance(case, tuple) else (case,)
        )
        for name, case in (*((str(n), case) for n, case in enumerate(cases)), *named.items())
    ]


def near(rule: str, *cases: Case) -> list[Fault]:
    """What stands next to the faults of the rule, and is none."""
    return [replace(fault, is_near=True) for fault in seed(rule, *cases)]


def get(text: str) -> dict[str, str]:
    return {"Get": text}


def join(*values: Any, on: str = "/") -> dict[str, Any]:
    return {"Std:Join": {"On": on, "Values": list(values)}}


def machine(name: str) -> Change:
    return default("TrainInstanceType", name)


def nodes(count: int) -> Change:
    return default("TrainInstanceCount", count)


def image(uri: str) -> Change:
    return put("Train", "AlgorithmSpecification.TrainingImage", uri)


def job_image(step: str, uri: str) -> Change:
    return put(step, "AppSpecification.ImageUri", uri)


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
    given = {name: value for name, value in (policy | fields).items() if value is not None}
    return put(step, "/RetryPolicies", [given])


SHARD = "ProcessingResources.ClusterConfig"
SPOT = (put("Train", "EnableManagedSpotTraining", True), put("Train", WAIT, 172_800))
TWO_SUBNETS = put("Train", "VpcConfig.Subnets", ["subnet-0a1b2c3d", "subnet-1a1b2c3d"])
ISOLATED = put("Train", "EnableNetworkIsolation", True)
OWN_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/train:1"
ONE_GPU = (machine("ml.g5.2xlarge"), hyper("Train", shard_degree="0", global_batch="8"))
OUTPUT = "ProcessingOutputConfig.Outputs.0.S3Output.S3Uri"
TUNED = "TrainingJobDefinition"
URI = get("Parameters.InputUri")
LATER = get("Steps.Shard.ProcessingJobName")
"""What only a run knows."""
checkpoints = partial(put, "Train", "CheckpointConfig.S3Uri")
output_key = partial(put, "Train", "OutputDataConfig.KmsKeyId")
tuned_image = partial(put, "Tune", f"{TUNED}.AlgorithmSpecification.TrainingImage")
