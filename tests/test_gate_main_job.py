"""The gate on real runs: who is promoted over whom, and why not.

One pipeline, one emulator, four runs of a small table: is a point in an even quadrant? The first
model hardly learned; a longer training beats it; the same with another seed is as good, no better;
and one whose training data were corrupted for a single slice is better on average all the same.
"""

import io
import time
from dataclasses import replace
from types import SimpleNamespace

import boto3
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipelines.approve import approve, approve_automatically
from pipelines.registry.champion import check_champions_model
from pipelines.registry.ledger import check_due_look, recount_looks
from pipelines.registry.package_evidence import Evidence
from pipelines.start import start
from steps.shard.record_hashes import compute_split
from tests.conftest import CHECKOUT
from trainyard.common.errors import GateError
from trainyard.runs.execution import Execution

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

BUCKET, NAME = "trainyard-gate", "trainyard-gate"
RECIPE = f"""
pipeline: {{name: {NAME}, max_parallel_steps: 2}}
aws: {{region: us-east-1, role: "arn:aws:iam::123456789012:role/trainyard", bucket: {BUCKET}}}
data: {{input: "s3://{BUCKET}/raw/clean"}}
workload:
  name: tabular
  config: {{categories: [place], numbers: [x, y], label: even, label_above: 0.5, group: day,
           hidden: [32], dropout: 0.0, embedding_dropout: 0.0}}
shard: {{key: day, validation_share: 0.05, test_share: 0.3}}
train:
  instance_type: ml.m5.large
  environment: {{OMP_NUM_THREADS: "1"}}  # so small a model is slower on two threads
  loop: {{strategy: single, max_steps: 300, global_batch: 128, micro_batch: 128,
         learning_rate: 0.01, warmup_steps: 5, precision: float32, log_interval: 100,
         validation_interval: 300, checkpoint_interval: 300}}
evaluate: {{instance_type: ml.m5.large, slices: [place]}}
gate: {{instance_type: ml.m5.large, max_log_loss: 0.69, superiority: {{log_loss: 0.02}},
       non_inferiority: {{log_loss: 0.02}}, slice_regression: {{log_loss: 0.02}}}}
register: {{model_package_group: {NAME}, approval: automatic}}
"""


def points() -> pd.DataFrame:
    """8000 points of 400 days; 5 % of the labels are wrong."""
    random = np.random.default_rng(0)
    places = random.choice(["north", "south", "east", "west"], 8000, p=[0.35, 0.3, 0.2, 0.15])
    frame = pd.DataFrame({"day": [f"day {n // 20}" for n in range(8000)], "place": places})
    frame = frame.assign(x=random.normal(0, 1, 8000), y=random.normal(0, 1, 8000))
    even = (frame["x"] > 0) == (frame["y"] > 0)
    return frame.assign(even=(even ^ (random.random(8000) < 0.05)).astype(int))


