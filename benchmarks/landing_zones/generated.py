"""Generated landing zones: pairwise combinations of settings, from a seed."""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.landing_zones.zones import HERE, Zone, written
from pipelines.recipe.extended_recipe import over
from trainyard.emulator.api import ACCOUNT

TESTS = HERE.parents[1] / "tests/somebodys"
REGIONS = {
    "us-east-1": ("aws", "amazonaws.com"),
    "eu-central-1": ("aws", "amazonaws.com"),
    "us-gov-west-1": ("aws-us-gov", "amazonaws.com"),
    "cn-north-1": ("aws-cn", "amazonaws.com.cn"),
}
"""Region → partition, and the suffix of its registries."""
ECR = "$ACCOUNT.dkr.ecr.$REGION.$SUFFIX"
KEY = "arn:$PARTITION:kms:$REGION:$ACCOUNT:key/0a1b2c3d-0000-4000-8000-00000000000"
GROUP = "arn:$PARTITION:sagemaker:$REGION:{}:model-package-group/models"
ROLE = "arn:$PARTITION:iam::$ACCOUNT:role"
ROLES = {"aws": {"role": f"{ROLE}/pipeline", "job_role": f"{ROLE}/jobs"}}
IN_PATH = {"aws": {"role": f"{ROLE}/ml/team/pipeline", "job_role": f"{ROLE}/ml/jobs"}}
VPC = {"subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}
TWO = {"subnets": ["subnet-0a1b2c3d", "subnet-0a1b2c3e"], "security_groups": ["sg-0a1b2c3d"]}
FSX = {"file_system_id": "fs-0a1b2c3d", "directory_path": "/mount/data"}
MIXED = [{"uri": "s3://raw-data/a/", "weight": 3}, {"uri": "s3://raw-data/b/", "weight": 1}]
ONE = ["TrainInstanceType"]
SCRIPT = {
    "train": {"script": f"{TESTS}/train.py", "launcher": "none", "arguments": {"slope": 1.5},
              "channels": {"training": "s3://raw-data/train/"}},
    "evaluate": {"script": f"{TESTS}/evaluate.py", "channels": {"test": "s3://raw-data/test/"},
                 "metrics": {"accuracy": "higher", "log_loss": "lower"}},
    "inference": {"script": f"{TESTS}/inference.py"},
    "gate": {"min_accuracy": 0.6},
}  # fmt: skip
WHEELS = {"wheelhouse": True, "python": ["3.11"]}
AXES: dict[str, dict[str, dict[str, Any]]] = {
    "region": {name: {"aws": {"region": name}} for name in REGIONS},
    "roles": {"two": ROLES, "path": IN_PATH, "one": {"aws": {"role": f"{ROLE}/ml/both"}}},
    "key": {
        "none": {},
        "ARN": {"aws": {"kms_key": f"{KEY}1"}},
        "alias": {"aws": {"kms_key": "alias/ml"}},
        "id": {"aws": {"kms_key": "0a1b2c3d-0000-4000-8000-000000000003"}},
    },
    "input key": {"none": {}, "one": {"aws": {"input_keys": [f"{KEY}2"]}}},
    "prefix": {"default": {}, "nested": {"aws": {"prefix": "teams/credit/ml"}}},
    "network": {
        "AWS's": {},
        "VPC": {"aws": {"vpc": VPC}},
        "encrypted": {"aws": {"vpc": TWO, "encrypt_traffic": True}},
        "FSx": {"aws": {"vpc": VPC}, "train": {"fsx": FSX, "input_mode": "FSxLustre"}},
    },
    "packages": {
        "pip's": {},
        "index": {"packages": {"index": "https://pypi.example.com/simple"}},
        "wheelhouse": {"packages": WHEELS},
        "isolated": {"packages": WHEELS, "aws": {"network_isolation": True}},
    },
    "images": {
        "AWS's": {},
        "registry": {"images": {"registry": f"{ECR}/mirror"}},
        "own": {"images": {"training": f"{ECR}/train:1", "processing": f"{ECR}/process:1",
                           "inference": f"{ECR}/serve:1"}},
    },
    "tags": {
        "none": {},
        "some": {"aws": {"tags": {"cost-center": "4711", "owner": "ml@example.com"}}},
        "odd": {"aws": {"tags": {"team:name": "a + b", "Ümlaut": "ä = 1/2"}}},
    },
    "group": {
        "name": {"register": {"model_package_group": "models"}},
        "ARN": {"register": {"model_package_group": GROUP.format("$ACCOUNT")}},
        "tools": {"register": {"model_package_group": GROUP.format("210987654321")}},
    },
    "environments": {"none": {}, "two": {"environments": {
        "dev": {"aws": {"bucket": "zone-dev"}},
        "prod": {"aws": {"bucket": "zone-prod"}, "pipeline": {"name": "zone-prod"},
                 "budget": {"usd_per_run": 100}},
    }}},
    "work": {
        "text": {"data": {"input": "s3://raw-data/texts/"}},
        "mixture": {"data": {"inputs": MIXED}},
        "script": SCRIPT,
    },
    "machines": {"plain": {}, "spot": {"train": {"spot": True, "max_wait_minutes": 60}},
                 "warm": {"train": {"keep_alive_minutes": 10}},
                 "fallback": {"train": {"fallback_instance_types": ["ml.m5.xlarge"]}}},
    "register": {"manual": {}, "automatic": {"register": {"approval": "automatic"}}},
    "runs": {
        "plain": {},
        "constant": {"pipeline": {"overridable": ONE}, "cache": {"enabled": False}},
        "retried": {"retry": {"max_attempts": 3}},
    },
}  # fmt: skip
"""Setting → its values, each a part of a recipe."""
REFUSED = {(("network", "FSx"), ("work", "script"))}
"""Pairs that no recipe can have, which validate says."""
Row = dict[str, str]


def pairs(rows: Sequence[Row]) -> set[tuple[tuple[str, str], ...]]:
    """Return the pairs of two settings' values that occur together."""
    return {pair for row in rows for pair in itertools.combinations(row.items(), 2)}


def pairwise(axes: Mapping[str, Sequence[str]], number: int, seed: int) -> list[Row]:
    """Return so many combinations, which together have as many pairs as a greedy choice finds.

    Each begins with a pair that no earlier one has; every further setting gets the value that adds
    the most such pairs.
    """
    draw = random.Random(seed)
    both = itertools.combinations(axes.items(), 2)
    missing = {((a, v), (b, w)) for (a, mine), (b, its) in both for v in mine for w in its}
    missing -= REFUSED
    rows: list[Row] = []
    for _ in range(number):
        row = dict(draw.choice(sorted(missing))) if missing else {}
        for name in draw.sample(sorted(axes), len(axes)):
            if name not in row:
                values = draw.sample(list(axes[name]), len(axes[name]))
                row[name] = max(values, key=lambda v: _adds(missing, row, (name, v)))
        rows.append({name: row[name] for name in axes})
        missing -= pairs(rows[-1:])
    return rows


def _adds(missing: set, row: Row, value: tuple[str, str]) -> int:
    """Return how many missing pairs a value makes with those of a combination; -1 if it may not."""
    made = [pair for one in row.items() for pair in ((value, one), (one, value))]
    return -1 if REFUSED & set(made) else len(missing & set(made))


def generated(folder: Path, number: int, seed: int) -> list[Zone]:
    """Write so many generated zones into the folder."""
    rows = pairwise({name: list(values) for name, values in AXES.items()}, number, seed)
    return [_written(folder / f"generated-{n:02}", row) for n, row in enumerate(rows)]


def _written(folder: Path, row: Row) -> Zone:
    tree: dict[str, Any] = {
        "pipeline": {"name": "zone"},
        "aws": {"bucket": "zone-ml"},
    }
    for name, value in row.items():
        tree = over(tree, AXES[name][value])
    partition, suffix = REGIONS[row["region"]]
    text = json.dumps(tree).replace("$ACCOUNT", ACCOUNT).replace("$REGION", row["region"])
    tree = json.loads(text.replace("$PARTITION", partition).replace("$SUFFIX", suffix))
    if row["region"] != "us-east-1" and "environments" in tree:  # no prices of others are shipped
        del tree["environments"]["prod"]["budget"]
    if row["work"] != "script":
        tree = {"extends": str(HERE / "small.yaml")} | tree
    told = {name: value for name, value in row.items() if value != next(iter(AXES[name]))}
    about: dict[str, Any] = {"has": ", ".join(f"{k} {v}" for k, v in told.items())}
    about["environments"] = ["dev", "prod"] if row["environments"] == "two" else []
    about["infra"] = ["--no-roles"] if row["roles"] == "one" else []
    if partition == "aws-cn":  # whose CloudFormation makes no model package groups
        about["infra"].append("--no-group")
    if row["group"] == "tools":
        own = GROUP.format(ACCOUNT).replace("$REGION", row["region"])
        about["offline"] = [f"register.model_package_group={own.replace('$PARTITION', partition)}"]
    about["runs"] = partition == "aws" and row["network"] != "FSx" and row["images"] != "own"
    return written(folder, tree, about)
