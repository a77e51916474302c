"""``python -m pipelines`` lists the verbs; ``validate`` takes recipes and definitions."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.__main__ import find_verb_modules
from tests.conftest import call_module
from tests.trainyard.validate.rules.definitions import hyper, valid
from training.data.manifest import Field
from training.data.shard_writer import write_dataset

pytestmark = pytest.mark.long


def test_recipe_errors_are_findings():
    overrides = ("--set", "train.loop.max_stepz=3", "--set", "gate.margin=x")
    done = call_module(
        "pipelines.validate", "--recipe", "recipes/laptop.yaml", *overrides, "--json"
    )
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert {finding["path"] for finding in found} >= {"train.loop.max_stepz"}
    assert all(finding["rule"] == "recipe" for finding in found)


def test_what_to_give_is_said():
    for words in ((), ("x.json", "--recipe", "y.yaml"), ("no.json",)):
        done = call_module("pipelines.validate", *words)
        assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("error:")


def test_a_definition_is_checked_with_the_rules_on_our_jobs_too(tmp_path: Path):
    definition = valid()
    hyper("Train", strategy="fdsp")(definition)
    (tmp_path / "definition.json").write_text(json.dumps(definition))
    done = call_module("pipelines.validate", str(tmp_path / "definition.json"), "--json")
    assert "training-settings" in {finding["rule"] for finding in json.loads(done.stdout)}


def test_alone_it_lists_every_verb_in_one_line(run_python):
    done = run_python("-m", "pipelines")
    listed = done.stdout.splitlines()[2:]
    assert [line.split()[0] for line in listed] == [*find_verb_modules()]
    assert {"definition", "plan", "upsert", "verify"} < {
        *find_verb_modules()
    } and "cli" not in find_verb_modules()
    assert all(line.endswith(".") and len(line) < 120 for line in listed), listed


FIELDS = {"tokens": Field(dtype="uint16", shape=(9,))}


def findings(uri: str) -> list[dict]:
    sets = (f"data={{shards: {uri}}}", "shard={}")
    words = [word for one in sets for word in ("--set", one)]
    done = call_module("pipelines.validate", "--recipe", "recipes/laptop.yaml", *words, "--json")
    return [one for one in json.loads(done.stdout) if one["path"] == "data.shards"]


@pytest.fixture
def dataset_uploader(aws, tmp_path: Path):
    """Upload a dataset of two partitions a split; its keys may be edited by ``change``."""
    s3 = aws("s3")
    s3.create_bucket(Bucket="packed")

    def upload(folder: str) -> str:
        for split in ("train", "validation", "test"):
            for part in (1, 2):
                rows = np.full((20, 9), part, np.uint16)
                options = {"split": split, "host": f"part-{part}", "shard_bytes": 200}
                write_dataset(tmp_path / split, {"tokens": rows}, FIELDS, **options)
        for path in tmp_path.rglob("*.*"):
            key = f"{folder}/{path.relative_to(tmp_path)}"
            s3.put_object(Bucket="packed", Key=key, Body=path.read_bytes())
        return f"s3://packed/{folder}/"

    return upload


def test_what_is_wrong_with_the_manifests_is_named_before_a_run(
    dataset_uploader, aws, aws_environment
):
    s3, uri = aws("s3"), dataset_uploader("whole")
    assert findings(uri) == []
    s3.delete_object(Bucket="packed", Key="whole/test/part-2-00000.npy")
    s3.put_object(Bucket="packed", Key="whole/validation/manifest-part-1.json", Body=b"{")
    found = findings(uri)
    assert [one["severity"] for one in found] == ["error", "error"]
    assert "whole/validation/manifest-part-1.json" in found[0]["problem"]
    assert "whole/test/part-2-00000.npy is missing" in found[1]["problem"]
    [*_, last] = findings("s3://packed/nothing/")
    assert "s3://packed/nothing/test: holds no manifest-*.json" in last["problem"]


def test_a_machine_that_cannot_read_s3_says_that_it_did_not_look(aws_environment, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the discard port
    [one] = findings("s3://packed/whole/")
    assert one["severity"] == "warning" and "was not checked" in one["problem"]