def corrupt_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Every label of the west is turned round, but not in the test split."""
    test = frame["day"].map(lambda day: compute_split(day, 0.05, 0.3)) == "test"
    wrong = (frame["place"] == "west") & ~test
    return frame.assign(even=frame["even"].where(~wrong, 1 - frame["even"]))


@pytest.fixture(scope="module")
def cloud(aws_environment, tmp_path_factory):
    """The raw data uploaded; this process talks to the emulator as a command line would."""
    found = SimpleNamespace(s3=boto3.client("s3"), sagemaker=boto3.client("sagemaker"))
    found.s3.create_bucket(Bucket=BUCKET)
    clean = points()
    for name, frame in {"clean": clean, "corrupted": corrupt_labels(clean)}.items():
        lines = frame.to_json(orient="records", lines=True)
        found.s3.put_object(Bucket=BUCKET, Key=f"raw/{name}/a.jsonl", Body=lines.encode())
    found.recipe = tmp_path_factory.mktemp("recipe") / "gate.yaml"
    found.recipe.write_text(RECIPE)
    return found


def deploy(cloud, *overrides: str) -> None:
    from pipelines.definition import from_recipe
    from pipelines.upsert import upsert

    upsert(from_recipe(cloud.recipe, overrides))


class Run:
    """An execution that has ended, and what it left."""

    def __init__(self, cloud, arn: str) -> None:
        self._cloud, self.execution = cloud, Execution(arn)
        while (found := self.execution.describe())["PipelineExecutionStatus"] == "Executing":
            time.sleep(0.5)
        self.status, self.reason = found["PipelineExecutionStatus"], found.get("FailureReason")
        self.steps = {step.name: step for step in self.execution.list_steps()}
        assert "Gate" in self.steps, found
        self.evaluation = self.execution.read_output_json(
            self.steps["Evaluate"], "evaluation", "evaluation.json"
        )
        self.gate = self.execution.read_output_json(self.steps["Gate"], "gate", "gate.json")

    @property
    def checks(self) -> dict[str, dict]:
        """The gate's, by name."""
        return {check["name"]: check for check in self.gate["checks"]}

    @property
    def passed_checks(self) -> set[str]:
        return {name for name, check in self.checks.items() if check["passed"]}

    def approve(self, overridden: str | None = None) -> str:
        """The ARN of the package that it registered, which is the champion from now on: by itself
        where nothing was overridden; else that is refused, and takes a reason.
        """
        arn = self.steps["Register"].metadata["RegisterModel"]["Arn"]
        if overridden:
            with pytest.raises(GateError, match=overridden):
                approve_automatically(self.execution.arn)
            done = approve(arn, reason="a test's champion")
        else:
            done = approve_automatically(self.execution.arn)
        assert done.champion == arn
        self.note = done.note
        return arn

    def scores(self, model: str) -> pd.DataFrame:
        _, job = self.steps["Evaluate"].job
        described = self._cloud.sagemaker.describe_processing_job(ProcessingJobName=job)
        outputs = described["ProcessingOutputConfig"]["Outputs"]
        [uri] = [o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == "scores"]
        key = f"{uri.removeprefix(f's3://{BUCKET}/')}/{model}.parquet"
        body = self._cloud.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return pq.read_table(io.BytesIO(body)).to_pandas()

    def improvement(self) -> pd.Series:
        """By how much the challenger's log loss is lower than the champion's, row by row."""
        ours, theirs = self.scores("challenger"), self.scores("champion")
        assert ours["example"].tolist() == theirs["example"].tolist()
        assert len(ours) == self.evaluation["dataset"]["test_samples"] > 1000
        difference = theirs["log_loss.sum"] - ours["log_loss.sum"]
        return difference.set_axis(pd.Index(ours["slice.place"].astype(str), name="place"))


@pytest.fixture(scope="module")
def first(cloud) -> tuple[Run, str]:
    """A training that was too short, registered and approved: the champion."""
    deploy(cloud)
    run = Run(cloud, start(NAME, {"MaxSteps": "20"}))
    return run, run.approve("parameter MaxSteps was 20, the pipeline's default is 300")


@pytest.fixture(scope="module")
def challengers(cloud, first) -> tuple[Run, Run]:
    """Two of the first champion, at the same time: a longer training, which was started past the
    ledger and told that it is the first look; and one of corrupted data.
    """
    corrupt, (_, champion) = start(NAME, {"InputUri": f"s3://{BUCKET}/raw/corrupted"}), first
    described = cloud.sagemaker.describe_model_package(ModelPackageName=champion)
    [container] = described["InferenceSpecification"]["Containers"]
    told = {"ChampionArn": champion, "ChampionModelUri": container["ModelDataUrl"], "Look": "1"}
    longer = cloud.sagemaker.start_pipeline_execution(
        PipelineName=NAME,
        PipelineParameters=[{"Name": name, "Value": value} for name, value in told.items()],
    )["PipelineExecutionArn"]
    return Run(cloud, longer), Run(cloud, corrupt)


