"""A training that is slower than it should be, and the part that makes it so."""

import pytest

from trainyard.runs.training_speed import SLACK, STEP, ExpectedTime, Pace, estimate_expected_time
from trainyard.terminal import console

USUAL = {STEP: 1.0, "data": 0.1, "forward_backward": 0.7, "communication": 0.1, "optimizer": 0.1}


def make_expected_time(**seconds: float) -> ExpectedTime:
    return ExpectedTime(seconds=USUAL | seconds, most=1.2, grounds="is foreseen")


@pytest.mark.parametrize("part", ["data", "forward_backward", "communication", "optimizer"])
def test_the_part_that_grew_most_is_named(part: str):
    found = USUAL | {STEP: 1.9, part: USUAL[part] + 0.8}
    pace = Pace(
        found={**found, "checkpoint": 5.0}, expected=(make_expected_time(),)
    )  # nobody expects saves
    assert pace.is_slow and pace.slowest == part
    assert (
        f"most of the difference is {part}: {USUAL[part] + 0.8:.3g} s instead of "
        f"{USUAL[part]:.3g} s" in pace.describe_slowness()
    )
    assert "a step takes 1.9 s, not the 1 s that is foreseen" in pace.describe_slowness()


def test_what_is_within_the_interval_is_not_slow_and_without_parts_the_step_is_told():
    assert (
        Pace(found=USUAL | {STEP: 1.19}, expected=(make_expected_time(),)).describe_slowness() == ""
    )
    assert Pace(found=USUAL | {STEP: 99.0}).describe_slowness() == ""  # nobody expects anything
    alone = ExpectedTime(seconds={STEP: 1.0}, most=1.2, grounds="is foreseen")  # without parts
    said = Pace(found={STEP: 3.0}, expected=(alone,)).describe_slowness()
    assert said == "slow: a step takes 3 s, not the 1 s that is foreseen"


def test_the_first_expectation_counts_and_all_are_shown():
    mine, other = estimate_expected_time([USUAL | {STEP: 3.0}]), make_expected_time()
    assert mine and mine.most == pytest.approx(SLACK * 3)
    pace = Pace(found=USUAL | {STEP: 2.0}, expected=(mine, other))
    assert not pace.is_slow
    with console.capture() as capture:
        console.print(pace.build_table())
    head, first, *_ = capture.get().splitlines()
    assert head.split() == "seconds of this run 1 earlier run took is foreseen".split()
    assert first.split() == ["step", "2", "3", "1"]


def test_of_several_runs_the_median_counts_and_the_longest_is_no_surprise():
    found = estimate_expected_time([USUAL, USUAL | {STEP: 2.0}, {STEP: 1.1, "data": 0.2}])
    assert found and found.seconds == {STEP: 1.1, "data": 0.1}
    assert found.most == pytest.approx(SLACK * 2) and found.grounds == "3 earlier runs took"
    assert estimate_expected_time([]) is None and estimate_expected_time([{"data": 1.0}]) is None
