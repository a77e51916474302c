"""What plan says of the shard step's volumes, from the sizes of the objects in S3."""

import json

import pytest

from pipelines.delivery import budget
from tests.pipelines.test_definition import compiled
from trainyard.plan.cache_prediction import MOST


class Bucket:
    """An S3 client that knows of objects of one size; the bucket's name is not looked at."""

    def __init__(self, count: int, size: float) -> None:
        self.items = [{"Key": f"{n}", "Size": size} for n in range(count)]

    def get_paginator(self, _: str) -> "Bucket":
        return self

    def paginate(self, **_: str) -> list[dict]:
        return [{"Contents": self.items}]


@pytest.mark.parametrize(
    ("instances", "count", "size", "said"),
    [
        (1, 10, 4e9, "the raw data are 40.0 GB, of which the instance holds its part"),
        (1, 10, 1e9, ""),
        (4, 10, 5e9, "which each of 4 instances holds its part and that part's records, 38 GB"),
        (4, 10, 3e9, ""),
        (4, MOST + 1, 1e8, "the raw data are at least 1,000.0 GB"),
    ],
)
def test_a_volume_that_the_raw_data_do_not_fit_is_named(instances, count, size, said):
    overrides = [f"shard.instance_count={instances}", "shard.volume_gb=30"]
    document = json.loads(compiled("recipes/laptop.yaml", *overrides).body)
    lines = list(budget.shard_volume_remarks(Bucket(count, size), document))
    assert len(lines) == bool(said)
    assert said in "".join(lines)
    assert all(line.startswith("shard.volume_gb 30 is too small: ") for line in lines)


def test_a_pipeline_without_our_shard_step_is_passed_over():
    assert not list(budget.shard_volume_remarks(Bucket(1, 1), {"Steps": [{"Name": "Other"}]}))
