"""Tests of a plan's and a budget's estimate of a training that may never have run."""

import json
from itertools import pairwise

import pytest

from pipelines.delivery.training_estimate import foresee
from tests.trainyard.plan.pictures import Change, Studio
from trainyard.plan.pipeline_plan import started_with
from trainyard.plan.run_cost import Foreseen, NotForeseen

pytestmark = pytest.mark.long


def train(studio: Studio, *overrides: str, **given: str) -> Foreseen | NotForeseen:
    document = started_with(studio.compiled(Change(overrides)).state.document, given)
    found = foresee(document, "us-east-1")
    assert set(found) == {"Train"}  # nobody claims anything of the others
    return found["Train"]


def test_a_training_by_our_loop_is_foreseen_with_its_grounds(studio: Studio):
    found = train(studio)
    assert isinstance(found, Foreseen)
    seconds = found.seconds
    assert 0 < seconds.p10 < seconds.p50 < seconds.p90
    assert found.grounds.startswith("20,000 steps of ")
    assert any(line.startswith("on demand is done after ") for line in found.remarks)
    assert any(line.startswith("fits: needs ") for line in found.remarks)
    assert found == train(studio)


def test_it_is_that_of_the_runs_own_parameters(studio: Studio):
    runs = [train(studio, MaxSteps=steps) for steps in ("10", "20000", "200000")]
    for shorter, longer in pairwise(runs):
        assert isinstance(shorter, Foreseen) and isinstance(longer, Foreseen)
        assert shorter.seconds.p50 < longer.seconds.p50
    short = train(studio, MaxSteps="1")
    assert isinstance(short, Foreseen)
    assert 30 < short.seconds.p10 < short.seconds.p90  # it has to start, whatever it does then


def test_a_time_limit_that_ends_it_before_its_last_step_is_told(studio: Studio):
    found = train(studio, MaxSteps="2000000")
    assert isinstance(found, Foreseen)
    [said] = found.warnings
    assert said.startswith("will be stopped by its time limit of 12 h 00 min")


def test_a_training_that_loses_all_before_it_saves_may_never_end(studio: Studio):
    rarely = ("train.loop.max_steps=40000000", "train.loop.checkpoint_interval=20000000")
    found = train(studio, "train.spot=true", "train.max_wait_minutes=40000", *rarely)
    assert isinstance(found, Foreseen)
    assert any(line.startswith("may never end: ") for line in found.warnings)
    assert found.seconds.p10 <= found.seconds.p90 < float("inf")  # given up, and charged until then


def test_what_is_not_foreseen_says_why(studio: Studio):
    assert train(studio, TrainInstanceType="ml.m5.large") == NotForeseen("ml.m5.large has no GPU")


def test_a_training_that_is_not_our_loops_is_no_number(studio: Studio):
    body = json.loads(studio.base.body)
    [step] = [step for step in body["Steps"] if step["Name"] == "Train"]
    step["Arguments"]["HyperParameters"] = {"epochs": "3"}
    found = foresee(body, "us-east-1")["Train"]
    assert isinstance(found, NotForeseen) and "nobody knows what it computes" in found.why


def test_spot_machines_take_longer_and_where_they_take_for_ever_it_says_so(studio: Studio):
    spot = ("train.spot=true", "train.max_wait_minutes=900", "train.loop.checkpoint_interval=19999")
    found, without = train(studio, *spot, MaxSteps="2000000"), train(studio, MaxSteps="2000000")
    assert isinstance(found, Foreseen) and isinstance(without, Foreseen)
    assert found.seconds.p90 > without.seconds.p90
    json.dumps(found.seconds.p90, allow_nan=False)