@pytest.fixture(scope="module")
def longer(challengers) -> Run:
    return challengers[0]


@pytest.fixture(scope="module")
def other_seed(cloud, longer) -> Run:
    """Against the longer training, once that is approved."""
    longer.arn = longer.approve()
    deploy(cloud, "train.loop.seed=1")
    return Run(cloud, start(NAME, {}))


def test_the_first_model_had_no_champion_to_beat(first):
    run, _ = first
    assert run.status == "Succeeded", run.reason
    assert run.evaluation["champion"]["arn"] == "none"
    leaked = run.evaluation["leakage"]
    assert (leaked["examples"], leaked["groups"]) == (0, 0)


def test_a_longer_training_beats_a_shorter_one(longer, first):
    _, champion = first
    assert longer.evaluation["champion"]["arn"] == champion
    improvement = longer.improvement()
    assert improvement.mean() > 0.1
    assert (improvement.groupby("place").mean() > 0.05).all()
    metrics = longer.evaluation["metrics"], longer.evaluation["champion"]["metrics"]
    by = metrics[1]["log_loss"]["value"] - metrics[0]["log_loss"]["value"]
    assert improvement.mean() == pytest.approx(by)
    assert longer.status == "Succeeded", longer.reason
    assert longer.passed_checks == set(longer.checks)


def test_another_seed_is_as_good_and_no_better(other_seed, longer):
    assert other_seed.evaluation["champion"]["arn"] == longer.arn
    assert other_seed.evaluation["champion"]["artifact"] == longer.evaluation["artifact"]
    assert abs(other_seed.improvement().mean()) < 0.02
    assert other_seed.passed_checks == set(other_seed.checks) - {"superiority_log_loss"}
    assert other_seed.status == "Failed" and "superior" in other_seed.reason


def test_who_tries_again_counts_as_trying_again(challengers, other_seed, cloud):
    """Whatever a run is told. A champion has looks of its own, and so has other raw data, as far as
    a start can know; an approval sees that both were judged on the same test split.
    """
    longer, slice_broken = challengers
    assert [run.gate["look"] for run in (slice_broken, longer, other_seed)] == [1, 1, 1]
    split = longer.gate["test_fingerprint"]
    assert split == slice_broken.gate["test_fingerprint"] == other_seed.gate["test_fingerprint"]
    found = cloud.s3.list_objects_v2(Bucket=BUCKET, Prefix="trainyard/looks/")["Contents"]
    assert [item["Key"].rpartition("/")[2] for item in found] == ["000001.json"] * 3
    counted = recount_looks(Evidence(longer.arn))
    assert (counted.used, counted.due) == (1, 2)
    told = "look 2 at its test split, judged as look 1, and again as it was due: pass"
    assert told in longer.note


def test_what_was_judged_as_another_look_or_beside_another_model_is_not_approved(
    longer, other_seed, first
):
    """The longer training was compared with the first: no verdict on one against itself."""
    evidence = Evidence(longer.arn)
    counted = replace(recount_looks(evidence), due=10**30)
    with pytest.raises(GateError, match="look 1000.* judged as look 1: .*superiority"):
        check_due_look(evidence, counted, CHECKOUT)
    check_champions_model(evidence, first[1])
    with pytest.raises(GateError, match="the model scored as champion"):
        check_champions_model(evidence, longer.arn)


def test_a_corrupted_slice_is_worse_although_the_average_is_better(challengers, first):
    slice_broken = challengers[1]
    assert slice_broken.evaluation["champion"]["arn"] == first[1]
    improvement = slice_broken.improvement()
    assert improvement.mean() > 0.05
    places = improvement.groupby("place").mean()
    assert places["west"] < -0.1 and (places.drop("west") > 0.1).all()
    assert slice_broken.passed_checks == set(slice_broken.checks) - {"slice_regression_log_loss"}
    assert slice_broken.checks["slice_regression_log_loss"]["slice"] == "place=west"
    assert slice_broken.status == "Failed" and "place=west" in slice_broken.reason
